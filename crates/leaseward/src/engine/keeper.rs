//! The one timer of a store's client: renewals, refreshes of places, dangers, deadlines.
//!
//! No task and no timer per lease. Most leases are released long before anything is due, so a new one is only laid in
//! the *nursery*, a slab that costs a few nanoseconds; what is still there when half its time is over moves to a queue
//! ordered by time. Renewal moments are rounded to a grid, so that thousands of leases are renewed in few batches.

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
use slab::Slab;
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

/// Bids looked after without a pause. A hundred thousand leases taken together fall due together: all their renewals at
/// once would take as much memory as the leases, and the thread for as long as it takes.
const AT_ONCE: usize = 1_024;

/// Where a bid lies in the nursery. The epoch tells a place in an earlier nursery from one in this.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cradle {
    epoch: u32,
    key: u32,
}

pub(crate) struct Keeper {
    queues: Mutex<Queues>,
    /// When the keeper wakes by itself, so that nobody wakes it needlessly.
    planned: AtomicU64,
    wake: Notify,
}

struct Queues {
    nursery: Slab<Arc<Bid>>,
    epoch: u32,
    /// When the nursery is gone through.
    sweep_at: Moment,
    heap: BinaryHeap<Reverse<Due>>,
    closed: bool,
}

struct Due(Moment, Arc<Bid>);

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
    due: Vec<Arc<Bid>>,
    grown: Vec<Arc<Bid>>,
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
                nursery: Slab::new(),
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
        if ahead < NURSERY_MIN || state.cradle.is_some() {
            return self.schedule(bid, state, due);
        }
        state.due = due;
        let sweep_at = now + ahead / 2;
        let mut queues = self.queues.lock();
        let key = queues.nursery.insert(bid.clone());
        let key = u32::try_from(key).expect("BUG: four billion leases");
        state.cradle = Some(Cradle { epoch: queues.epoch, key });
        queues.sweep_at = queues.sweep_at.min(sweep_at);
        drop(queues);
        self.wake_by(sweep_at);
    }

    /// Looks at a bid at a moment instead of whenever it was due before.
    pub(crate) fn schedule(&self, bid: &Arc<Bid>, state: &mut BidState, due: Moment) {
        state.due = due;
        self.queues.lock().heap.push(Reverse(Due(due, bid.clone())));
        self.wake_by(due);
    }

    /// Forgets a bid that has ended. What stands in the queue for it is stale and goes when its time comes.
    pub(crate) fn forget(&self, state: &mut BidState) {
        state.due = Moment::NEVER;
        if let Some(cradle) = state.cradle.take() {
            let mut queues = self.queues.lock();
            if queues.epoch == cradle.epoch {
                queues.nursery.try_remove(usize::try_from(cradle.key).expect("BUG: an index"));
            }
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

    fn round(&self, now: Moment) -> Round {
        let mut round = Round::default();
        let mut queues = self.queues.lock();
        round.closed = queues.closed;
        if queues.sweep_at <= now {
            queues.sweep_at = Moment::NEVER;
            queues.epoch = queues.epoch.wrapping_add(1);
            round.grown = std::mem::take(&mut queues.nursery).into_iter().map(|(_, b)| b).collect();
        }
        while queues.heap.peek().is_some_and(|Reverse(due)| due.0 <= now) {
            if let Some(Reverse(Due(_, bid))) = queues.heap.pop() {
                round.due.push(bid);
            }
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
            let round = self.round(clock.now());
            if round.closed {
                return;
            }
            for bid in round.grown {
                engine.leave_nursery(&bid);
            }
            for (at, bids) in round.due.chunks(AT_ONCE).enumerate() {
                if at > 0 {
                    // The lane sends what there is before more is laid on it.
                    tokio::task::yield_now().await;
                }
                engine.attend(bids);
            }
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
