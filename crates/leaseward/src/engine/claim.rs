//! What one token may believe: from its first ask to its end. Pure.
//!
//! Everything that makes two holders meet is a belief formed too easily: a deadline counted from a reply's arrival, an
//! old push taken for a new one, a token used after it was given back. [`Claim`] holds those decisions in one place,
//! as functions of what was sent, what came back and the time.

use std::time::Duration;

use crate::{
    Fence, LostReason, Token,
    clock::Moment,
    rules::{self, Rule},
    store::{Evidence, Grant, Renewal, timing},
};

/// A start needs at least this share of the lease's time before it, or asking again is the better use of it (R3).
const USEFUL_SHARE: u32 = 8;

/// What one token is entitled to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Asking,
    /// With the latest-sent ask that was answered with a place in the queue (R1).
    Queued {
        sent: Moment,
        last_fence: Fence,
    },
    Held {
        fence: Fence,
        deadline: Moment,
    },
    Ended,
}

/// What follows from something that happened to a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Nothing.
    Nothing,
    /// The lease is ours until the deadline.
    Start { deadline: Moment },
    /// The lease is ours until a new deadline.
    Extend { deadline: Moment },
    /// Ask again at once, with the same token.
    Ask,
    /// The lease is no longer ours.
    Lost(LostReason),
    /// Release this token: nobody here wants what it was given.
    GiveBack,
}

/// The token of an acquisition that follows one whose token is dead: never the same again (R7).
pub(crate) fn token_after(dead: &Token, fresh: Token) -> Token {
    if rules::on(Rule::R7) { fresh } else { dead.clone() }
}

/// When a lease ends for its holder, counted from the sending of a request.
pub(crate) fn deadline_from(sent: Moment, ttl: Duration) -> Moment {
    sent + ttl.saturating_sub(timing::margin(ttl))
}

/// The moment from which what a request was answered with counts.
pub(crate) fn counts_from(evidence: Evidence, sent: Moment) -> Moment {
    match evidence {
        Evidence::Sent(moment) => moment,
        Evidence::ThisRequest | Evidence::LargerFence | Evidence::Unproven => sent,
    }
}

impl Claim {
    pub(crate) fn new() -> Self {
        Self { phase: Phase::Asking }
    }

    /// A lease known to be held, from a handle.
    pub(crate) fn held(fence: Fence, deadline: Moment) -> Self {
        Self { phase: Phase::Held { fence, deadline } }
    }

    pub(crate) fn is_held(&self) -> bool {
        matches!(self.phase, Phase::Held { .. })
    }

    pub(crate) fn is_queued(&self) -> bool {
        matches!(self.phase, Phase::Queued { .. })
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.phase == Phase::Ended
    }

