//! What follows from a decision: a lease begins, is passed on, is lost; a token ends.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use parking_lot::MutexGuard;
use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::{
    Engine,
    answers::{ASK_AGAIN, ASK_AGAIN_MAX},
    bid::{Bid, BidState, Outcome, Seat, Told, Waiter},
    claim::{self, Decision},
    cohort::{Cohort, HandOver},
    events::{Found, Origin},
    lane::{Job, Target, Which},
    shut_down,
    table::Shard,
};
use crate::{
    Guard, LostReason,
    clock::Moment,
    store::{Blocks, Grant, Operation, Waiting},
};

/// What is done once no lock is held any more.
#[derive(Default)]
pub(super) struct After {
    pub(super) tell: SmallVec<[(oneshot::Sender<Told>, Told); 1]>,
    pub(super) asks: Vec<Job>,
    pub(super) renewals: Vec<Job>,
    /// Leases to be renewed.
    pub(super) due: Vec<Arc<Bid>>,
    pub(super) found: Vec<Found>,
}

impl After {
    pub(super) fn run(self, engine: &Arc<Engine>) {
        for found in &self.found {
            engine.events.tell_found(found);
        }
        for (to, told) in self.tell {
            // A guard for somebody who has gone is dropped here, which gives the lease back.
            let _ = to.send(told);
        }
        if !self.asks.is_empty() {
            engine.post(Which::Asks, self.asks);
        }
        if !self.renewals.is_empty() {
            engine.post(Which::Renewals, self.renewals);
        }
        if !self.due.is_empty() && engine.lane(Which::Renewals).push_due(self.due) {
            engine.spawn_pump(Which::Renewals, None);
        }
    }
}

impl Engine {
    /// Does what a decision says.
    pub(super) fn follow(
        self: &Arc<Self>,
        shard: &mut Shard<'_>,
        bid: &Arc<Bid>,
        decision: Decision,
        grant: Option<&Grant>,
        now: Moment,
        after: &mut After,
    ) {
        match decision {
            Decision::Nothing => {}
            Decision::Start { deadline } => {
                let grant = grant.expect("BUG: only a grant starts a lease");
                self.begin(shard, bid, grant, deadline, now, after);
            }
            Decision::Extend { deadline } => bid.set_deadline(deadline),
            Decision::Ask => {
                let mut state = bid.state.lock();
                if state.is_in_flight {
                    state.ask_again = true;
                } else {
                    state.is_in_flight = true;
                    after.asks.push(self.ask_again(bid, &state));
                }
            }
            Decision::Lost(reason) => self.lost(shard, bid, reason, after),
            Decision::GiveBack => {
                after.asks.push(self.give_back_late(bid.name.clone(), bid.token.clone()));
            }
        }
    }

    /// Gives back what arrived for a token after its end.
    pub(super) fn give_back_late(&self, name: crate::Name, token: crate::Token) -> Job {
        self.ghosts.note(&token);
        release_job(name, token, Duration::ZERO)
    }

    /// The lease is ours: the first waiter has it.
    fn begin(
        self: &Arc<Self>,
        shard: &mut Shard<'_>,
        bid: &Arc<Bid>,
        grant: &Grant,
        deadline: Moment,
        now: Moment,
        after: &mut After,
    ) {
        let mut state = bid.state.lock();
        let Some(waiter) = state.next_waiter() else {
            drop(state);
            after.asks.push(self.discard(shard, bid));
            return;
        };
        if bid.spec.mode() == crate::Mode::Exclusive && !waiter.spec.can_inherit(&bid.spec) {
            // It joined one who has gone, and asked for something else.
            state.crowd().waiters.push_front(waiter);
            drop(state);
            return self.give_up_lease(shard, bid, Duration::ZERO, after);
        }
        self.open_lease(bid, &mut state, grant, deadline, now);
        // An ask that is still under way keeps no renewal from being sent.
        state.is_in_flight = false;
        let guard = self.seat(bid, &mut state, waiter.owner, waiter.origin, now);
        after.tell.push((waiter.tell, Outcome::Granted(guard).into()));
        // Most leases never have a second waiter.
        state.shrink();
        if grant.ttl < bid.spec.ttl() {
            self.lift(bid, &mut state, after);
        }
        after.renewals.extend(self.reserve_ahead(bid, &mut state));
        self.keep(bid, &mut state, now);
    }

