//! The one timer of a store's client: renewals, refreshes of places, dangers, deadlines.
//!
//! No task and no timer per lease. Most leases are released long before anything is due, so a new one costs the keeper
//! nothing but a look at when it wakes: once half the time of the newest is over it goes through the table and puts what
//! is still held into a queue ordered by time. Renewal moments are rounded to a grid, so that thousands of leases are
//! renewed in few batches.
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

/// Leases due sooner than this go into the queue at once.
const SWEEP_MIN: Duration = Duration::from_millis(10);

/// What a caller drives and is not polled for stands for at least this long, and at most twice as long.
const STANDS: Duration = Duration::from_millis(20);

/// Renewals of one interval fall on this many moments at most.
const GRID: u32 = 64;

/// Where the keeper has a bid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Not in the queue: found by the next sweep, if it is held by then.
    Nowhere,
    /// In the queue, to be looked at then. What the queue has of it for another moment is stale.
    Queue(Moment),
}

pub(crate) struct Keeper {
    queues: Mutex<Queues>,
    /// When the table is gone through for leases that have outlived their beginning.
    sweep_at: AtomicU64,
    /// When what callers drive is looked at.
    callers_at: AtomicU64,
    /// When the keeper wakes by itself, so that nobody wakes it needlessly.
    planned: AtomicU64,
    wake: Notify,
}

struct Queues {
    heap: BinaryHeap<Reverse<Due>>,
    closed: bool,
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

/// What is to be done now.
#[derive(Default)]
struct Round {
    due: Vec<Due>,
    sweeps: bool,
    minds_callers: bool,
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
            queues: Mutex::new(Queues { heap: BinaryHeap::new(), closed: false }),
            sweep_at: AtomicU64::new(u64::MAX),
            callers_at: AtomicU64::new(u64::MAX),
            planned: AtomicU64::new(u64::MAX),
            wake: Notify::new(),
        }
    }

    /// Takes care of a lease that has just begun.
    pub(crate) fn adopt(&self, bid: &Arc<Bid>, state: &mut BidState, due: Moment, now: Moment) {
        let ahead = due.since(now);
        if ahead < SWEEP_MIN || state.kept != Kept::Nowhere {
            return self.schedule(bid, state, due);
        }
        state.due = due;
        self.sweep_by(now + ahead / 2);
    }

    /// Goes through the table at a moment, or before.
    pub(crate) fn sweep_by(&self, at: Moment) {
        if at.as_nanos() < self.sweep_at.load(Ordering::Relaxed) {
            self.sweep_at.fetch_min(at.as_nanos(), Ordering::SeqCst);
            self.wake_by(at);
        }
    }

    /// Looks at a bid at a moment instead of whenever it was due before.
    pub(crate) fn schedule(&self, bid: &Arc<Bid>, state: &mut BidState, due: Moment) {
        state.due = due;
        if matches!(state.kept, Kept::Queue(at) if at <= due) {
            return;
        }
        self.queues.lock().heap.push(Reverse(Due(due, bid.clone())));
        state.kept = Kept::Queue(due);
        self.wake_by(due);
    }

    /// Looks at what callers drive, soon.
    pub(crate) fn mind_callers(&self, clock: &Arc<dyn Clock>) {
        // Seldom: all that is put down until then is looked at together.
        if self.callers_at.load(Ordering::Relaxed) == u64::MAX {
            let at = clock.now() + STANDS;
            self.callers_at.fetch_min(at.as_nanos(), Ordering::SeqCst);
            self.wake_by(at);
        }
    }

    pub(crate) fn close(&self) {
        self.queues.lock().closed = true;
        self.wake.notify_one();
    }

    fn wake_by(&self, at: Moment) {
        if at.as_nanos() < self.planned.load(Ordering::SeqCst) {
            self.planned.fetch_min(at.as_nanos(), Ordering::SeqCst);
            self.wake.notify_one();
        }
    }

    fn plan(&self) -> Moment {
        let queues = self.queues.lock();
        let first = queues.heap.peek().map_or(Moment::NEVER, |Reverse(due)| due.0);
        self.planned.store(first.as_nanos(), Ordering::SeqCst);
        // After the plan is known to others: who asks for a sweep from here on sees it and wakes us, who asked before is
        // seen here. Either way no sweep is missed.
        let sweep_at = Moment::from_nanos(self.sweep_at.load(Ordering::SeqCst));
        let callers_at = Moment::from_nanos(self.callers_at.load(Ordering::SeqCst));
        let next = first.min(sweep_at).min(callers_at);
        self.planned.fetch_min(next.as_nanos(), Ordering::SeqCst);
        next
    }

    /// Takes out what is due, at most so many.
    fn round(&self, now: Moment, most: usize) -> Round {
        let mut round = Round::default();
        let mut queues = self.queues.lock();
        round.closed = queues.closed;
        if self.sweep_at.load(Ordering::SeqCst) <= now.as_nanos() {
            // Before the table is looked at: a lease that begins from here on asks for a sweep of its own.
            self.sweep_at.store(u64::MAX, Ordering::SeqCst);
            round.sweeps = true;
        }
        if self.callers_at.load(Ordering::SeqCst) <= now.as_nanos() {
            // Before they are looked at, for the same reason.
            self.callers_at.store(u64::MAX, Ordering::SeqCst);
            round.minds_callers = true;
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
        let _last = Last(engine.clone());
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
            if round.minds_callers && engine.take_over_callers() {
                self.mind_callers(&clock);
            }
            if round.sweeps {
                for grown in engine.grown(clock.now()).chunks(step) {
                    grown.iter().for_each(|bid| engine.put_in_queue(bid));
                    tokio::task::yield_now().await;
                }
            }
            if !round.due.is_empty() {
                engine.attend(&round.due);
                tokio::task::yield_now().await;
            }
        }
    }
}

/// Dropped with the keeper: if the engine is still there, the runtime has ended under it.
struct Last(Weak<Engine>);

impl Drop for Last {
    fn drop(&mut self) {
        if let Some(engine) = self.0.upgrade() {
            engine.orphan();
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
