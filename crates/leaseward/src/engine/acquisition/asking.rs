//! Asking, and waiting in the store's queue.

use std::time::Duration;

use super::{
    Acquisition, Action, At, Caller, News, Obstacle, Outcome, Phase, Report, Send, Unanswered,
    cohort, evidence,
};
use crate::{
    Error, ErrorKind, Fence,
    clock::Moment,
    store::{self, Answer, Evidence, Grant, IfBusy, Reply, Standing, timing},
};

/// Asks of one token that may go unanswered in a row before its callers are told, unless they stand in line.
const FAILURES_MAX: u8 = 5;
/// Between such asks.
const AGAIN: Duration = Duration::from_millis(20);
/// At most this long.
const AGAIN_MAX: Duration = Duration::from_millis(500);
/// After a lease's end, before asking whether it has ended: clocks are compared in milliseconds in some stores.
const FREE_SLACK: Duration = Duration::from_millis(1);

/// Neither the lease nor a place so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asking {
    /// The store has answered an ask for these callers, with this token or one before it.
    pub(super) in_line: bool,
    /// An ask of this token has been sent.
    pub(super) was_sent: bool,
}

/// A place in the store's queue, by the latest ask that was answered with it (R1).
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) sent: Moment,
    pub(super) last_fence: Fence,
}

impl<C: Caller> Acquisition<C> {
    pub(super) fn join(&mut self, caller: C, at: &mut At<'_, C>) {
        self.callers.push_back(caller);
        if let Phase::Held(held) = &mut self.phase {
            held.renew_within_turn(at);
        }
    }

    /// A caller stops waiting. The last one to go takes the token with it.
    pub(super) fn leave(&mut self, id: super::CallerId, at: &mut At<'_, C>) {
        let found = self.callers.iter().position(|caller| caller.id() == id);
        if let Some(caller) = found.and_then(|found| self.callers.remove(found)) {
            at.act(Action::LetGo(caller));
        }
        if self.callers.is_empty() && matches!(self.phase, Phase::Asking(_) | Phase::Queued(_)) {
            self.give_back(None, Duration::ZERO, at);
        }
    }

    /// Asks with this token: the first time, to keep the place, or because something changed.
    pub(super) fn ask(&mut self, at: &mut At<'_, C>) {
        debug_assert!(self.unanswered.is_none(), "BUG: one ask of a token at a time");
        let reserves = at.setting.blocks && self.is_open(at.spec, at.setting);
        let block = if reserves { cohort::block_for(self.callers.len()) } else { 1 };
        self.unanswered = Some(Unanswered::Ask(None));
        at.act(Action::Send(Send::Ask { block }));
        at.act(Action::WakeAt(Moment::NEVER));
    }

    /// Asks again after a pause that grows with the failures.
    pub(super) fn pause(&mut self, at: &mut At<'_, C>) {
        let pause = at.jitter(AGAIN, AGAIN_MAX, self.failures);
        at.act(Action::WakeAt(at.now + pause));
    }

    pub(super) fn ask_answered(
        &mut self,
        sent: Moment,
        answer: Answer,
        news: Option<News>,
        at: &mut At<'_, C>,
    ) {
        if let Phase::Asking(asking) = &mut self.phase {
            asking.was_sent = true;
            asking.in_line |= answer.is_ok();
        }
        match answer {
            Ok(Reply::Granted(grant)) => {
                let sent = evidence::counts_from(grant.evidence, sent);
                self.granted(&grant, sent, at);
            }
            Ok(Reply::Queued(place)) => self.queued(sent, place, news, at),
            Ok(Reply::Busy(standing)) => self.busy(standing, news, at),
            Ok(Reply::Gone(reason)) => self.lost(reason, at),
            Ok(Reply::Renewed(_) | Reply::Released | Reply::NotYours(_)) => {
                unreachable!("BUG: the store answered an ask with something else")
            }
            Err(error) => self.ask_failed(error, at),
        }
    }

    /// The lease was given, counted from the sending of a request that surely ran before.
    fn granted(&mut self, grant: &Grant, sent: Moment, at: &mut At<'_, C>) {
        self.failures = 0;
        let deadline = evidence::deadline_from(sent, grant.ttl);
        if evidence::is_useful(deadline, grant.ttl, at.now) {
            self.begin(grant, sent, deadline, at);
        } else if evidence::asks_if_late() {
            // R3: too late to be of use, and no reason to forget the grant either.
            self.hear(News::LookAgain, at);
        } else {
            at.act(Action::WakeAt(at.now + timing::place_ttl(at.spec.ttl()) / 3));
        }
    }

