//! Batching: while one batch is in flight the next one gathers.
//!
//! No timers, no added latency at low load. An idle lane is driven by the caller itself, without a task hop; what
//! gathered meanwhile is sent by a task that lives as long as there is something to send ([`super::drive`]).
//!
//! Others may wait for a batch that a caller drives: for its seat, or for the lease it asks for. A caller that goes away
//! leaves it to a task at once. One that stays, but is not polled, cannot: so what it drives stands here while it is not
//! being polled, where the keeper finds it and gives it to a task.
//!
//! Batches would grow into one: what two answers that come together have woken gathers together. With one on its way there
//! and back, the client and the store take turns, each asleep while the other works. So a batch has no more than a share of
//! what is under way, and the rest follows at once, while there are lanes.
//!
//! Whoever steps aside, so that operations gather, is polled again once the others that are ready on its thread have been. So
//! what those add goes along, and none of them steps aside too: each would be polled once more for nothing. Another thread's
//! tasks do not count on it: its own may be busy for long.

use std::{
    collections::VecDeque,
    fmt,
    sync::Arc,
    task::Waker,
    thread::{self, ThreadId},
};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{bid::Bid, flight::Flight, outbox::Outbox};
use crate::{
    clock::Moment,
    store::{Answer, Ask, Operation, Release, Renew},
};

/// However few are under way, a batch may have so many operations.
const SHARE_MIN: usize = 8;

/// Who gets an answer.
pub(crate) enum Target {
    /// A bid's own ask.
    Ask(Arc<Bid>),
    /// A bid's own renewal.
    Renew(Arc<Bid>),
    /// A renewal that reserves fences for local waiters.
    Reserve(Arc<Bid>),
    /// A renewal somebody waits for.
    RenewAndTell(Arc<Bid>, oneshot::Sender<(Moment, Answer)>),
    /// Somebody waits for the bare answer. If nobody does any more, what this ask was granted is given back.
    Tell(oneshot::Sender<(Moment, Answer)>, Option<Box<Ask>>),
    /// A release nobody waits for.
    Forget(Box<Release>),
}

/// An operation and who gets its answer.
pub(crate) struct Job {
    pub(crate) operation: Operation,
    pub(crate) target: Target,
}

impl Job {
    /// A renewal of a lease, by itself.
    pub(super) fn renewal(bid: Arc<Bid>) -> Self {
        Self { operation: renew(&bid, 0), target: Target::Renew(bid) }
    }

    /// A renewal that reserves fences.
    pub(super) fn reserve(bid: Arc<Bid>, block: u32) -> Self {
        Self { operation: renew(&bid, block), target: Target::Reserve(bid) }
    }
}

fn renew(bid: &Bid, block: u32) -> Operation {
    let (name, token) = (bid.name.clone(), bid.token.clone());
    Operation::Renew(Renew { name, token, ttl: bid.spec.ttl(), block })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// Asks and releases.
    Asks,
    /// Renewals: never behind acquisitions.
    Renewals,
}

/// The seat of a caller that drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seat(u64);

#[derive(Default)]
struct Gathered {
    outbox: Outbox,
    /// Operations that were sent and not answered yet.
    in_flight: usize,
    /// Batches in flight or about to be.
    driving: usize,
    /// Those of them that callers drive.
    callers: Vec<Caller>,
    next_seat: u64,
}

/// A caller that drives.
struct Caller {
    seat: Seat,
    stands: Stands,
    /// Where it came from, while it has yet to gather.
    gathers_on: Option<ThreadId>,
}

/// What a caller drives, while it is not being polled.
enum Stands {
    /// The caller is being polled, and has it.
    WithCaller,
    /// It has yet to gather, or is in flight. Whether the keeper has seen it stand here, and whom to tell that a task has it.
    Here { flight: Option<Flight>, was_seen: bool, caller: Waker },
}

impl Gathered {
    fn seat_caller(&mut self, gathers_on: Option<ThreadId>) -> Seat {
        let seat = Seat(self.next_seat);
        self.next_seat += 1;
        self.driving += 1;
        self.callers.push(Caller { seat, stands: Stands::WithCaller, gathers_on });
        seat
    }

    fn at(&self, seat: Seat) -> Option<usize> {
        self.callers.iter().position(|caller| caller.seat == seat)
    }

    /// The next batch. If there is more to send, and a seat for whoever does, it is a task's.
    fn take(&mut self, lane: &Lane) -> Option<Batch> {
        if self.outbox.is_empty() {
            return None;
        }
        let under_way = self.outbox.len() + self.in_flight;
        let most = under_way.div_ceil(lane.shares).max(SHARE_MIN).min(lane.batch_max);
        let jobs = self.outbox.take(most);
        self.in_flight += jobs.len();
        let is_more = !self.outbox.is_empty() && self.driving < lane.lanes;
        self.driving += usize::from(is_more);
        Some(Batch { jobs, is_more })
    }
}

