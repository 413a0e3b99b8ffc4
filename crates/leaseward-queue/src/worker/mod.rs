//! Workers: claim jobs, run them, write down what came of them.
//!
//! A *pump* is the only one that talks to the database: one statement writes down everything that ended since the last one and
//! claims as much as can be used soon. *Runners* take jobs from a buffer. Neither waits for the other: while a statement is on
//! its way, runners work from the buffer, and what they finish gathers for the next one. When nothing is going on, the first
//! thing that ends is written down at once.

mod buffer;
mod context;
mod fate;
mod look;
mod pace;
mod pump;
mod runner;

use std::{
    future::{Future, pending},
    sync::Arc,
    time::Duration,
};

use leaseward::Error;
use serde::de::DeserializeOwned;

pub use self::context::Context;
pub(crate) use self::fate::{Chance, Policy};
use self::{buffer::Shared, pump::Pump, runner::Runner};
use crate::{Backoff, Ending, Failure, Queue};

/// Attempts that a job has if neither it nor the worker says otherwise.
pub const MAX_ATTEMPTS_DEFAULT: u32 = 25;

/// How many jobs are claimed ahead of need at most.
const PREFETCH: usize = 512;

/// How long jobs may take to finish once a worker is to end.
const GRACE: Duration = Duration::from_secs(30);

/// How often an idle worker looks, whether it was woken or not.
const POLL: Duration = Duration::from_secs(1);

/// What a worker did.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Jobs done.
    pub done: u64,
    /// Attempts that failed, those among them that were the last included.
    pub failed: u64,
    /// Jobs that failed for good.
    pub dead: u64,
    /// Jobs snoozed, cancelled or given back.
    pub other: u64,
    /// Attempts that were interrupted, and do not count.
    pub interrupted: u64,
    /// Attempts that were lost, or came too late.
    pub lost: u64,
}

/// Works on the jobs of one queue.
///
/// ```no_run
/// # async fn example() -> Result<(), leaseward_queue::Error> {
/// use leaseward_queue::{Context, Failure, Queue, Worker};
///
/// let queue = Queue::open("sqlite:app.db").await?;
/// Worker::new(&queue, "mail")
///     .concurrency(64)
///     .run(|to: String, context: Context| async move {
///         println!("attempt {} under fence {}: mail to {to}", context.attempt(), context.fence());
///         Ok::<(), Failure>(())
///     })
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing happens until it runs"]
pub struct Worker {
    queue: Queue,
    name: String,
    concurrency: usize,
    prefetch: usize,
    grace: Duration,
    poll: Duration,
    policy: Policy,
}

impl Worker {
    /// A worker of a queue.
    pub fn new(queue: &Queue, name: impl Into<String>) -> Self {
        Self {
            queue: queue.clone(),
            name: name.into(),
            concurrency: 8,
            prefetch: PREFETCH,
            grace: GRACE,
            poll: POLL,
            policy: Policy::default(),
        }
    }

    /// How many jobs run at once: 8 if not set.
    pub fn concurrency(mut self, jobs: usize) -> Self {
        self.concurrency = jobs.max(1);
        self
    }

    /// How many jobs are claimed ahead of need at most: 512 if not set. So many are claimed only of jobs that are done faster
    /// than the database answers; of slow ones none is claimed before it can run.
    pub fn prefetch(mut self, jobs: usize) -> Self {
        self.prefetch = jobs;
        self
    }

