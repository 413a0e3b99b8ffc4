//! What stores say, and what follows from it.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use parking_lot::MutexGuard;
use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::{
    Engine,
    bid::{Bid, BidState, Outcome},
    claim::{self, Decision},
    cohort::{Cohort, HandOver},
    lane::{Job, Target, Which},
    table::Shard,
};
use crate::{
    Error, ErrorKind, Guard, LostReason,
    clock::Moment,
    store::{Answer, Blocks, Grant, IfBusy, Operation, Place, Push, Renewal, Reply, timing},
};

/// Asks of one token that may go unanswered in a row before its waiters are told.
const FAILURES_MAX: u8 = 5;
/// Between such asks.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// At most this long.
const ASK_AGAIN_MAX: Duration = Duration::from_millis(500);

/// What is done once no lock is held any more.
#[derive(Default)]
pub(super) struct After {
    pub(super) tell: SmallVec<[(oneshot::Sender<Outcome>, Outcome); 1]>,
    pub(super) asks: Vec<Job>,
    pub(super) renewals: Vec<Job>,
}

impl After {
    pub(super) fn run(self, engine: &Arc<Engine>) {
        for (to, outcome) in self.tell {
            // A guard for somebody who has gone is dropped here, which gives the lease back.
            let _ = to.send(outcome);
        }
        if !self.asks.is_empty() {
            engine.post(Which::Asks, self.asks);
        }
        if !self.renewals.is_empty() {
            engine.post(Which::Renewals, self.renewals);
        }
    }
}

impl Engine {
    /// Takes an answer to whoever it is for; `now` is when it came.
    pub(super) fn dispatch(
        self: &Arc<Self>,
        target: Target,
        sent: Moment,
        answer: Answer,
        now: Moment,
    ) {
        self.note_health(answer.as_ref().err());
        match target {
            Target::Ask(bid) => self.ask_answered(&bid, sent, answer, now),
            Target::Renew(bid) => self.renewal_answered(&bid, sent, &answer, now, false),
            Target::Reserve(bid) => self.renewal_answered(&bid, sent, &answer, now, true),
            Target::RenewAndTell(bid, tell) => {
                self.renewal_answered(&bid, sent, &answer, now, false);
                let _ = tell.send((sent, answer));
            }
            Target::Tell(tell, undo) => {
                if let Err((_, Ok(Reply::Granted(_)))) = tell.send((sent, answer))
                    && let Some(ask) = undo
                {
                    self.give_back(&ask);
                }
            }
            Target::Forget(release) => self.release_answered(*release, answer),
        }
    }

    pub(super) fn on_push(self: &Arc<Self>, push: Push) {
        match push {
            Push::Granted { name, token, grant } => {
                let mut after = After::default();
                let mut shard = self.table.lock(&name);
                match shard.find(&name, &token).cloned() {
                    Some(bid) => {
                        let now = self.clock.now();
                        let decision = bid.state.lock().claim.pushed(&grant, now);
                        self.follow(&mut shard, &bid, decision, Some(&grant), now, &mut after);
                    }
                    None => after.asks.push(release_job(name, token, Duration::ZERO)),
                }
                drop(shard);
                after.run(self);
            }
            Push::Woken { name } => {
                for bid in self.table.on(&name) {
                    self.ask_now(&bid);
                }
            }
            Push::SessionLost => {
                for bid in self.table.all() {
                    self.lose(&bid, LostReason::SessionEnded);
                }
            }
        }
    }