/// What is sent at once.
pub(super) struct Batch {
    pub(super) jobs: Vec<Job>,
    /// Whether a task is to send more; it has a seat.
    pub(super) is_more: bool,
}

pub(crate) struct Lane {
    gathered: Mutex<Gathered>,
    lanes: usize,
    batch_max: usize,
    shares: usize,
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gathered = self.gathered.lock();
        f.debug_struct("Lane")
            .field("to_send", &gathered.outbox.len())
            .field("in_flight", &gathered.driving)
            .finish_non_exhaustive()
    }
}

impl Lane {
    pub(crate) fn new(lanes: usize, batch_max: usize, shares: usize) -> Self {
        Self {
            gathered: Mutex::default(),
            lanes: lanes.max(1),
            batch_max: batch_max.max(1),
            shares: shares.max(1),
        }
    }

    /// What takes nothing, was not sent yet, and has somebody waiting for its answer: releases.
    pub(super) fn take_told_releases(&self) -> VecDeque<Job> {
        self.gathered.lock().outbox.take_told_releases()
    }

    /// So many operations were answered; the room they took when they were sent is of use again.
    pub(super) fn landed(&self, count: usize, room: Vec<Job>) {
        let mut gathered = self.gathered.lock();
        gathered.in_flight -= count;
        let smaller = gathered.outbox.reuse(room);
        drop(gathered);
        drop(smaller);
    }

    /// Whether everything that was to be sent has been answered.
    pub(super) fn is_idle(&self) -> bool {
        let gathered = self.gathered.lock();
        gathered.outbox.is_empty() && gathered.driving == 0
    }

    /// Adds operations; the caller takes a seat if one is free, and nobody of its thread has yet to gather.
    pub(super) fn push(&self, jobs: impl IntoIterator<Item = Job>) -> Option<Seat> {
        let mut gathered = self.gathered.lock();
        gathered.outbox.push(jobs);
        if gathered.driving >= self.lanes || gathered.outbox.is_empty() {
            return None;
        }
        let here = Some(thread::current().id());
        if gathered.callers.iter().any(|caller| caller.gathers_on == here) {
            return None;
        }
        Some(gathered.seat_caller(here))
    }

    /// Adds renewals of leases; `true` if a task is to send them, for which there is a seat.
    pub(super) fn push_due(&self, bids: Vec<Arc<Bid>>) -> bool {
        let mut gathered = self.gathered.lock();
        gathered.outbox.push_due(bids);
        let is_seated = gathered.driving < self.lanes && !gathered.outbox.is_empty();
        gathered.driving += usize::from(is_seated);
        is_seated
    }

    /// A seat of a lane with nothing to send, for one operation that is sent at once.
    pub(super) fn claim_idle_seat(&self) -> Option<Seat> {
        let mut gathered = self.gathered.lock();
        if gathered.driving >= self.lanes || !gathered.outbox.is_empty() {
            return None;
        }
        Some(gathered.seat_caller(None))
    }

    /// The next batch for a task; its seat is given up if there is none.
    pub(super) fn next_batch(&self) -> Option<Batch> {
        let mut gathered = self.gathered.lock();
        let batch = gathered.take(self);
        gathered.driving -= usize::from(batch.is_none());
        batch
    }

    /// The next batch for a caller that has picked up its seat; that is given up if there is none.
    pub(super) fn batch_for(&self, seat: Seat) -> Option<Batch> {
        let mut gathered = self.gathered.lock();
        let batch = gathered.take(self);
        match gathered.at(seat) {
            Some(at) if batch.is_some() => gathered.callers[at].gathers_on = None,
            Some(at) => {
                gathered.callers.swap_remove(at);
                gathered.driving -= 1;
            }
            None => {}
        }
        batch
    }

    /// A caller that is not being polled any more leaves here what it drives.
    pub(super) fn put_down(&self, seat: Seat, flight: Option<Flight>, caller: Waker) {
        let mut gathered = self.gathered.lock();
        if let Some(at) = gathered.at(seat) {
            gathered.callers[at].stands = Stands::Here { flight, was_seen: false, caller };
        }
    }

    /// A caller that is polled again takes up what it drives; `None` if a task has that now.
    pub(super) fn pick_up(&self, seat: Seat) -> Option<Option<Flight>> {
        let mut gathered = self.gathered.lock();
        let at = gathered.at(seat)?;
        match std::mem::replace(&mut gathered.callers[at].stands, Stands::WithCaller) {
            Stands::Here { flight, .. } => Some(flight),
            Stands::WithCaller => Some(None),
        }
    }

