//! What is done when a bid's time has come: renew, keep its place, warn, declare it lost.

use std::{sync::Arc, time::Duration};

use super::{
    Engine,
    bid::{Bid, BidState},
    claim::Decision,
    follow::After,
    keeper::{self, Due, Kept},
    lane::Job,
};
use crate::{clock::Moment, guard::Danger};

/// A cohort with local waiters asks at least this often whether another process waits.
const TURN: Duration = Duration::from_secs(1);

/// A lease that was handed over for a short time is renewed after this long: longer than most are held, short beside the
/// time it has.
const LIFT: Duration = Duration::from_millis(100);

/// Failed renewals are tried again after this share of the renewal interval.
const RETRY_SHARE: u32 = 8;

/// The callback for failing renewals comes when this share of the TTL is left.
const DANGER_SHARE: u32 = 4;

impl Engine {
    /// The leases that have outlived their beginning and do not stand in the queue yet. The others are most likely given
    /// back before anything is due, and would stand there until then: they are gone through again when half the time of
    /// the first of them is over, a quarter of it from now at the soonest.
    pub(super) fn grown(&self, now: Moment) -> Vec<Arc<Bid>> {
        let mut again = Moment::NEVER;
        let grown = self.table.select(|bid| {
            let state = bid.state.lock();
            if !state.claim.is_held() || state.kept != Kept::Nowhere {
                return false;
            }
            let interval = state.due.since(state.last_sent);
            let is_grown = now >= state.last_sent + interval / 4;
            if !is_grown {
                again = again.min(state.last_sent + interval / 2);
            }
            is_grown
        });
        self.keeper.sweep_by(again);
        grown
    }

    /// Puts such a lease into the queue, if it is still held.
    pub(super) fn put_in_queue(&self, bid: &Arc<Bid>) {
        let _shard = self.table.lock(&bid.name);
        let mut state = bid.state.lock();
        if state.claim.is_held() && state.kept == Kept::Nowhere {
            let due = state.due;
            self.keeper.schedule(bid, &mut state, due);
        }
    }

    /// Looks after the bids whose time has come.
    pub(super) fn attend(self: &Arc<Self>, due: &[Due]) {
        if let Some(lead) = self.store.fence_lead() {
            self.events.fence_lead(lead);
        }
        let now = self.clock.now();
        let mut after = After::default();
        for Due(at, bid) in due {
            self.attend_to(bid, *at, now, &mut after);
        }
        after.run(self);
    }

    fn attend_to(self: &Arc<Self>, bid: &Arc<Bid>, at: Moment, now: Moment, after: &mut After) {
        let mut shard = self.table.lock(&bid.name);
        let mut state = bid.state.lock();
        if state.claim.is_ended() || state.kept != Kept::Queue(at) {
            return;
        }
        state.kept = Kept::Nowhere;
        if state.due > now {
            let due = state.due;
            return self.keeper.schedule(bid, &mut state, due);
        }
        if let Decision::Lost(reason) = state.claim.tick(now) {
            drop(state);
            self.lost(&mut shard, bid, reason, after);
            return;
        }
        if state.claim.is_held() {
            self.warn_of_danger(bid, &mut state, now);
            if self.renewal_is_due(bid, &state, now) {
                state.is_in_flight = true;
                after.due.push(bid.clone());
                state.last_sent = now;
            }
            let due = self.next_due(bid, &state, now);
            self.keeper.schedule(bid, &mut state, due);
            return;
        }
        if state.still_waiting() == 0 {
            drop(state);
            after.asks.push(self.discard(&mut shard, bid));
        } else if !state.is_in_flight {
            state.is_in_flight = true;
            after.asks.push(self.ask_again(bid, &state));
        }
    }

    fn warn_of_danger(&self, bid: &Arc<Bid>, state: &mut BidState, now: Moment) {
        let left = bid.deadline().since(now);
        if state.failures == 0 || state.danger_told || left > bid.spec.ttl() / DANGER_SHARE {
            return;
        }
        state.danger_told = true;
        let callback = bid.spec.extras.as_ref().and_then(|extras| extras.on_danger.clone());
        if let Some(callback) = callback {
            let danger = Danger { name: bid.name.clone(), remaining: left };
            // User code: never under our locks.
            self.runtime.spawn(async move { callback(danger) });
        }
    }

    fn renewal_is_due(&self, bid: &Bid, state: &BidState, now: Moment) -> bool {
        if state.is_in_flight || !self.may_renew(bid, state, now) {
            return false;
        }
        now >= self.next_renewal(bid, state)
    }

    fn may_renew(&self, bid: &Bid, state: &BidState, now: Moment) -> bool {
        let max_hold = bid.spec.max_hold();
        bid.spec.renew_ms > 0 && (max_hold.is_zero() || now.since(state.since) < max_hold)
    }

    fn next_renewal(&self, bid: &Bid, state: &BidState) -> Moment {
        let interval = Duration::from_millis(bid.spec.renew_ms.into());
        if state.failures > 0 {
            return state.last_sent + interval / RETRY_SHARE;
        }
        let renewal = if state.waiting() > 0 {
            state.last_sent + interval.min(TURN)
        } else {
            keeper::on_grid(state.last_sent + interval, interval)
        };
        if state.is_short {
            renewal.min(keeper::on_grid(state.since + LIFT, TURN))
        } else {
            renewal
        }
    }

    /// When a held lease needs looking at next.
    pub(super) fn next_due(&self, bid: &Bid, state: &BidState, now: Moment) -> Moment {
        let deadline = state.claim.deadline().unwrap_or(Moment::NEVER);
        let renewal = if !self.may_renew(bid, state, now) {
            Moment::NEVER
        } else if state.is_in_flight {
            now + Duration::from_millis(bid.spec.renew_ms.into()) / 2
        } else {
            self.next_renewal(bid, state).max(now)
        };
        let danger = if state.failures > 0 && !state.danger_told {
            deadline.before(bid.spec.ttl() / DANGER_SHARE).max(now)
        } else {
            Moment::NEVER
        };
        deadline.min(renewal).min(danger)
    }

    /// A waiter joined a held lease: another process may be waiting too, so the store is heard at least once a turn.
    pub(super) fn renew_within_turn(&self, bid: &Arc<Bid>, state: &mut BidState) {
        let by = state.last_sent + TURN;
        if state.claim.is_held() && bid.spec.renew_ms > 0 && state.due > by {
            self.keeper.schedule(bid, state, by);
        }
    }

    /// Reserves fences for local waiters before they are needed.
    pub(super) fn reserve_ahead(&self, bid: &Arc<Bid>, state: &mut BidState) -> Option<Job> {
        if !state.claim.is_held() || bid.spec.renew_ms == 0 {
            return None;
        }
        let waiters = state.waiting();
        if waiters == 0 {
            return None;
        }
        let block = state.cohort().reserve(waiters, self.reserves());
        (block > 0).then(|| Job::reserve(bid.clone(), block))
    }

    /// Asks at once for a bid that waits: something changed.
    pub(super) fn ask_now(self: &Arc<Self>, bid: &Arc<Bid>) {
        let mut after = After::default();
        let shard = self.table.lock(&bid.name);
        let mut state = bid.state.lock();
        if !state.claim.is_ended() && !state.claim.is_held() {
            // Whoever comes too late this time tries again soon.
            state.failures = 0;
            if state.is_in_flight {
                state.ask_again = true;
            } else {
                state.is_in_flight = true;
                after.asks.push(self.ask_again(bid, &state));
            }
        }
        drop(state);
        drop(shard);
        after.run(self);
    }
}
