//! What a token may believe about its lease, from what was sent, what came back and the time. Pure.
//!
//! Everything that makes two holders meet is a belief formed too easily: a deadline counted from a reply's arrival, an
//! old push taken for a new one, a lease revived after its end. The rules against that are here, each with its number in
//! `docs/protocols.md`.

use std::time::Duration;

use crate::{
    Fence, Token,
    clock::Moment,
    rules::{self, Rule},
    store::{Evidence, timing},
};

/// A lease needs at least this share of its time before it begins, or asking again is the better use of it (R3).
const USEFUL_SHARE: u32 = 8;

/// When a lease ends for its holder, counted from the sending of a request.
pub(crate) fn deadline_from(sent: Moment, ttl: Duration) -> Moment {
    sent + ttl.saturating_sub(timing::margin(ttl))
}

/// The moment from which the answer to a request counts.
pub(crate) fn counts_from(evidence: Evidence, sent: Moment) -> Moment {
    match evidence {
        Evidence::Sent(moment) => moment,
        Evidence::ThisRequest | Evidence::LargerFence | Evidence::Unproven => sent,
    }
}

/// Whether a pushed grant was made after the ask that was answered with this newest fence (R1).
pub(super) fn is_proven(pushed: Fence, last_fence: Fence) -> bool {
    pushed > last_fence || !rules::on(Rule::R1)
}

/// Whether a pushed grant gives a deadline before any ask was answered: never (R2).
pub(super) fn is_proven_unanswered() -> bool {
    !rules::on(Rule::R2)
}

/// Whether enough of the lease is left to begin it.
pub(super) fn is_useful(deadline: Moment, ttl: Duration, now: Moment) -> bool {
    deadline.since(now) >= ttl / USEFUL_SHARE
}

/// Whether a token asks again at once when its lease came too late to be useful (R3).
pub(super) fn asks_if_late() -> bool {
    rules::on(Rule::R3)
}

/// The end of a lease that was lengthened; `None` if it had ended before: whatever a late reply says, the name may
/// meanwhile belong to another holder (R5).
pub(super) fn extended(old: Moment, new: Moment, now: Moment) -> Option<Moment> {
    (now < old || !rules::on(Rule::R5)).then(|| old.max(new))
}

/// Whether a lease that its holder gives back is over: looked at before each local hand-over, by the deadline of the
/// lease and not by a fresh one (R11).
pub(super) fn is_over(deadline: Moment, now: Moment) -> bool {
    now >= deadline && rules::on(Rule::R11)
}

/// Whether a token is dead as soon as its release is sent (R6).
pub(super) fn dies_at_release() -> bool {
    rules::on(Rule::R6)
}

/// The token of an acquisition that follows one whose token is dead: never the same again (R7).
pub(crate) fn token_after(dead: &Token, fresh: Token) -> Token {
    if rules::on(Rule::R7) { fresh } else { dead.clone() }
}

/// Whether a release waits for the answer to its own token's ask (R17).
pub(super) fn waits_for_its_ask() -> bool {
    rules::on(Rule::R17)
}

/// Whether a token of which something was sent is released when its ask is withdrawn (R18).
pub(super) fn is_released_if_sent() -> bool {
    rules::on(Rule::R18)
}