    /// Writes down what a grant gave.
    pub(super) fn open_lease(
        &self,
        bid: &Bid,
        state: &mut BidState,
        grant: &Grant,
        deadline: Moment,
        now: Moment,
    ) {
        bid.set_deadline(deadline);
        state.failures = 0;
        state.is_open = self.cohorts && bid.spec.mode() == crate::Mode::Exclusive;
        let block = grant.blocks[0];
        if block.len > 1 || grant.waiters > 0 || grant.slot.is_some() {
            let crowd = state.crowd();
            crowd.cohort = Some(Cohort::new(block, grant.waiters, now));
            crowd.slot = grant.slot;
        }
        if let Some(crowd) = &mut state.crowd {
            (crowd.standing, crowd.trouble) = (None, None);
        }
    }

    /// Has the keeper mind a lease that has just begun.
    pub(super) fn keep(&self, bid: &Arc<Bid>, state: &mut BidState, now: Moment) {
        let due = self.next_due(bid, state, now);
        if state.is_short {
            // So soon that going through the table for it would be the greater effort.
            return self.keeper.schedule(bid, state, due);
        }
        self.keeper.adopt(bid, state, due, now);
    }

    /// Sees to it that a lease that was handed over for a short time is lifted to its full TTL: by its first renewal.
    /// That comes soon, not at once, because most leases are given back before it and would pay for it in vain.
    fn lift(&self, bid: &Arc<Bid>, state: &mut BidState, after: &mut After) {
        if bid.spec.renew_ms > 0 && bid.spec.max_hold().is_zero() {
            state.is_short = true;
        } else {
            // The only renewal it gets.
            state.is_in_flight = true;
            after.due.push(bid.clone());
        }
    }

    /// Makes somebody the holder, with the cohort's present fence.
    pub(super) fn seat(
        self: &Arc<Self>,
        bid: &Arc<Bid>,
        state: &mut BidState,
        owner: Option<crate::OwnerId>,
        origin: Option<Box<Origin>>,
        now: Moment,
    ) -> Guard {
        state.seat = Seat::Taken;
        state.owner = owner;
        state.origin = origin;
        state.since = now;
        Guard::new(self.clone(), bid.clone(), state.fence())
    }

    /// A reservation came back while nobody here held the lease: now it can be passed on, or must be given back.
    pub(super) fn pass_if_waiting(
        self: &Arc<Self>,
        shard: &mut Shard<'_>,
        bid: &Arc<Bid>,
        now: Moment,
        after: &mut After,
    ) {
        let mut state = bid.state.lock();
        if state.seat != Seat::Passing || !state.claim.is_held() {
            return;
        }
        let deadline = state.claim.deadline().unwrap_or(now);
        let hand_over = state.cohort().hand_over(now, deadline, false);
        match (hand_over, state.next_waiter()) {
            (HandOver::Pass, Some(waiter)) if waiter.spec.can_inherit(&bid.spec) => {
                let guard = self.seat(bid, &mut state, waiter.owner, waiter.origin, now);
                after.tell.push((waiter.tell, Outcome::Granted(guard).into()));
                after.renewals.extend(self.reserve_ahead(bid, &mut state));
            }
            (_, waiter) => {
                if let Some(waiter) = waiter {
                    state.crowd().waiters.push_front(waiter);
                }
                drop(state);
                self.give_up_lease(shard, bid, Duration::ZERO, after);
            }
        }
    }

    /// Whether renewals may reserve fences here.
    pub(super) fn reserves(&self) -> bool {
        self.store.capability().blocks == Blocks::AtGrantAndRenewal
    }

