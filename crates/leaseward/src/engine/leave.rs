//! How leases are given back: to the next waiter here, or to the store.

use std::{sync::Arc, time::Duration};

use parking_lot::MutexGuard;
use tokio::sync::oneshot;

use super::{
    Engine,
    bid::{Bid, BidState, Outcome, Seat},
    cohort::HandOver,
    enter::until,
    events::Hold,
    follow::{After, release_job},
    lane::{Job, Target, Which},
    table::Shard,
};
use crate::{
    Error, ErrorKind, Fence, LostReason, Name, Release, Token,
    clock::Moment,
    store::{self, Answer, Operation, Reply},
};

/// A release is not tried again after this long; the lease then ends by its TTL.
const RELEASE_MAX: Duration = Duration::from_secs(10);
/// Between tries of a release that got no answer.
pub(super) const RELEASE_AGAIN: Duration = Duration::from_millis(20);
/// At most this long.
pub(super) const RELEASE_AGAIN_MAX: Duration = Duration::from_secs(1);

/// Where a lease went.
pub(crate) enum Left {
    /// To the next waiter in this process.
    Passed,
    /// It had ended before, and its holder was told: it was lost, or given back by a shutdown.
    Ended,
    /// Its deadline had passed, which had not been noticed yet.
    Expired,
    /// It goes to the store, the name blocked for a while yet if its holder had a minimum; the asks of local waiters who
    /// are left follow in the same batch.
    GiveBack { keep: Duration, asks: Asks },
}

pub(super) type Asks = Vec<Job>;

/// A lease to be given back to the store. Borrowed: it is sent once, as a rule, and copied only for what is sent.
#[derive(Clone, Copy)]
pub(super) struct Owed<'a> {
    name: &'a Name,
    token: &'a Token,
    keep: Duration,
}

impl Owed<'_> {
    fn release(self) -> store::Release {
        store::Release { name: self.name.clone(), token: self.token.clone(), keep: self.keep }
    }
}

impl Engine {
    /// A guard is done with its lease.
    fn leave(
        self: &Arc<Self>,
        bid: &Arc<Bid>,
        fence: Fence,
        now: Moment,
    ) -> (Left, Hold, Option<super::drive::Drive>) {
        let mut after = After::default();
        let mut shard = self.table.lock(&bid.name);
        let mut state = bid.state.lock();
        let hold = Hold { fence, held: now.since(state.since), origin: state.origin.take() };
        if state.claim.is_ended() {
            return (Left::Ended, hold, None);
        }
        self.order.released(state.owner.as_ref(), &bid.name);
        if now >= bid.deadline() {
            state.claim.end();
            // Told as what its release found, not as a loss as well.
            state.seat = Seat::Empty;
            drop(state);
            self.lost(&mut shard, bid, LostReason::Expired, &mut after);
            drop(shard);
            after.run(self);
            return (Left::Expired, hold, None);
        }
        let (left, state) = self.pass_on(bid, state, now, &mut after);
        if left {
            drop(state);
            drop(shard);
            let renewals = std::mem::take(&mut after.renewals);
            after.run(self);
            // Hand-overs here are many: without a renewal, the lane is not looked at.
            let drive = match renewals.is_empty() {
                true => None,
                false => self.send(Which::Renewals, renewals),
            };
            return (Left::Passed, hold, drive);
        }
        let keep = self.min_hold_left(bid, &state);
        drop(state);
        self.take_lease_back(&mut shard, bid, &mut after);
        drop(shard);
        let asks = std::mem::take(&mut after.asks);
        after.run(self);
        (Left::GiveBack { keep, asks }, hold, None)
    }