    /// A caller's place goes to a task, with what stands there; `None` if a task has it already.
    pub(super) fn hand_over(&self, seat: Seat) -> Option<Option<Flight>> {
        let mut gathered = self.gathered.lock();
        let at = gathered.at(seat)?;
        match gathered.callers.swap_remove(at).stands {
            Stands::Here { flight, .. } => Some(flight),
            Stands::WithCaller => Some(None),
        }
    }

    /// Gives up a caller's seat unless there is more to send, for a task then.
    pub(super) fn leave_seat(&self, seat: Seat) -> bool {
        let mut gathered = self.gathered.lock();
        let Some(at) = gathered.at(seat) else { return false };
        gathered.callers.swap_remove(at);
        if gathered.outbox.is_empty() {
            gathered.driving -= 1;
        }
        !gathered.outbox.is_empty()
    }

    /// Gives up a task's seat unless there is more to send.
    pub(super) fn leave_task_seat(&self) -> bool {
        let mut gathered = self.gathered.lock();
        if gathered.outbox.is_empty() {
            gathered.driving -= 1;
        }
        !gathered.outbox.is_empty()
    }

    /// What callers have left standing since this was last asked, for tasks; and whether something else stands here. Each
    /// caller is to be woken: it waits for what it drives, and does so no longer.
    pub(super) fn left_standing(&self) -> (Vec<(Option<Flight>, Waker)>, bool) {
        let mut gathered = self.gathered.lock();
        let (mut left, mut is_more) = (Vec::new(), false);
        gathered.callers.retain_mut(|caller| match &mut caller.stands {
            Stands::Here { flight, was_seen: true, caller } => {
                left.push((flight.take(), caller.clone()));
                false
            }
            Stands::Here { was_seen, .. } => {
                *was_seen = true;
                is_more = true;
                true
            }
            // Whoever puts it down has it looked at again.
            Stands::WithCaller => true,
        });
        (left, is_more)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Name, Token};

    /// A release of a name, and who gets its answer.
    pub(in super::super) fn release(name: &str, target: impl FnOnce(&Release) -> Target) -> Job {
        let (name, token) = (Name::new(name).expect("a name"), Token::new(7, Arc::from("h:1")));
        let release = Release { name, token, keep: Duration::ZERO };
        let target = target(&release);
        Job { operation: Operation::Release(release), target }
    }

    pub(in super::super) fn forget(release: &Release) -> Target {
        Target::Forget(Box::new(release.clone()))
    }

    fn jobs(count: usize) -> impl Iterator<Item = Job> {
        std::iter::repeat_with(|| release("name", forget)).take(count)
    }

    #[test]
    fn a_batch_has_a_share_of_what_is_under_way() {
        let lane = Lane::new(3, 256, 4);
        let seat = lane.push(jobs(64)).expect("a seat");
        let first = lane.batch_for(seat).expect("a batch");
        assert_eq!((first.jobs.len(), first.is_more), (16, true));
        let second = lane.next_batch().expect("a batch");
        assert_eq!((second.jobs.len(), second.is_more), (16, true));
        // As large, and there is no lane left for what is behind it.
        let third = lane.next_batch().expect("a batch");
        assert_eq!((third.jobs.len(), third.is_more), (16, false));
        lane.landed(48, Vec::new());
        let rest = lane.next_batch().expect("a batch");
        assert_eq!((rest.jobs.len(), rest.is_more), (SHARE_MIN, false));
        let rest = lane.next_batch().expect("a batch");
        assert_eq!((rest.jobs.len(), rest.is_more), (SHARE_MIN, false));
        assert!(lane.next_batch().is_none());
    }

    #[test]
    fn who_comes_while_another_of_its_thread_gathers_goes_along() {
        let lane = Lane::new(3, 256, 1);
        let seat = lane.push(jobs(1)).expect("a seat");
        assert_eq!(lane.push(jobs(2)), None, "the first is polled again soon");
        let elsewhere = thread::scope(|scope| scope.spawn(|| lane.push(jobs(1))).join());
        let elsewhere = elsewhere.expect("no panic").expect("a seat of its own");
        assert_eq!(lane.batch_for(seat).expect("a batch").jobs.len(), 4);
        assert!(lane.batch_for(elsewhere).is_none(), "all of it is under way");
        assert!(lane.push(jobs(1)).is_some(), "nobody gathers any more");
    }

    #[test]
    fn with_one_share_all_that_gathered_goes_out() {
        let lane = Lane::new(2, 100, 1);
        let seat = lane.push(jobs(130)).expect("a seat");
        let first = lane.batch_for(seat).expect("a batch");
        assert_eq!((first.jobs.len(), first.is_more), (100, true));
        assert_eq!(lane.next_batch().expect("a batch").jobs.len(), 30);
    }
}