    /// A lease ended against our will.
    pub(super) fn lose(self: &Arc<Self>, bid: &Arc<Bid>, reason: LostReason) {
        let mut after = After::default();
        let mut shard = self.table.lock(&bid.name);
        if bid.state.lock().claim.is_ended() {
            return;
        }
        bid.state.lock().claim.end();
        self.lost(&mut shard, bid, reason, &mut after);
        drop(shard);
        after.run(self);
    }

    /// Tells the holder, gives its waiters a new token, and makes sure the store knows too.
    pub(super) fn lost(
        self: &Arc<Self>,
        shard: &mut Shard<'_>,
        bid: &Arc<Bid>,
        reason: LostReason,
        after: &mut After,
    ) {
        bid.end(reason);
        let mut state = bid.state.lock();
        let waiters = state.take_waiters();
        self.order.released(state.owner.as_ref(), &bid.name);
        if state.seat == Seat::Taken {
            after.found.extend(self.events.lost(bid, &state, reason, self.clock.now()));
        }
        self.bury(shard, bid, state);
        // Harmless if it is gone; if only our deadline has passed, the next one need not wait out the margin.
        after.asks.push(release_job(bid.name.clone(), bid.token.clone(), Duration::ZERO));
        if reason == LostReason::ShutDown {
            return;
        }
        self.bid_again(shard, bid, waiters, after);
    }

    /// Waiters whose token is dead ask with a new one (R7).
    pub(super) fn bid_again(
        self: &Arc<Self>,
        shard: &mut Shard<'_>,
        old: &Arc<Bid>,
        mut waiters: VecDeque<Waiter>,
        after: &mut After,
    ) {
        waiters.retain(|waiter| !waiter.tell.is_closed());
        if waiters.is_empty() {
            return;
        }
        if self.check_open().is_err() {
            let closed = |waiter: Waiter| (waiter.tell, Outcome::Failed(shut_down()).into());
            return after.tell.extend(waiters.into_iter().map(closed));
        }
        let token = claim::token_after(&old.token, self.new_token());
        let (bid, job) = self.new_bid(old.name.clone(), token, waiters);
        // They have stood in line, if only behind a lease of this process.
        let was_held = old.deadline() > Moment::from_nanos(0);
        let was_answered = old.state.lock().crowd.as_ref().is_some_and(|crowd| crowd.was_answered);
        bid.state.lock().crowd().was_answered = was_held || was_answered;
        shard.insert(bid.clone());
        if self.store.capability().waiting != Waiting::AskAgain {
            return after.asks.push(job);
        }
        // Without a queue whoever asks first has it, and that would always be this process: others are given a moment.
        let mut state = bid.state.lock();
        state.is_in_flight = false;
        let due = self.clock.now() + self.jitter(ASK_AGAIN, ASK_AGAIN_MAX, 0);
        self.keeper.schedule(&bid, &mut state, due);
    }

    /// Kills a token nobody wants and answers with the release that tells the store (R6).
    pub(super) fn discard(&self, shard: &mut Shard<'_>, bid: &Arc<Bid>) -> Job {
        let mut state = bid.state.lock();
        state.claim.end();
        self.bury(shard, bid, state);
        release_job(bid.name.clone(), bid.token.clone(), Duration::ZERO)
    }

    /// Takes an ended bid out of the books.
    pub(super) fn bury(
        &self,
        shard: &mut Shard<'_>,
        bid: &Arc<Bid>,
        mut state: MutexGuard<'_, BidState>,
    ) {
        debug_assert!(state.claim.is_ended(), "BUG: buried alive");
        // What the keeper's queue has of it goes when its time comes.
        state.due = Moment::NEVER;
        drop(state);
        shard.remove(bid);
        self.live.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A release nobody waits for.
pub(super) fn release_job(name: crate::Name, token: crate::Token, keep: Duration) -> Job {
    let release = crate::store::Release { name, token, keep };
    let target = Target::Forget(Box::new(release.clone()));
    Job { operation: Operation::Release(release), target }
}