    /// Passes a lease on inside the process, if that is allowed. `true` if it was, or will be.
    fn pass_on<'a>(
        self: &Arc<Self>,
        bid: &Arc<Bid>,
        mut state: MutexGuard<'a, BidState>,
        now: Moment,
        after: &mut After,
    ) -> (bool, MutexGuard<'a, BidState>) {
        state.seat = Seat::Empty;
        state.owner = None;
        if !state.is_open || !self.min_hold_left(bid, &state).is_zero() {
            return (false, state);
        }
        let next = state.next_waiter();
        let (Some(deadline), Some(waiter)) = (state.claim.deadline(), next) else {
            return (false, state);
        };
        let reserves = self.reserves() && bid.spec.renew_ms > 0;
        let hand_over = if waiter.spec.can_inherit(&bid.spec) {
            state.cohort().hand_over(now, deadline, reserves)
        } else {
            HandOver::GiveBack
        };
        match hand_over {
            HandOver::GiveBack => {
                state.crowd().waiters.push_front(waiter);
                (false, state)
            }
            HandOver::Pass => {
                let guard = self.seat(bid, &mut state, waiter.owner, waiter.origin, now);
                after.tell.push((waiter.tell, Outcome::Granted(guard).into()));
                after.renewals.extend(self.reserve_ahead(bid, &mut state));
                (true, state)
            }
            HandOver::Reserve => {
                state.crowd().waiters.push_front(waiter);
                state.seat = Seat::Passing;
                // Whoever had it is done with it: what becomes of it now is none of its business.
                bid.set_fence(Fence::ZERO);
                after.renewals.extend(self.reserve_ahead(bid, &mut state));
                (true, state)
            }
        }
    }

    /// How long the name must stay held yet for its holder's minimum.
    pub(super) fn min_hold_left(&self, bid: &Bid, state: &BidState) -> Duration {
        let min_hold = bid.spec.min_hold();
        if min_hold.is_zero() || !state.claim.is_held() {
            return Duration::ZERO;
        }
        min_hold.saturating_sub(self.clock.now().since(state.since))
    }

    /// Kills the token (R6); its local waiters ask with a new one.
    fn take_lease_back(self: &Arc<Self>, shard: &mut Shard<'_>, bid: &Arc<Bid>, after: &mut After) {
        let mut state = bid.state.lock();
        let waiters = state.take_waiters();
        state.claim.end();
        self.bury(shard, bid, state);
        self.bid_again(shard, bid, waiters, after);
    }

    /// The same, with nobody waiting for the answer.
    pub(super) fn give_up_lease(
        self: &Arc<Self>,
        shard: &mut Shard<'_>,
        bid: &Arc<Bid>,
        keep: Duration,
        after: &mut After,
    ) {
        self.take_lease_back(shard, bid, after);
        after.asks.insert(0, release_job(bid.name.clone(), bid.token.clone(), keep));
    }

    /// Gives a lease back and says what became of it.
    ///
    /// Cancelled, it still goes back, but nobody is told.
    pub(crate) async fn release(
        self: &Arc<Self>,
        bid: &Arc<Bid>,
        fence: Fence,
        now: Moment,
    ) -> Result<Release, Error> {
        let deadline = bid.deadline();
        let (left, hold, drive) = self.leave(bid, fence, now);
        self.tell_left(bid, &left, &hold);
        if let Some(drive) = drive {
            drive.await;
        }
        let Left::GiveBack { keep, asks } = left else {
            let is_ours = matches!(left, Left::Passed);
            return Ok(if is_ours { Release::Released } else { Release::AlreadyExpired });
        };
        let owed = Owed { name: &bid.name, token: &bid.token, keep };
        let operation = Operation::Release(owed.release());
        let at_once = if asks.is_empty() { self.answer_now(&operation, now) } else { None };
        let outcome = match at_once {
            Some(Ok(Reply::Released)) => Ok(Release::Released),
            Some(Ok(_)) if self.ghosts.have(&bid.token) => Ok(Release::Released),
            Some(Ok(_)) => Ok(Release::AlreadyExpired),
            // A store that answers at once has not lost its answer: nothing happened.
            Some(Err(_)) | None => {
                self.release_until_known(owed, operation, deadline, asks, now).await
            }
        };
        match &outcome {
            Ok(Release::Released) => self.events.released(bid, &hold),
            Ok(Release::AlreadyExpired) => self.events.expired_before_release(bid, &hold, true),
            Err(_) => {}
        }
        outcome
    }

    /// Gives a lease back in the background.
    pub(crate) fn release_unseen(self: &Arc<Self>, bid: &Arc<Bid>, fence: Fence, now: Moment) {
        let (left, hold, _) = self.leave(bid, fence, now);
        self.tell_left(bid, &left, &hold);
        if let Left::GiveBack { keep, asks } = left {
            self.events.released(bid, &hold);
            let first = release_job(bid.name.clone(), bid.token.clone(), keep);
            self.post(Which::Asks, std::iter::once(first).chain(asks));
        }
    }

    /// Tells what is known of a hold before the store is asked.
    fn tell_left(&self, bid: &Bid, left: &Left, hold: &Hold) {
        if bid.ended() != Some(LostReason::ShutDown) {
            self.events.hold_ended(bid, hold);
        }
        match left {
            Left::Passed => self.events.released(bid, hold),
            Left::Expired => self.events.expired_before_release(bid, hold, false),
            Left::Ended | Left::GiveBack { .. } => {}
        }
    }

    /// Sends a release until its fate is known or cannot be known any more. It is answered every time: should the store not
    /// do so, its batch does.
    pub(super) async fn release_until_known(
        self: &Arc<Self>,
        owed: Owed<'_>,
        first: Operation,
        deadline: Moment,
        mut asks: Asks,
        began: Moment,
    ) -> Result<Release, Error> {
        let give_up = began + RELEASE_MAX;
        let (mut next, mut since, mut is_in_doubt) = (first, began, false);
        for attempt in 0.. {
            let answer = self.submit(Which::Asks, next, std::mem::take(&mut asks), since).await;
            let before_deadline = || self.clock.now() < deadline;
            // Another release of ours may have come before this one.
            let may_be_done = || is_in_doubt || self.ghosts.have(owed.token);
            let error = match verdict(answer, may_be_done, before_deadline) {
                Verdict::Known(outcome) => return outcome,
                Verdict::NotDone(error) => error,
                Verdict::InDoubt(error) => {
                    is_in_doubt = true;
                    error
                }
            };
            let now = self.clock.now();
            let pause = self.jitter(RELEASE_AGAIN, RELEASE_AGAIN_MAX, attempt);
            if now + pause >= give_up {
                return Err(error);
            }
            self.clock.sleep_until(now + pause).await;
            (next, since) = (Operation::Release(owed.release()), self.clock.now());
        }
        unreachable!("BUG: the loop ends by returning")
    }

    /// Renews a lease at its holder's wish.
    pub(crate) async fn renew_now(
        self: &Arc<Self>,
        bid: &Arc<Bid>,
        ttl: Duration,
    ) -> Result<(), Error> {
        let lost = |reason| crate::guard::lost_error(&bid.name, reason);
        if let Some(reason) = bid.ended() {
            return Err(lost(reason));
        }
        let (tell, told) = oneshot::channel();
        let renew =
            store::Renew { name: bid.name.clone(), token: bid.token.clone(), ttl, block: 0 };
        let target = Target::RenewAndTell(bid.clone(), tell);
        let job = Job { operation: Operation::Renew(renew), target };
        let answered = async {
            if let Some(drive) = self.send(Which::Renewals, [job]) {
                drive.await;
            }
            told.await.ok()
        };
        let answer = until(&self.clock, Some(bid.deadline()), answered).await.flatten();
        if let Some(reason) = bid.ended() {
            return Err(lost(reason));
        }
        match answer {
            Some((_, Ok(Reply::Renewed(_)))) => Ok(()),
            Some((_, Ok(_))) => Err(lost(LostReason::NotOurs)),
            Some((_, Err(error))) => Err(error),
            // Renewed meanwhile by the keeper, whatever became of this.
            None if bid.is_held_at(self.clock.now()) => Err(Error::new(
                ErrorKind::Indeterminate,
                "the store did not say whether the lease was renewed",
            )),
            None => Err(lost(LostReason::Expired)),
        }
    }

    /// Forgets a lease without giving it back; its local waiters ask for themselves.
    pub(crate) fn detach(self: &Arc<Self>, bid: &Arc<Bid>) {
        let mut after = After::default();
        let mut shard = self.table.lock(&bid.name);
        let mut state = bid.state.lock();
        if state.claim.is_ended() {
            return;
        }
        self.order.released(state.owner.as_ref(), &bid.name);
        let waiters = state.take_waiters();
        state.claim.end();
        self.bury(&mut shard, bid, state);
        self.bid_again(&mut shard, bid, waiters, &mut after);
        drop(shard);
        after.run(self);
    }

    /// A release nobody waits for was answered: tried once more if it surely did not happen.
    pub(super) fn release_answered(self: &Arc<Self>, release: store::Release, answer: Answer) {
        let Err(error) = answer else { return };
        let retry = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate);
        if retry && self.check_open().is_ok() {
            let engine = self.clone();
            self.runtime.spawn(async move {
                let pause = engine.jitter(RELEASE_AGAIN_MAX, RELEASE_AGAIN_MAX, 0);
                engine.clock.sleep_until(engine.clock.now() + pause).await;
                let now = engine.clock.now();
                let owed = Owed { name: &release.name, token: &release.token, keep: release.keep };
                let first = Operation::Release(owed.release());
                let _ = engine.release_until_known(owed, first, now, Asks::new(), now).await;
            });
        }
    }
}