    pub(super) fn ask_answered(
        self: &Arc<Self>,
        bid: &Arc<Bid>,
        sent: Moment,
        answer: Answer,
        now: Moment,
    ) {
        let mut after = After::default();
        let mut shard = self.table.lock(&bid.name);
        {
            let mut state = bid.state.lock();
            state.is_in_flight = false;
            state.last_sent = state.last_sent.max(sent);
            if answer.is_ok() {
                state.failures = 0;
            }
        }
        match answer {
            Ok(Reply::Granted(grant)) => {
                let decision = bid.state.lock().claim.granted(sent, &grant, now);
                self.follow(&mut shard, bid, decision, Some(&grant), now, &mut after);
            }
            Ok(Reply::Queued(place)) => self.place_given(bid, sent, place, now, &mut after),
            Ok(Reply::Busy(standing)) if bid.spec.if_busy == IfBusy::Tell => {
                let mut state = bid.state.lock();
                // Whoever tried may have gone, and its token with it.
                if !state.claim.is_ended() {
                    if let Some(waiter) = state.next_waiter() {
                        after.tell.push((waiter.tell, Outcome::Busy(standing)));
                    }
                    state.claim.end();
                    self.bury(&mut shard, bid, state);
                }
            }
            Ok(Reply::Busy(standing)) => {
                let mut state = bid.state.lock();
                let pause = self.jitter(ASK_AGAIN, ASK_AGAIN_MAX, state.failures.into());
                let due = standing.free_in.map_or(pause, |left| left.min(pause));
                state.failures = state.failures.saturating_add(1);
                state.crowd().standing = Some(Box::new(standing));
                self.keeper.schedule(bid, &mut state, now + due);
            }
            Ok(Reply::Gone(reason)) => {
                let decision = bid.state.lock().claim.not_ours(reason, now);
                self.follow(&mut shard, bid, decision, None, now, &mut after);
            }
            Ok(Reply::Renewed(_) | Reply::Released | Reply::NotYours(_)) => {
                unreachable!("BUG: the store answered an ask with something else")
            }
            Err(error) => self.ask_failed(&mut shard, bid, &error, now, &mut after),
        }
        drop(shard);
        after.run(self);
    }

    fn place_given(
        &self,
        bid: &Arc<Bid>,
        sent: Moment,
        place: Place,
        now: Moment,
        after: &mut After,
    ) {
        let mut state = bid.state.lock();
        if state.claim.queued(sent, place.last_fence) == Decision::GiveBack {
            after.asks.push(release_job(bid.name.clone(), bid.token.clone(), Duration::ZERO));
            return;
        }
        if !state.claim.is_queued() {
            return;
        }
        if std::mem::take(&mut state.ask_again) {
            state.is_in_flight = true;
            after.asks.push(self.ask_again(bid, &state));
            return;
        }
        // Pushed wake-up is the rule; these are the nets: keep the place, and look when the lease before us ends.
        let refresh = sent + timing::place_ttl(bid.spec.ttl()) / 3;
        let free = place.standing.free_in.map_or(Moment::NEVER, |left| now + left + FREE_SLACK);
        state.crowd().standing = Some(Box::new(place.standing));
        self.keeper.schedule(bid, &mut state, refresh.min(free));
    }

    fn ask_failed(
        self: &Arc<Self>,
        shard: &mut Shard<'_>,
        bid: &Arc<Bid>,
        error: &Error,
        now: Moment,
        after: &mut After,
    ) {
        let mut state = bid.state.lock();
        if state.claim.is_held() {
            // A push came first: the lease is ours whatever became of this ask.
            return;
        }
        if state.claim.is_ended() {
            // Its release may have overtaken it: no ghost is left behind for a whole TTL.
            if error.kind() == ErrorKind::Indeterminate {
                after.asks.push(release_job(bid.name.clone(), bid.token.clone(), Duration::ZERO));
            }
            return;
        }
        state.failures = state.failures.saturating_add(1);
        let worth_asking = match error.kind() {
            // Nothing happened: tell at once, unless a place is at stake.
            ErrorKind::Unavailable => state.claim.is_queued(),
            // It may have happened: the same token must ask again, or leave.
            ErrorKind::Indeterminate => true,
            _ => false,
        };
        if worth_asking && state.failures < FAILURES_MAX {
            self.events.retried();
            let pause = self.jitter(ASK_AGAIN, ASK_AGAIN_MAX, state.failures.into());
            self.keeper.schedule(bid, &mut state, now + pause);
            return;
        }
        for waiter in state.take_waiters() {
            after.tell.push((waiter.tell, Outcome::Failed(error.duplicate())));
        }
        drop(state);
        after.asks.push(self.discard(shard, bid));
    }

    fn renewal_answered(
        self: &Arc<Self>,
        bid: &Arc<Bid>,
        sent: Moment,
        answer: &Answer,
        now: Moment,
        is_reservation: bool,
    ) {
        let mut after = After::default();
        let mut shard = self.table.lock(&bid.name);
        let mut state = bid.state.lock();
        if is_reservation {
            state.cohort().reserved();
        } else {
            state.is_in_flight = false;
        }
        if !state.claim.is_held() {
            return;
        }
        let decision = match answer {
            Ok(Reply::Renewed(renewal)) => {
                self.note_renewal(bid, &mut state, sent, renewal);
                state.claim.renewed(sent, renewal, now)
            }
            Ok(Reply::NotYours(reason)) => state.claim.not_ours(*reason, now),
            Ok(_) => unreachable!("BUG: the store answered a renewal with something else"),
            Err(error) => {
                state.failures = state.failures.saturating_add(1);
                self.events.renewal_failed(bid, &state, error);
                Decision::Nothing
            }
        };
        drop(state);
        self.follow(&mut shard, bid, decision, None, now, &mut after);
        self.pass_if_waiting(&mut shard, bid, now, &mut after);
        let mut state = bid.state.lock();
        if state.claim.is_held() {
            let due = self.next_due(bid, &state, now);
            self.keeper.schedule(bid, &mut state, due);
        }
        drop(state);
        drop(shard);
        after.run(self);
    }

