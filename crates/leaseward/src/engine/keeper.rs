//! The one timer of a store's client: renewals, refreshes of places, dangers, deadlines.
//!
//! No task and no timer per lease. Most leases are released long before anything is due, so a new one is only laid in
//! the *nursery*, which costs a few nanoseconds; what is still there when half its time is over moves to a queue
//! ordered by time. Renewal moments are rounded to a grid, so that thousands of leases are renewed in few batches.
//!
//! A bid has one live entry in that queue, never later than it is due: what comes too early is put back. So a bid that
//! is put off again and again, as by every renewal, leaves nothing behind.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{
    Engine,
    bid::{Bid, BidState},
};
use crate::clock::{Clock, Moment};

/// Leases due sooner than this skip the nursery.
const NURSERY_MIN: Duration = Duration::from_millis(10);

/// Renewals of one interval fall on this many moments at most.
const GRID: u32 = 64;

/// Where the keeper has a bid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    Nowhere,
    /// In the nursery. The epoch tells a place in an earlier nursery from one in this.
    Nursery {
        epoch: u32,
        at: u32,
    },
    /// In the queue, to be looked at then. What the queue has of it for another moment is stale.
    Queue(Moment),
}

pub(crate) struct Keeper {
    queues: Mutex<Queues>,
    /// When the keeper wakes by itself, so that nobody wakes it needlessly.
    planned: AtomicU64,
    wake: Notify,
}

struct Queues {
    nursery: Nursery,
    epoch: u32,
    /// When the nursery is gone through.
    sweep_at: Moment,
    heap: BinaryHeap<Reverse<Due>>,
    closed: bool,
}

/// One word a lease, which a slab of links would double.
#[derive(Default)]
struct Nursery {
    places: Vec<Option<Arc<Bid>>>,
    free: Vec<u32>,
}

impl Nursery {
    fn lay(&mut self, bid: Arc<Bid>) -> u32 {
        if let Some(at) = self.free.pop() {
            self.places[index(at)] = Some(bid);
            return at;
        }
        self.places.push(Some(bid));
        u32::try_from(self.places.len() - 1).expect("BUG: four billion leases")
    }

    fn take(&mut self, at: u32) {
        self.places[index(at)] = None;
        self.free.push(at);
    }
}

fn index(at: u32) -> usize {
    usize::try_from(at).expect("BUG: an index")
}

/// A bid to be looked at, and the moment it stood in the queue for.
pub(super) struct Due(pub(super) Moment, pub(super) Arc<Bid>);

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

/// What is due, and what has outgrown the nursery.
#[derive(Default)]
struct Round {
    due: Vec<Due>,
    grown: Vec<Option<Arc<Bid>>>,
    closed: bool,
}

/// The moment of a grid that divides the interval, at or before `at`.
pub(crate) fn on_grid(at: Moment, interval: Duration) -> Moment {
    let step = u64::try_from((interval / GRID).as_nanos()).unwrap_or(u64::MAX).max(1);
    Moment::from_nanos(at.as_nanos() / step * step)
}

impl Keeper {
    pub(crate) fn new() -> Self {
        Self {
            queues: Mutex::new(Queues {
                nursery: Nursery::default(),
                epoch: 0,
                sweep_at: Moment::NEVER,
                heap: BinaryHeap::new(),
                closed: false,
            }),
            planned: AtomicU64::new(u64::MAX),
            wake: Notify::new(),
        }
    }

    /// Takes care of a lease that has just begun.
    pub(crate) fn adopt(&self, bid: &Arc<Bid>, state: &mut BidState, due: Moment, now: Moment) {
        let ahead = due.since(now);
        if ahead < NURSERY_MIN || state.kept != Kept::Nowhere {
            return self.schedule(bid, state, due);
        }
        state.due = due;
        let sweep_at = now + ahead / 2;
        let mut queues = self.queues.lock();
        let at = queues.nursery.lay(bid.clone());
        state.kept = Kept::Nursery { epoch: queues.epoch, at };
        queues.sweep_at = queues.sweep_at.min(sweep_at);
        drop(queues);
        self.wake_by(sweep_at);
    }