enum Verdict {
    Known(Result<Release, Error>),
    /// Nothing happened.
    NotDone(Error),
    /// It may have happened.
    InDoubt(Error),
}

/// What an answer to a release means, given what went before.
fn verdict(
    answer: Option<(Moment, Answer)>,
    may_be_done: impl FnOnce() -> bool,
    before_deadline: impl FnOnce() -> bool,
) -> Verdict {
    let Some((_, answer)) = answer else {
        return Verdict::InDoubt(indeterminate());
    };
    match answer {
        Ok(Reply::Released) => Verdict::Known(Ok(Release::Released)),
        // An earlier try may have done it: before the deadline nothing else can have ended the lease (R8).
        Ok(_) if may_be_done() => {
            let is_certain = before_deadline();
            Verdict::Known(if is_certain { Ok(Release::Released) } else { Err(indeterminate()) })
        }
        Ok(_) => Verdict::Known(Ok(Release::AlreadyExpired)),
        Err(error) if error.kind() == ErrorKind::Indeterminate => Verdict::InDoubt(error),
        Err(error) if error.kind() == ErrorKind::Unavailable => Verdict::NotDone(error),
        Err(error) => Verdict::Known(Err(error)),
    }
}

fn indeterminate() -> Error {
    Error::new(ErrorKind::Indeterminate, "the store did not say whether the lease was released")
        .hint("it ends by itself when its TTL is over")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(answer: Answer) -> Option<(Moment, Answer)> {
        Some((Moment::from_nanos(0), answer))
    }

    #[test]
    fn a_lost_reply_then_not_yours_before_the_deadline_means_released() {
        let answer = || answered(Ok(Reply::NotYours(LostReason::NotOurs)));
        assert!(matches!(
            verdict(answer(), || true, || true),
            Verdict::Known(Ok(Release::Released))
        ));
        let Verdict::Known(Err(error)) = verdict(answer(), || true, || false) else {
            panic!("after the deadline nobody can know")
        };
        assert_eq!(error.kind(), ErrorKind::Indeterminate);
        assert!(matches!(
            verdict(answer(), || false, || true),
            Verdict::Known(Ok(Release::AlreadyExpired))
        ));
    }
}
