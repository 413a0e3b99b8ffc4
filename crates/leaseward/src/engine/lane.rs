//! Batching: while one batch is in flight the next one gathers.
//!
//! No timers, no added latency at low load. An idle lane is driven by the caller itself, without a task hop; what
//! gathered meanwhile is sent by a task that lives as long as there is something to send. A caller that goes away
//! leaves its batch to a task: operations sent are always followed to their answers.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{Engine, bid::Bid};
use crate::{
    clock::{BoxFuture, Moment},
    store::{Answer, Ask, Operation, Release},
};

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// Asks and releases.
    Asks,
    /// Renewals: never behind acquisitions.
    Renewals,
}

#[derive(Default)]
struct Gathered {
    jobs: Vec<Job>,
    /// Batches in flight or about to be.
    driving: usize,
}

pub(crate) struct Lane {
    gathered: Mutex<Gathered>,
    lanes: usize,
    batch_max: usize,
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gathered = self.gathered.lock();
        f.debug_struct("Lane")
            .field("to_send", &gathered.jobs.len())
            .field("in_flight", &gathered.driving)
            .finish_non_exhaustive()
    }
}

impl Lane {
    pub(crate) fn new(lanes: usize, batch_max: usize) -> Self {
        Self { gathered: Mutex::default(), lanes: lanes.max(1), batch_max: batch_max.max(1) }
    }

    fn push(&self, jobs: impl IntoIterator<Item = Job>) {
        self.gathered.lock().jobs.extend(jobs);
    }

    /// Whether everything that was to be sent has been answered.
    pub(super) fn is_idle(&self) -> bool {
        let gathered = self.gathered.lock();
        gathered.jobs.is_empty() && gathered.driving == 0
    }

    /// Takes the driver's seat of a lane with nothing to send, for one operation that is sent at once.
    pub(super) fn claim_idle_seat(&self) -> bool {
        let mut gathered = self.gathered.lock();
        let idle = gathered.driving < self.lanes && gathered.jobs.is_empty();
        gathered.driving += usize::from(idle);
        idle
    }

    /// Takes the driver's seat if one is free and there is something to send.
    fn claim_seat(&self) -> bool {
        let mut gathered = self.gathered.lock();
        let free = gathered.driving < self.lanes && !gathered.jobs.is_empty();
        gathered.driving += usize::from(free);
        free
    }

    /// The next batch; the seat is given up if there is none.
    fn next_batch(&self) -> Option<Vec<Job>> {
        let mut gathered = self.gathered.lock();
        if gathered.jobs.is_empty() {
            gathered.driving -= 1;
            return None;
        }
        if gathered.jobs.len() <= self.batch_max {
            return Some(std::mem::take(&mut gathered.jobs));
        }
        let rest = gathered.jobs.split_off(self.batch_max);
        Some(std::mem::replace(&mut gathered.jobs, rest))
    }

    /// Gives up the seat unless there is more to send.
    pub(super) fn leave_seat(&self) -> bool {
        let mut gathered = self.gathered.lock();
        if gathered.jobs.is_empty() {
            gathered.driving -= 1;
        }
        !gathered.jobs.is_empty()
    }
}

/// A batch under way.
pub(super) struct Flight {
    answers: BoxFuture<'static, Vec<Answer>>,
    targets: Vec<Target>,
    sent: Moment,
}

impl Flight {
    pub(super) fn of_one(
        answers: BoxFuture<'static, Vec<Answer>>,
        target: Target,
        sent: Moment,
    ) -> Self {
        Self { answers, targets: vec![target], sent }
    }

    fn start(engine: &Engine, mut jobs: Vec<Job>) -> Self {
        // Two batches that take rows in one order never deadlock in a database. Stable: operations on one name stay in
        // their order.
        jobs.sort_by(|a, b| a.operation.name().cmp(b.operation.name()));
        let mut targets = Vec::with_capacity(jobs.len());
        let mut batch = Vec::with_capacity(jobs.len());
        for job in jobs {
            targets.push(job.target);
            batch.push(job.operation);
        }
        // Before the store sees it: deadlines count from here.
        let sent = engine.clock.now();
        Self { answers: engine.store.submit(batch), targets, sent }
    }

    fn poll_land(&mut self, engine: &Arc<Engine>, cx: &mut Context<'_>) -> Poll<()> {
        let answers = ready!(self.answers.as_mut().poll(cx));
        let targets = std::mem::take(&mut self.targets);
        assert_eq!(answers.len(), targets.len(), "BUG: a store answers every operation");
        let now = engine.clock.now();
        for (target, answer) in targets.into_iter().zip(answers) {
            engine.dispatch(target, self.sent, answer, now);
        }
        Poll::Ready(())
    }
}