    /// Looks at a bid at a moment instead of whenever it was due before.
    pub(crate) fn schedule(&self, bid: &Arc<Bid>, state: &mut BidState, due: Moment) {
        state.due = due;
        if matches!(state.kept, Kept::Queue(at) if at <= due) {
            return;
        }
        let mut queues = self.queues.lock();
        queues.leave_nursery(state.kept);
        queues.heap.push(Reverse(Due(due, bid.clone())));
        drop(queues);
        state.kept = Kept::Queue(due);
        self.wake_by(due);
    }

    /// Forgets a bid that has ended. What stands in the queue for it goes when its time comes.
    pub(crate) fn forget(&self, state: &mut BidState) {
        state.due = Moment::NEVER;
        if matches!(state.kept, Kept::Nursery { .. }) {
            self.queues.lock().leave_nursery(state.kept);
            state.kept = Kept::Nowhere;
        }
    }

    pub(crate) fn close(&self) {
        self.queues.lock().closed = true;
        self.wake.notify_one();
    }

    fn wake_by(&self, at: Moment) {
        if at.as_nanos() < self.planned.load(Ordering::Acquire) {
            self.planned.fetch_min(at.as_nanos(), Ordering::AcqRel);
            self.wake.notify_one();
        }
    }

    fn plan(&self) -> Moment {
        let queues = self.queues.lock();
        let first = queues.heap.peek().map_or(Moment::NEVER, |Reverse(due)| due.0);
        let next = first.min(queues.sweep_at);
        self.planned.store(next.as_nanos(), Ordering::Release);
        next
    }

    /// Takes out what is due, at most so many.
    fn round(&self, now: Moment, most: usize) -> Round {
        let mut round = Round::default();
        let mut queues = self.queues.lock();
        round.closed = queues.closed;
        if queues.sweep_at <= now {
            queues.sweep_at = Moment::NEVER;
            queues.epoch = queues.epoch.wrapping_add(1);
            round.grown = std::mem::take(&mut queues.nursery).places;
        }
        while round.due.len() < most
            && queues.heap.peek().is_some_and(|Reverse(due)| due.0 <= now)
            && let Some(Reverse(due)) = queues.heap.pop()
        {
            round.due.push(due);
        }
        round
    }

    /// Runs until the engine is gone.
    pub(crate) async fn run(self: Arc<Self>, engine: Weak<Engine>, clock: Arc<dyn Clock>) {
        loop {
            let at = self.plan();
            let mut woken = std::pin::pin!(self.wake.notified());
            let mut slept = clock.sleep_until(at);
            std::future::poll_fn(|cx| {
                use std::{future::Future, task::Poll};
                let is_due = woken.as_mut().poll(cx).is_ready()
                    || (at != Moment::NEVER && slept.as_mut().poll(cx).is_ready());
                if is_due { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            let Some(engine) = engine.upgrade() else { return };
            // In steps of a batch, each sent before the next: a hundred thousand leases due at one moment neither build
            // a queue of as many renewals nor keep others from this thread.
            let step = engine.store.capability().batch_max.max(1);
            let round = self.round(clock.now(), step);
            if round.closed {
                return;
            }
            for grown in round.grown.chunks(step) {
                grown.iter().flatten().for_each(|bid| engine.leave_nursery(bid));
                tokio::task::yield_now().await;
            }
            if !round.due.is_empty() {
                engine.attend(&round.due);
                tokio::task::yield_now().await;
            }
        }
    }
}

impl Queues {
    fn leave_nursery(&mut self, kept: Kept) {
        if let Kept::Nursery { epoch, at } = kept
            && epoch == self.epoch
        {
            self.nursery.take(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grid_gathers_and_never_delays() {
        let interval = Duration::from_secs(10);
        let at = Moment::from_nanos(123_456_789_012);
        let rounded = on_grid(at, interval);
        assert!(rounded <= at && at.since(rounded) < interval / GRID + Duration::from_nanos(1));
        assert_eq!(on_grid(rounded, interval), rounded);
    }
}