    /// As it is shown to people.
    pub(super) fn phase(&self) -> &'static str {
        match self.phase {
            Phase::Asking => "asking",
            Phase::Queued { .. } => "queued",
            Phase::Held { .. } => "held",
            Phase::Ended => "ended",
        }
    }

    /// The end of the present hold.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        match self.phase {
            Phase::Held { deadline, .. } => Some(deadline),
            Phase::Asking | Phase::Queued { .. } | Phase::Ended => None,
        }
    }

    /// The fence it was granted with, zero before that.
    pub(crate) fn fence(&self) -> Fence {
        match self.phase {
            Phase::Held { fence, .. } => fence,
            Phase::Asking | Phase::Queued { .. } | Phase::Ended => Fence::ZERO,
        }
    }

    /// An ask was answered with the lease.
    pub(crate) fn granted(&mut self, sent: Moment, grant: &Grant, now: Moment) -> Decision {
        let deadline = deadline_from(counts_from(grant.evidence, sent), grant.ttl);
        match self.phase {
            // R6: what was given back is not taken again, whatever is still under way.
            Phase::Ended if rules::on(Rule::R6) => Decision::GiveBack,
            Phase::Asking | Phase::Queued { .. } | Phase::Ended => {
                self.start(grant.fence(), deadline, grant.ttl, now)
            }
            Phase::Held { fence, deadline: old } if fence == grant.fence() => {
                self.extend(fence, old, deadline, now)
            }
            // Our lease ended unseen and a late ask of ours won a new one: a hold without continuity is no hold.
            Phase::Held { .. } => self.lose(LostReason::NotOurs),
        }
    }

    /// An ask was answered with a place in the queue.
    pub(crate) fn queued(&mut self, sent: Moment, last_fence: Fence) -> Decision {
        match self.phase {
            Phase::Queued { sent: newer, .. } if newer > sent => Decision::Nothing,
            Phase::Asking | Phase::Queued { .. } => {
                self.phase = Phase::Queued { sent, last_fence };
                Decision::Nothing
            }
            // An answer to an older ask never sends a holder back to waiting.
            Phase::Held { .. } => Decision::Nothing,
            // The ask overtook the release that was to undo it.
            Phase::Ended => Decision::GiveBack,
        }
    }

    /// The store pushed a grant.
    pub(crate) fn pushed(&mut self, grant: &Grant, now: Moment) -> Decision {
        match self.phase {
            Phase::Ended if rules::on(Rule::R6) => return Decision::GiveBack,
            Phase::Held { .. } => return Decision::Nothing,
            Phase::Asking | Phase::Queued { .. } | Phase::Ended => {}
        }
        let from = match grant.evidence {
            Evidence::Sent(moment) => Some(moment),
            Evidence::LargerFence | Evidence::ThisRequest => self.proven(grant.fence(), now),
            Evidence::Unproven => None,
        };
        match from {
            Some(sent) => {
                let deadline = deadline_from(sent, grant.ttl);
                self.start(grant.fence(), deadline, grant.ttl, now)
            }
            // R2: an ask without an answer proves nothing; asking again will (R4).
            None => Decision::Ask,
        }
    }

    /// The sending of an ask that surely ran before the grant with this fence was made (R1).
    fn proven(&self, fence: Fence, now: Moment) -> Option<Moment> {
        match self.phase {
            Phase::Queued { sent, last_fence } => {
                (fence > last_fence || !rules::on(Rule::R1)).then_some(sent)
            }
            Phase::Asking | Phase::Held { .. } | Phase::Ended => {
                (!rules::on(Rule::R2)).then_some(now)
            }
        }
    }

    /// A renewal was answered.
    pub(crate) fn renewed(&mut self, sent: Moment, renewal: &Renewal, now: Moment) -> Decision {
        let Phase::Held { fence, deadline: old } = self.phase else { return Decision::Nothing };
        let from = counts_from(renewal.evidence, sent);
        self.extend(fence, old, deadline_from(from, renewal.ttl), now)
    }

    /// The store says the token owns nothing, or never will.
    pub(crate) fn not_ours(&mut self, reason: LostReason, now: Moment) -> Decision {
        match self.phase {
            Phase::Held { deadline, .. } if now >= deadline => self.lose(LostReason::Expired),
            Phase::Held { .. } | Phase::Asking | Phase::Queued { .. } => self.lose(reason),
            Phase::Ended => Decision::Nothing,
        }
    }

    /// Time passed.
    pub(crate) fn tick(&mut self, now: Moment) -> Decision {
        match self.phase {
            Phase::Held { deadline, .. } if now >= deadline => self.lose(LostReason::Expired),
            _ => Decision::Nothing,
        }
    }

    /// A release is being sent, or nobody wants the lease any more: the token is dead from here on (R6).
    pub(crate) fn end(&mut self) {
        self.phase = Phase::Ended;
    }

    fn start(&mut self, fence: Fence, deadline: Moment, ttl: Duration, now: Moment) -> Decision {
        // R3: a deadline too near to be useful is no start, and no reason to forget the grant either.
        if deadline.since(now) < ttl / USEFUL_SHARE {
            return if rules::on(Rule::R3) { Decision::Ask } else { Decision::Nothing };
        }
        self.phase = Phase::Held { fence, deadline };
        Decision::Start { deadline }
    }

    fn extend(&mut self, fence: Fence, old: Moment, new: Moment, now: Moment) -> Decision {
        // R5: whatever a late reply says, a lease past its deadline may meanwhile be somebody else's.
        if now >= old && rules::on(Rule::R5) {
            return self.lose(LostReason::Expired);
        }
        let deadline = old.max(new);
        self.phase = Phase::Held { fence, deadline };
        Decision::Extend { deadline }
    }

    fn lose(&mut self, reason: LostReason) -> Decision {
        self.phase = Phase::Ended;
        Decision::Lost(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Block;

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    fn grant(fence: u64, evidence: Evidence) -> Grant {
        Grant {
            blocks: smallvec::smallvec![Block { first: Fence::new(fence), len: 1 }],
            slot: None,
            ttl: Duration::from_secs(1),
            evidence,
            waiters: 0,
        }
    }

    fn queued_behind(last_fence: u64) -> Claim {
        let mut claim = Claim::new();
        claim.queued(at(100), Fence::new(last_fence));
        claim
    }

    /// One second less 1 % and 2 ms.
    const VALID_MS: u64 = 988;

    #[test]
    fn a_deadline_counts_from_the_sending() {
        let mut claim = Claim::new();
        let decision = claim.granted(at(100), &grant(1, Evidence::ThisRequest), at(500));
        assert_eq!(decision, Decision::Start { deadline: at(100 + VALID_MS) });
    }

    #[test]
    fn a_push_counts_from_the_ask_it_is_newer_than() {
        let mut claim = Claim::new();
        claim.queued(at(100), Fence::new(7));
        let decision = claim.pushed(&grant(8, Evidence::LargerFence), at(300));
        assert_eq!(decision, Decision::Start { deadline: at(100 + VALID_MS) });
    }

    #[test]
    fn an_old_push_is_no_start() {
        let mut claim = Claim::new();
        claim.queued(at(100), Fence::new(8));
        assert_eq!(claim.pushed(&grant(8, Evidence::LargerFence), at(300)), Decision::Ask);
    }

    #[test]
    fn a_push_counts_from_what_the_store_itself_sent() {
        for mut claim in [Claim::new(), queued_behind(7)] {
            let decision = claim.pushed(&grant(8, Evidence::Sent(at(250))), at(300));
            assert_eq!(decision, Decision::Start { deadline: at(250 + VALID_MS) });
        }
    }

    #[test]
    fn an_unproven_push_asks_and_the_ask_starts() {
        for mut claim in [Claim::new(), queued_behind(7)] {
            assert_eq!(claim.pushed(&grant(8, Evidence::Unproven), at(300)), Decision::Ask);
            let decision = claim.granted(at(301), &grant(8, Evidence::ThisRequest), at(302));
            assert_eq!(decision, Decision::Start { deadline: at(301 + VALID_MS) });
        }
    }

    #[test]
    fn a_push_before_any_answer_is_no_start() {
        assert_eq!(Claim::new().pushed(&grant(8, Evidence::LargerFence), at(300)), Decision::Ask);
    }

    #[test]
    fn a_push_too_late_to_be_useful_asks() {
        let mut claim = Claim::new();
        claim.queued(at(100), Fence::new(7));
        assert_eq!(claim.pushed(&grant(8, Evidence::LargerFence), at(1_050)), Decision::Ask);
    }

    #[test]
    fn answers_out_of_order_keep_the_latest_sent_proof() {
        let mut claim = Claim::new();
        claim.queued(at(200), Fence::new(9));
        claim.queued(at(100), Fence::new(7));
        assert_eq!(claim.pushed(&grant(8, Evidence::LargerFence), at(300)), Decision::Ask);
    }

    #[test]
    fn an_ended_token_gives_back_what_still_arrives() {
        let mut claim = Claim::new();
        claim.queued(at(100), Fence::new(7));
        claim.end();
        assert_eq!(claim.pushed(&grant(8, Evidence::LargerFence), at(300)), Decision::GiveBack);
        assert_eq!(
            claim.granted(at(200), &grant(8, Evidence::ThisRequest), at(300)),
            Decision::GiveBack
        );
    }

    #[test]
    fn a_late_renewal_revives_nothing() {
        let mut claim = Claim::held(Fence::new(1), at(1_000));
        let renewal = Renewal {
            ttl: Duration::from_secs(1),
            evidence: Evidence::ThisRequest,
            waiters: 0,
            block: None,
        };
        assert_eq!(
            claim.renewed(at(900), &renewal, at(1_000)),
            Decision::Lost(LostReason::Expired)
        );
        assert!(claim.is_ended());
    }

    #[test]
    fn a_renewal_never_shortens() {
        let mut claim = Claim::held(Fence::new(1), at(5_000));
        let renewal = Renewal {
            ttl: Duration::from_secs(1),
            evidence: Evidence::ThisRequest,
            waiters: 0,
            block: None,
        };
        assert_eq!(
            claim.renewed(at(900), &renewal, at(1_000)),
            Decision::Extend { deadline: at(5_000) }
        );
    }
}
