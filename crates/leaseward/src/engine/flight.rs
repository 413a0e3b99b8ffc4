//! A batch under way to the store.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll, ready},
    vec,
};

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

/// Followed to its answers, or told apart as unknown: whatever becomes of it, every operation is answered once.
pub(super) struct Flight {
    engine: Weak<Engine>,
    answers: BoxFuture<'static, Vec<Answer>>,
    targets: vec::IntoIter<Target>,
    sent: Moment,
    /// The lane that counts it, and for how many.
    counted: (Which, usize),
    /// Follows once this is under way: what gathered first is sent first.
    rest: Option<Rest>,
}

impl Flight {
    pub(super) fn of_one(
        engine: &Arc<Engine>,
        answers: BoxFuture<'static, Vec<Answer>>,
        target: Target,
        sent: Moment,
    ) -> Self {
        let targets = vec![target].into_iter();
        let counted = (Which::Asks, 0);
        Self { engine: Arc::downgrade(engine), answers, targets, sent, counted, rest: None }
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
        for job in jobs {
            targets.push(job.target);
            batch.push(job.operation);
        }
        // Before the store sees it: deadlines count from here.
        let sent = engine.clock.now();
        // The store's timers are those of the engine's runtime, wherever this is called: the caller's may end before.
        let _here = engine.runtime.enter();
        let answers = engine.store.submit(batch);
        let counted = (which, targets.len());
        let (engine, targets) = (Arc::downgrade(engine), targets.into_iter());
        Self { engine, answers, targets, sent, counted, rest }
    }

    /// It takes no share of the lane any more.
    fn count_out(&mut self, engine: &Engine) {
        let (which, count) = self.counted;
        self.counted.1 = 0;
        engine.lane(which).landed(count);
    }

    pub(super) fn poll_land(&mut self, engine: &Arc<Engine>, cx: &mut Context<'_>) -> Poll<()> {
        let here = engine.runtime.enter();
        let answers = self.answers.as_mut().poll(cx);
        drop(here);
        self.rest = None;
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
            let unknown =
                Error::new(ErrorKind::Indeterminate, "nobody is left to hear the store's answer");
            engine.dispatch(target, self.sent, Err(unknown), now);
        }
    }
}
