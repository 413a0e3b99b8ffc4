//! What stores say, and what follows from it.

use std::{sync::Arc, time::Duration};

use super::{
    Engine,
    bid::{Bid, BidState, Outcome},
    claim::Decision,
    events::Found,
    follow::After,
    lane::Target,
    table::Shard,
};
use crate::{
    Error, ErrorKind, LostReason,
    clock::Moment,
    store::{Answer, IfBusy, Place, Push, Renewal, Reply, Standing, timing},
};

/// Asks of one token that may go unanswered in a row before its waiters are told, unless they stand in line.
const FAILURES_MAX: u8 = 5;
/// Between such asks.
pub(super) const ASK_AGAIN: Duration = Duration::from_millis(20);
/// At most this long.
pub(super) const ASK_AGAIN_MAX: Duration = Duration::from_millis(500);

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
                if let Err((_, unheard)) = tell.send((sent, answer))
                    && let Some(ask) = undo
                    && may_have_got(&unheard)
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
                    None => after.asks.push(self.give_back_late(name, token)),
                }
                drop(shard);
                after.run(self);
            }
            Push::Woken { name } => {
                for bid in self.table.on(&name) {
                    self.ask_now(&bid);
                }
            }
            Push::Lost { name, token, reason } => {
                let bid = self.table.lock(&name).find(&name, &token).cloned();
                if let Some(bid) = bid {
                    self.lose(&bid, reason);
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
            // If a push came first, it is a renewal that may be under way.
            if !state.claim.is_held() {
                state.is_in_flight = false;
            }
            state.last_sent = state.last_sent.max(sent);
            if let (Ok(_), Some(crowd)) = (&answer, &mut state.crowd) {
                (crowd.was_answered, crowd.trouble) = (true, None);
            }
            // Where a store has no queue, being told again and again that it is busy is what makes pauses longer.
            if matches!(&answer, Ok(reply) if !matches!(reply, Reply::Busy(_))) {
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
                        after.tell.push((waiter.tell, Outcome::Busy(standing).into()));
                    }
                    state.claim.end();
                    self.bury(&mut shard, bid, state);
                }
            }
            Ok(Reply::Busy(standing)) => self.told_busy(bid, standing, now, &mut after),
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
            after.asks.push(self.give_back_late(bid.name.clone(), bid.token.clone()));
            return;
        }
        if !state.claim.is_queued() {
            return;
        }
        after.tell.extend(state.tell_to_wait());
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

    /// A store without a queue has somebody else's lease: ask again when it changes, or after a while.
    fn told_busy(&self, bid: &Arc<Bid>, standing: Standing, now: Moment, after: &mut After) {
        let mut state = bid.state.lock();
        if state.claim.is_ended() {
            return;
        }
        after.tell.extend(state.tell_to_wait());
        if std::mem::take(&mut state.ask_again) {
            // It changed while this was under way.
            state.is_in_flight = true;
            after.asks.push(self.ask_again(bid, &state));
            return;
        }
        let pause = self.jitter(ASK_AGAIN, ASK_AGAIN_MAX, state.failures.into());
        let due = standing.free_in.map_or(pause, |left| left.min(pause));
        // Not so many that the first answer that is lost is not asked for again.
        state.failures = (state.failures + 1).min(FAILURES_MAX - 1);
        state.crowd().standing = Some(Box::new(standing));
        self.keeper.schedule(bid, &mut state, now + due);
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
                after.asks.push(self.give_back_late(bid.name.clone(), bid.token.clone()));
            }
            return;
        }
        state.failures = state.failures.saturating_add(1);
        // What stands in line outlasts an outage of any length: it ends when its callers have waited for long enough.
        let rides_out = bid.spec.if_busy == IfBusy::Queue && state.rides_out();
        let worth_asking = match error.kind() {
            // Nothing happened: who has just come is told at once.
            ErrorKind::Unavailable => rides_out,
            // It may have happened: the same token must ask again, or leave.
            ErrorKind::Indeterminate => rides_out || state.failures < FAILURES_MAX,
            _ => false,
        };
        if worth_asking {
            self.events.retried();
            state.crowd().trouble = Some(error.duplicate());
            let pause = self.jitter(ASK_AGAIN, ASK_AGAIN_MAX, state.failures.into());
            self.keeper.schedule(bid, &mut state, now + pause);
            return;
        }
        for waiter in state.take_waiters() {
            after.tell.push((waiter.tell, Outcome::Failed(error.duplicate()).into()));
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
                after.found.extend(self.note_renewal(bid, &mut state, sent, renewal));
                state.claim.renewed(sent, renewal, now)
            }
            Ok(Reply::NotYours(reason)) => state.claim.not_ours(*reason, now),
            Ok(_) => unreachable!("BUG: the store answered a renewal with something else"),
            Err(error) => {
                state.failures = state.failures.saturating_add(1);
                after.found.extend(self.events.renewal_failed(bid, &state, error));
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

    fn note_renewal(
        &self,
        bid: &Bid,
        state: &mut BidState,
        sent: Moment,
        renewal: &Renewal,
    ) -> Option<Found> {
        state.last_sent = state.last_sent.max(sent);
        state.failures = 0;
        state.is_short = false;
        state.danger_told = false;
        let has_cohort = state.crowd.as_ref().is_some_and(|crowd| crowd.cohort.is_some());
        if has_cohort || renewal.waiters > 0 {
            state.cohort().renewed(renewal.waiters, renewal.block);
        }
        self.events.renewed(bid, state)
    }
}

/// Whether an ask that was answered so may have been granted what it asked for.
pub(super) fn may_have_got(answer: &Answer) -> bool {
    match answer {
        Ok(reply) => matches!(reply, Reply::Granted(_)),
        Err(error) => error.kind() == ErrorKind::Indeterminate,
    }
}

/// After a lease's end, before asking whether it has ended: clocks are compared in milliseconds in some stores.
const FREE_SLACK: Duration = Duration::from_millis(1);