    fn queued(
        &mut self,
        sent: Moment,
        place: store::Place,
        news: Option<News>,
        at: &mut At<'_, C>,
    ) {
        self.failures = 0;
        let mine = Place { sent, last_fence: place.last_fence };
        self.phase = Phase::Queued(mine);
        if let Some(News::Pushed(grant)) = &news
            && mine.proves(grant.fence())
        {
            return self.granted(grant, sent, at);
        }
        at.act(Action::NotFree);
        // Pushed wake-up is the rule; these are the nets: keep the place, and look when the lease before us ends.
        let refresh = sent + timing::place_ttl(at.spec.ttl()) / 3;
        let free = place.standing.free_in.map_or(Moment::NEVER, |left| at.now + left + FREE_SLACK);
        self.obstacle = Some(Box::new(Obstacle::Standing(place.standing)));
        match news {
            Some(_) => self.ask(at),
            None => at.act(Action::WakeAt(refresh.min(free))),
        }
    }

    fn busy(&mut self, standing: Standing, news: Option<News>, at: &mut At<'_, C>) {
        if at.spec.if_busy == IfBusy::Tell {
            if let Some(caller) = self.callers.pop_front() {
                at.act(Action::Tell(caller, Outcome::Busy(standing)));
            }
            return self.end(at);
        }
        at.act(Action::NotFree);
        let free_in = standing.free_in;
        self.obstacle = Some(Box::new(Obstacle::Standing(standing)));
        if news.is_some() {
            return self.ask(at);
        }
        let pause = at.jitter(AGAIN, AGAIN_MAX, self.failures);
        // Not so many that the first answer that is lost is not asked for again.
        self.failures = (self.failures + 1).min(FAILURES_MAX - 1);
        at.act(Action::WakeAt(at.now + free_in.map_or(pause, |left| left.min(pause))));
    }

    fn ask_failed(&mut self, error: Error, at: &mut At<'_, C>) {
        self.failures = self.failures.saturating_add(1);
        // What stands in line outlasts an outage of any length: it ends when its callers have waited for long enough.
        let rides_out = at.spec.if_busy == IfBusy::Queue
            && (self.in_line() || self.callers.iter().any(|caller| caller.spec().rides_out()));
        let is_worth_asking = match error.kind() {
            // Nothing happened: a caller that has just come is told at once.
            ErrorKind::Unavailable => rides_out,
            // It may have happened: the same token must ask again, or leave.
            ErrorKind::Indeterminate => rides_out || self.failures < FAILURES_MAX,
            _ => false,
        };
        if is_worth_asking {
            at.act(Action::Report(Report::Retried));
            self.obstacle = Some(Box::new(Obstacle::Away(error)));
            // Whatever was pushed meanwhile: a store that fails at once would be asked without end. If the lease is ours, the
            // next ask is granted it again.
            self.pause(at);
            return;
        }
        for caller in std::mem::take(&mut self.callers) {
            at.act(Action::Tell(caller, Outcome::Failed(error.duplicate())));
        }
        self.give_back(None, Duration::ZERO, at);
    }

    /// The store pushed a grant. No order between a push and an answer is promised.
    pub(super) fn pushed(&mut self, grant: Grant, at: &mut At<'_, C>) {
        let from = match (&self.phase, grant.evidence) {
            (Phase::Asking(_) | Phase::Queued(_), Evidence::Sent(moment)) => Some(moment),
            (Phase::Queued(place), Evidence::LargerFence | Evidence::ThisRequest)
                if place.proves(grant.fence()) =>
            {
                Some(place.sent)
            }
            (Phase::Asking(_), Evidence::LargerFence | Evidence::ThisRequest)
                if evidence::is_proven_unanswered() =>
            {
                Some(at.now)
            }
            (Phase::Asking(_) | Phase::Queued(_), _) => None,
            // Nothing new, or dropped: what is being released is released with it.
            (Phase::Held(_) | Phase::Releasing(_) | Phase::Detached { .. } | Phase::Ended, _) => {
                return;
            }
        };
        if let Some(sent) = from {
            return self.granted(&grant, sent, at);
        }
        let is_kept =
            grant.evidence != Evidence::Unproven && matches!(self.phase, Phase::Asking(_));
        self.hear(if is_kept { News::Pushed(Box::new(grant)) } else { News::LookAgain }, at);
    }

    pub(super) fn look_again(&mut self, at: &mut At<'_, C>) {
        if matches!(self.phase, Phase::Asking(_) | Phase::Queued(_)) {
            // A caller that comes too late this time tries again soon.
            self.failures = 0;
            self.hear(News::LookAgain, at);
        }
    }

    /// Asks at once, or as soon as the ask under way is answered.
    fn hear(&mut self, news: News, at: &mut At<'_, C>) {
        if self.unanswered.is_none() {
            self.ask(at);
            if matches!(news, News::LookAgain) {
                return;
            }
        }
        if let Some(Unanswered::Ask(kept)) = &mut self.unanswered {
            let is_newer = match (&news, &*kept) {
                (_, None) => true,
                (News::LookAgain, Some(_)) => false,
                (News::Pushed(_), Some(News::LookAgain)) => true,
                (News::Pushed(new), Some(News::Pushed(old))) => new.fence() > old.fence(),
            };
            if is_newer {
                *kept = Some(news);
            }
        }
    }
}

impl Place {
    /// Whether a grant with this fence was surely made after the ask that this place answers (R1).
    fn proves(self, fence: Fence) -> bool {
        evidence::is_proven(fence, self.last_fence)
    }
}
