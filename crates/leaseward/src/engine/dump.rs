//! What an engine has and waits for, as text: for logs and bug reports of somebody who waits for too long.

use std::{fmt, time::Duration};

use super::{
    Engine,
    bid::{Bid, BidState},
    keeper::Kept,
};
use crate::clock::Moment;

/// Bids that are shown; of a hundred thousand leases nobody reads more.
const SHOWN: usize = 64;

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bids = self.table.all();
        let now = self.clock.now();
        let shown: Vec<_> = bids.iter().take(SHOWN).map(|bid| Shown { bid, now }).collect();
        f.debug_struct("Engine")
            .field("who", &self.who)
            .field("store", &self.store)
            .field("breaker", &*self.breaker.lock())
            .field("asks", &self.asks)
            .field("renewals", &self.renewals)
            .field("bids", &shown)
            .field("more_bids", &bids.len().saturating_sub(SHOWN))
            .finish_non_exhaustive()
    }
}

/// A bid as it is shown: no secret, and times from now on.
struct Shown<'a> {
    bid: &'a Bid,
    now: Moment,
}

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Bid");
        shown.field("name", &self.bid.name).field("token", &self.bid.token.prefix());
        // Whoever has it at this moment may be the one who prints it.
        let Some(state) = self.bid.state.try_lock() else { return shown.finish_non_exhaustive() };
        self.state(&mut shown, &state);
        shown.finish()
    }
}

impl Shown<'_> {
    fn state(&self, shown: &mut fmt::DebugStruct<'_, '_>, state: &BidState) {
        let kept_for = match state.kept {
            Kept::Nowhere => None,
            Kept::Queue(at) => Some(self.left(at)),
        };
        shown
            .field("phase", &state.claim.phase())
            .field("ends_in", &state.claim.deadline().map(|at| self.left(at)))
            .field("seat", &state.seat)
            .field("waiters", &state.waiting())
            .field("has_caller", &state.has_caller)
            .field("is_in_flight", &state.is_in_flight)
            .field("ask_again", &state.ask_again)
            .field("failures", &state.failures)
            .field("last_sent_ago", &self.now.since(state.last_sent))
            .field("due_in", &(state.due != Moment::NEVER).then(|| self.left(state.due)))
            .field("kept_for", &kept_for)
            .field("standing", &state.crowd.as_ref().and_then(|crowd| crowd.standing.as_ref()));
    }

    /// Zero for what is past.
    fn left(&self, at: Moment) -> Duration {
        at.since(self.now)
    }
}
