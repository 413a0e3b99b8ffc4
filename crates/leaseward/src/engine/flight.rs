//! A batch under way to the store.
//!
//! Releases never hang, whatever the store does. They have no timers of their own for that: the batch has one for all of
//! them, and for those that have to wait until it is answered.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll, ready},
    time::Duration,
    vec,
};

use tokio::sync::oneshot;

use super::{
    Engine,
    drive::Rest,
    lane::{Job, Target, Which},
};
use crate::{
    Error, ErrorKind,
    clock::{BoxFuture, Moment},
    store::Answer,
};

/// So long after it was sent, who gives leases back is told that nobody knows.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Followed to its answers, or told apart as unknown: whatever becomes of it, every operation is answered once.
pub(super) struct Flight {
    engine: Weak<Engine>,
    answers: BoxFuture<'static, Vec<Answer>>,
    targets: vec::IntoIter<Target>,
    sent: Moment,
    which: Which,
    /// For how many its lane counts it, and the room they took there.
    counted: usize,
    room: Vec<Job>,
    /// Until releases have waited long enough.
    patience: Option<BoxFuture<'static, ()>>,
    /// Follows once this is under way: what gathered first is sent first.
    rest: Option<Rest>,
}

impl Flight {
    pub(super) fn of_one(
        engine: &Arc<Engine>,
        which: Which,
        answers: BoxFuture<'static, Vec<Answer>>,
        target: Target,
        sent: Moment,
    ) -> Self {
        let (engine, targets) = (Arc::downgrade(engine), vec![target].into_iter());
        let (counted, room) = (0, Vec::new());
        Self { engine, answers, targets, sent, which, counted, room, patience: None, rest: None }
    }

    pub(super) fn start(
        engine: &Arc<Engine>,
        which: Which,
        mut jobs: Vec<Job>,
        rest: Option<Rest>,
    ) -> Self {
        // Two batches that take rows in one order never deadlock in a database. Stable: operations on one name stay in
        // their order.
        jobs.sort_by(|a, b| a.operation.name().cmp(b.operation.name()));
        let mut targets = Vec::with_capacity(jobs.len());
        let mut batch = Vec::with_capacity(jobs.len());
        for job in jobs.drain(..) {
            targets.push(job.target);
            batch.push(job.operation);
        }
        // Before the store sees it: deadlines count from here.
        let sent = engine.clock.now();
        // The store's timers are those of the engine's runtime, wherever this is called: the caller's may end before.
        let _here = engine.runtime.enter();
        let answers = engine.store.submit(batch);
        let (engine, counted) = (Arc::downgrade(engine), targets.len());
        let targets = targets.into_iter();
        Self { engine, answers, targets, sent, which, counted, room: jobs, patience: None, rest }
    }

    /// It takes no share of the lane any more.
    fn count_out(&mut self, engine: &Engine) {
        let (count, room) = (std::mem::take(&mut self.counted), std::mem::take(&mut self.room));
        engine.lane(self.which).landed(count, room);
    }

    /// Tells releases that have waited long enough, here and behind this, that nobody knows.
    fn poll_patience(&mut self, engine: &Arc<Engine>, cx: &mut Context<'_>) {
        let first = || engine.clock.sleep_until(self.sent + PATIENCE);
        let mut patience = self.patience.take().unwrap_or_else(first);
        while patience.as_mut().poll(cx).is_ready() {
            for target in self.targets.as_mut_slice() {
                if let Target::Tell(tell, None) = target {
                    let nobody = oneshot::channel().0;
                    let _ = std::mem::replace(tell, nobody).send((self.sent, Err(unheard())));
                }
            }
            for job in engine.lane(self.which).take_told_releases() {
                engine.dispatch(job.target, self.sent, Err(unsent()), engine.clock.now());
            }
            patience = engine.clock.sleep_until(engine.clock.now() + PATIENCE);
        }
        self.patience = Some(patience);
    }

    pub(super) fn poll_land(&mut self, engine: &Arc<Engine>, cx: &mut Context<'_>) -> Poll<()> {
        let here = engine.runtime.enter();
        let answers = self.answers.as_mut().poll(cx);
        self.rest = None;
        if answers.is_pending() {
            self.poll_patience(engine, cx);
        }
        drop(here);
        let answers = ready!(answers);
        self.count_out(engine);
        assert_eq!(answers.len(), self.targets.len(), "BUG: a store answers every operation");
        let now = engine.clock.now();
        for answer in answers {
            let Some(target) = self.targets.next() else { break };
            engine.dispatch(target, self.sent, answer, now);
        }
        Poll::Ready(())
    }
}

/// Its answers, and then nothing.
impl Future for Flight {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        match this.engine.upgrade() {
            Some(engine) => this.poll_land(&engine, cx),
            None => Poll::Ready(()),
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if self.targets.len() == 0 {
            return;
        }
        // It fell: somebody's code panicked, or the runtime ends.
        let Some(engine) = self.engine.upgrade() else { return };
        self.count_out(&engine);
        let now = engine.clock.now();
        for target in self.targets.by_ref() {
            engine.dispatch(target, self.sent, Err(unheard()), now);
        }
    }
}

fn unheard() -> Error {
    Error::new(ErrorKind::Indeterminate, "the store's answer was not heard")
}

fn unsent() -> Error {
    Error::new(ErrorKind::Unavailable, "the store has not answered what was asked of it before")
}