    fn note_renewal(&self, bid: &Bid, state: &mut BidState, sent: Moment, renewal: &Renewal) {
        state.last_sent = state.last_sent.max(sent);
        state.failures = 0;
        state.danger_told = false;
        let has_cohort = state.crowd.as_ref().is_some_and(|crowd| crowd.cohort.is_some());
        if has_cohort || renewal.waiters > 0 {
            state.cohort().renewed(renewal.waiters, renewal.block);
        }
        self.events.renewed(bid);
    }

    /// Does what a decision says.
    fn follow(
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
                after.asks.push(release_job(bid.name.clone(), bid.token.clone(), Duration::ZERO));
            }
        }
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
        self.open_lease(bid, &mut state, grant, deadline, now);
        let guard = self.seat(bid, &mut state, waiter.owner, waiter.span, now);
        after.tell.push((waiter.tell, Outcome::Granted(guard)));
        // Most leases never have a second waiter.
        state.shrink();
        if grant.ttl < bid.spec.ttl() {
            // Handed over for a short time: the first renewal lifts it to its full TTL.
            state.is_in_flight = true;
            after.renewals.push(self.renewal(bid, bid.spec.ttl()));
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
            crowd.standing = None;
        }
    }

    /// Has the keeper mind a lease that has just begun.
    pub(super) fn keep(&self, bid: &Arc<Bid>, state: &mut BidState, now: Moment) {
        let due = self.next_due(bid, state, now);
        self.keeper.adopt(bid, state, due, now);
    }

    /// Makes somebody the holder, with the cohort's present fence.
    pub(super) fn seat(
        self: &Arc<Self>,
        bid: &Arc<Bid>,
        state: &mut BidState,
        owner: Option<crate::OwnerId>,
        span: Option<Box<tracing::Span>>,
        now: Moment,
    ) -> Guard {
        state.is_taken = true;
        state.is_passing = false;
        state.owner = owner;
        state.span = span;
        state.since = now;
        Guard::new(self.clone(), bid.clone(), state.fence())
    }

    /// A reservation came back while nobody here held the lease: now it can be passed on, or must be given back.
    fn pass_if_waiting(
        self: &Arc<Self>,
        shard: &mut Shard<'_>,
        bid: &Arc<Bid>,
        now: Moment,
        after: &mut After,
    ) {
        let mut state = bid.state.lock();
        if !state.is_passing || !state.claim.is_held() {
            return;
        }
        let deadline = state.claim.deadline().unwrap_or(now);
        let hand_over = state.cohort().hand_over(now, deadline, false);
        match (hand_over, state.next_waiter()) {
            (HandOver::Pass, Some(waiter)) => {
                let guard = self.seat(bid, &mut state, waiter.owner, waiter.span, now);
                after.tell.push((waiter.tell, Outcome::Granted(guard)));
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
        if state.is_taken {
            self.events.lost(bid, &state, reason, self.clock.now());
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
        mut waiters: std::collections::VecDeque<super::bid::Waiter>,
        after: &mut After,
    ) {
        waiters.retain(|waiter| !waiter.tell.is_closed());
        if waiters.is_empty() {
            return;
        }
        let token = claim::token_after(&old.token, self.new_token());
        let (bid, job) = self.new_bid(old.name.clone(), token, waiters);
        shard.insert(bid);
        after.asks.push(job);
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
        self.keeper.forget(&mut state);
        drop(state);
        shard.remove(bid);
        self.live.fetch_sub(1, Ordering::Relaxed);
    }
}

/// After a lease's end, before asking whether it has ended: clocks are compared in milliseconds in some stores.
const FREE_SLACK: Duration = Duration::from_millis(1);

/// A release nobody waits for.
pub(super) fn release_job(name: crate::Name, token: crate::Token, keep: Duration) -> Job {
    let release = crate::store::Release { name, token, keep };
    let target = Target::Forget(Box::new(release.clone()));
    Job { operation: Operation::Release(release), target }
}