    /// How long to wait before a failed job is tried again.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.policy.backoff = backoff;
        self
    }

    /// After how many failed attempts a job is dead that does not say so itself: 25 if not set.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.policy.max_attempts = attempts.max(1);
        self
    }

    /// How long an attempt may take at a job that does not say so itself; without an end if not set.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.policy.timeout = Some(timeout);
        self
    }

    /// Remembers done and cancelled jobs, and their results, for this long; not at all if not set.
    pub fn keep(mut self, time: Duration) -> Self {
        self.policy.keep = Some(time);
        self
    }

    /// How long jobs may take to finish once the worker is to end, before they are given back: 30 s if not set.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// How often an idle worker looks for jobs even if nobody wakes it: about every second if not set.
    pub fn poll(mut self, interval: Duration) -> Self {
        self.poll = interval.max(Duration::from_millis(1));
        self
    }

    /// Works without end.
    ///
    /// The handler gets the payload and the [`Context`] of the attempt. If it ends well the job is done; if it fails or panics
    /// the job is tried again later, or is dead; if it takes too long, is cancelled or [lost](Context::lost), it is dropped. If
    /// it was lost because the database was not reached in time, the job is put back as interrupted.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](leaseward::ErrorKind) for a bad name; what the database says if it is not reached at the
    /// beginning. Later it is tried again.
    ///
    /// # Cancel safety
    /// Dropped, running handlers are dropped with it, and their jobs are run again once the session has ended.
    pub async fn run<T, H, F, R>(self, handler: H) -> Result<Summary, Error>
    where
        T: DeserializeOwned + Send + 'static,
        H: Fn(T, Context) -> F + Send + Sync + 'static,
        F: Future<Output = Result<R, Failure>> + Send + 'static,
        R: Into<Ending> + Send + 'static,
    {
        self.work(pending(), false, handler).await
    }

    /// Works until the future resolves; then claims nothing more, gives back what has not begun, waits for what runs (as
    /// long as [`Worker::grace`] says, then gives that back too), and writes everything down.
    ///
    /// # Errors
    /// As [`Worker::run`].
    ///
    /// # Cancel safety
    /// As [`Worker::run`].
    pub async fn run_until<T, H, F, R>(
        self,
        end: impl Future<Output = ()> + Send,
        handler: H,
    ) -> Result<Summary, Error>
    where
        T: DeserializeOwned + Send + 'static,
        H: Fn(T, Context) -> F + Send + Sync + 'static,
        F: Future<Output = Result<R, Failure>> + Send + 'static,
        R: Into<Ending> + Send + 'static,
    {
        self.work(end, false, handler).await
    }

    /// Works until no job of the queue is ready, due or leased to anyone, and none that this worker has interrupted is to run
    /// again, or the future resolves.
    ///
    /// # Errors
    /// As [`Worker::run`].
    ///
    /// # Cancel safety
    /// As [`Worker::run`].
    pub async fn drain<T, H, F, R>(
        self,
        end: impl Future<Output = ()> + Send,
        handler: H,
    ) -> Result<Summary, Error>
    where
        T: DeserializeOwned + Send + 'static,
        H: Fn(T, Context) -> F + Send + Sync + 'static,
        F: Future<Output = Result<R, Failure>> + Send + 'static,
        R: Into<Ending> + Send + 'static,
    {
        self.work(end, true, handler).await
    }

    async fn work<T, H, F, R>(
        self,
        end: impl Future<Output = ()> + Send,
        until_empty: bool,
        handler: H,
    ) -> Result<Summary, Error>
    where
        T: DeserializeOwned + Send + 'static,
        H: Fn(T, Context) -> F + Send + Sync + 'static,
        F: Future<Output = Result<R, Failure>> + Send + 'static,
        R: Into<Ending> + Send + 'static,
    {
        let number = self.queue.inner.number(&self.name).await?;
        let crew = self.queue.inner.enlist();
        let life = self.queue.inner.sessions.life().await?;
        self.queue.inner.set_policy(number, self.policy);
        let shared = Arc::new(Shared::new(self.concurrency));
        self.queue.inner.sessions.add(&shared.running);
        let runner = Arc::new(Runner {
            queue: self.queue.clone(),
            name: self.name.clone().into(),
            policy: self.policy,
            shared: shared.clone(),
            handler,
            types: std::marker::PhantomData,
        });
        let tasks =
            Tasks((0..self.concurrency).map(|_| tokio::spawn(runner.clone().run())).collect());
        let pump =
            Pump::new(self.queue.inner.clone(), &self, number, life, shared.clone(), until_empty);
        let pumping = pump.run();
        tokio::pin!(pumping, end);
        tokio::select! {
            () = &mut pumping => {}
            () = &mut end => {
                shared.stop();
                pumping.await;
            }
        }
        drop(tasks);
        crew.leave().await;
        let summary = *shared.summary.lock();
        Ok(summary)
    }
}

/// Tasks that end with the worker.
struct Tasks(Vec<tokio::task::JoinHandle<()>>);

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.iter().for_each(tokio::task::JoinHandle::abort);
    }
}