/// Sends what has gathered, on the caller's own time, if nobody else does.
pub(crate) struct Drive {
    engine: Arc<Engine>,
    which: Which,
    stage: Stage,
}

enum Stage {
    /// Stepping aside once, so that operations of other tasks gather.
    Gather {
        stepped_aside: bool,
    },
    Fly(Flight),
    Done,
}

impl Drive {
    /// Follows a batch that was sent already.
    pub(super) fn of_flight(engine: Arc<Engine>, which: Which, flight: Flight) -> Self {
        Self { engine, which, stage: Stage::Fly(flight) }
    }
}

impl Future for Drive {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        loop {
            match &mut this.stage {
                Stage::Gather { stepped_aside } if *stepped_aside => {
                    match this.engine.lane(this.which).next_batch() {
                        Some(jobs) => this.stage = Stage::Fly(Flight::start(&this.engine, jobs)),
                        None => this.stage = Stage::Done,
                    }
                }
                Stage::Gather { stepped_aside } => {
                    *stepped_aside = true;
                    if this.engine.wants_gathering() {
                        // Back of the run queue: everybody else who is ready comes first.
                        let mut aside = std::pin::pin!(tokio::task::yield_now());
                        if aside.as_mut().poll(cx).is_pending() {
                            return Poll::Pending;
                        }
                    }
                }
                Stage::Fly(flight) => {
                    ready!(flight.poll_land(&this.engine, cx));
                    this.stage = Stage::Done;
                    if this.engine.lane(this.which).leave_seat() {
                        this.engine.spawn_pump(this.which, None);
                    }
                }
                Stage::Done => return Poll::Ready(()),
            }
        }
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Gather { .. } => self.engine.spawn_pump(self.which, None),
            Stage::Fly(flight) => self.engine.spawn_pump(self.which, Some(flight)),
            Stage::Done => {}
        }
    }
}

impl Engine {
    pub(crate) fn lane(&self, which: Which) -> &Lane {
        match which {
            Which::Asks => &self.asks,
            Which::Renewals => &self.renewals,
        }
    }

    /// Whether a sender steps aside, so that operations gather: the store is better for it, and others are about.
    pub(super) fn wants_gathering(&self) -> bool {
        self.store.capability().gathers && self.live.load(std::sync::atomic::Ordering::Relaxed) > 1
    }

    /// Adds operations and sends them from the returned future, or from whoever is sending already.
    pub(crate) fn send(
        self: &Arc<Self>,
        which: Which,
        jobs: impl IntoIterator<Item = Job>,
    ) -> Drive {
        let lane = self.lane(which);
        lane.push(jobs);
        let stage =
            if lane.claim_seat() { Stage::Gather { stepped_aside: false } } else { Stage::Done };
        Drive { engine: self.clone(), which, stage }
    }

    /// Adds operations that nobody stays for.
    pub(crate) fn post(self: &Arc<Self>, which: Which, jobs: impl IntoIterator<Item = Job>) {
        let jobs: Vec<_> = jobs.into_iter().filter_map(|job| self.release_now(job)).collect();
        if !jobs.is_empty() {
            drop(self.send(which, jobs));
        }
    }

    /// Carries out a release nobody waits for, where the store does so at once: it comes before whatever its client asks
    /// next, and needs no task. Gives back any other job.
    fn release_now(self: &Arc<Self>, job: Job) -> Option<Job> {
        let Target::Forget(_) = &job.target else { return Some(job) };
        let Some(answer) = self.answer_now(&job.operation, self.clock.now()) else {
            return Some(job);
        };
        if let Target::Forget(release) = job.target {
            self.release_answered(*release, answer);
        }
        None
    }

    /// Sends what there is from a task that has taken over a driver's seat.
    pub(super) fn spawn_pump(self: &Arc<Self>, which: Which, flight: Option<Flight>) {
        let engine = self.clone();
        // On a runtime that has shut down this does nothing: leases then end by their TTL.
        self.runtime.spawn(async move {
            if let Some(mut flight) = flight {
                std::future::poll_fn(|cx| flight.poll_land(&engine, cx)).await;
            }
            loop {
                if engine.wants_gathering() {
                    tokio::task::yield_now().await;
                }
                let Some(jobs) = engine.lane(which).next_batch() else { return };
                let mut flight = Flight::start(&engine, jobs);
                std::future::poll_fn(|cx| flight.poll_land(&engine, cx)).await;
            }
        });
    }
}
