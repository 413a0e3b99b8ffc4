//! The handle on a database full of queues.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Weak},
};

use leaseward::{Error, ErrorKind, Locks};
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use crate::{
    Builder, JobId, NewJob, Pushed,
    backend::{self, Backend},
    crew::Crew,
    cron::Schedules,
    events::{Event, Events, wall_us},
    id::QUEUES_MAX,
    job::check,
    push::Pusher,
    session::Sessions,
    wake::Bells,
    worker::Policy,
};

pub(crate) struct Inner {
    pub(crate) me: Weak<Self>,
    pub(crate) backend: Arc<dyn Backend>,
    numbers: Mutex<HashMap<String, i32>>,
    pub(crate) bells: Arc<Bells>,
    pub(crate) sessions: Sessions,
    pub(crate) events: Events,
    pusher: Pusher,
    locks: OnceCell<Option<Locks>>,
    pub(crate) crew: Crew,
    pub(crate) schedules: Mutex<Schedules>,
    policies: Mutex<HashMap<i32, Policy>>,
    pub(crate) builder: Builder,
}

/// The queues of one database: pushes jobs, looks at them, makes [`Worker`](crate::Worker)s. Cheap to clone.
///
/// ```no_run
/// # async fn example() -> Result<(), leaseward_queue::Error> {
/// use leaseward_queue::{NewJob, Queue};
///
/// let queue = Queue::open("sqlite:app.db").await?; // or `postgres://…`: the same code
/// queue.push(NewJob::new("mail", "a@example.org")).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Queue {
    pub(crate) inner: Arc<Inner>,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("at", &self.location()).finish_non_exhaustive()
    }
}

impl Queue {
    /// Opens the database a URL names, with default settings, and makes the tables that are missing:
    /// `sqlite:app.db?durability=full`, or `postgres://user@host/database?schema=NAME` with the settings that the locks
    /// know. The tables are in the schema `NAME_queue` (`leaseward_queue`), or begin with `lq_`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a URL that names no queue; [`ErrorKind::Refused`] for tables of a newer version; else
    /// what the database says.
    ///
    /// # Cancel safety
    /// Cancel safe: tables may have been made.
    pub async fn open(url: &str) -> Result<Self, Error> {
        Self::builder().connect(url).await
    }

    /// Sets up a queue.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Where it is; no password in it.
    pub fn location(&self) -> String {
        self.inner.backend.location()
    }

    /// Calls back for every event in this process, on the thread where it happens: be quick, never block.
    pub fn on_event(&self, sink: impl Fn(&Event) + Send + Sync + 'static) {
        self.inner.events.add(Arc::new(sink));
    }

    /// Pushes a job. Once it answers, the job is in the database; jobs that many callers push at once travel together.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a job that cannot be; [`ErrorKind::Indeterminate`] if it may have been pushed: a
    /// [unique](NewJob::unique) key makes trying again safe.
    ///
    /// # Cancel safety
    /// Cancelled, the job may or may not be pushed.
    pub async fn push(&self, job: NewJob) -> Result<Pushed, Error> {
        let row = self.row(job).await?;
        self.inner.pusher.push(&self.inner, row).await.map(Pushed::of)
    }

    /// Pushes jobs together, all or none, in their order.
    ///
    /// # Errors
    /// As [`Queue::push`]; then nothing was pushed.
    ///
    /// # Cancel safety
    /// Cancelled, all of them or none may be pushed.
    pub async fn push_many(
        &self,
        jobs: impl IntoIterator<Item = NewJob>,
    ) -> Result<Vec<Pushed>, Error> {
        let rows = self.rows(jobs.into_iter().collect()).await?;
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let pushed = self.inner.push_together(rows).await?;
        Ok(pushed.into_iter().map(Pushed::of).collect())
    }

    /// Wakes the workers of a queue: after the commit of a transaction that pushed jobs, where nobody waits for the next
    /// look. Those of other processes are told too, unless it is called outside of a runtime.
    pub fn wake(&self, queue: &str) {
        let Some(number) = self.inner.numbers.lock().get(queue).copied() else { return };
        if tokio::runtime::Handle::try_current().is_ok() {
            self.inner.bells.work(number);
        } else {
            self.inner.bells.ring(number);
        }
    }

    /// The row of a job.
    pub(crate) async fn row(&self, job: NewJob) -> Result<backend::Row, Error> {
        job.check()?;
        let number = self.inner.number(job.queue()).await?;
        Ok(job.row(number, wall_us(), self.trace()))
    }

    /// The rows of jobs. None of their queues is made if something is wrong with one of them.
    pub(crate) async fn rows(&self, jobs: Vec<NewJob>) -> Result<Vec<backend::Row>, Error> {
        jobs.iter().try_for_each(NewJob::check)?;
        let mut rows = Vec::with_capacity(jobs.len());
        let (mut known, now) = (None::<(String, i32)>, wall_us());
        for job in jobs {
            // Most often all are of one queue.
            let number = match &known {
                Some((name, number)) if name == job.queue() => *number,
                _ => {
                    let number = self.inner.number(job.queue()).await?;
                    known = Some((job.queue().to_owned(), number));
                    number
                }
            };
            rows.push(job.row(number, now, self.trace()));
        }
        Ok(rows)
    }

    /// The trace in which a job is pushed that does not name one itself.
    fn trace(&self) -> Option<String> {
        self.inner.builder.trace.as_ref().and_then(|source| source())
    }

    /// Closes connections. Workers are to be ended before; what is asked afterwards fails.
    ///
    /// # Cancel safety
    /// Cancelled, it is closed when the last handle is dropped.
    pub async fn close(&self) {
        if let Some(Some(locks)) = self.inner.locks.get() {
            locks.shutdown().await;
        }
        // Closing cannot fail in a way that matters to anybody.
        let _ = self.inner.backend.close().await;
    }
}

impl Inner {
    pub(crate) fn new(builder: Builder, backend: Arc<dyn Backend>, who: String) -> Arc<Self> {
        Arc::new_cyclic(|me: &Weak<Inner>| Inner {
            me: me.clone(),
            numbers: Mutex::default(),
            bells: Arc::new(Bells::new(backend.clone())),
            sessions: Sessions::new(backend.clone(), who, builder.ttl),
            events: Events::default(),
            pusher: Pusher::default(),
            locks: OnceCell::new(),
            crew: Crew::default(),
            schedules: Mutex::default(),
            policies: Mutex::default(),
            builder,
            backend,
        })
    }

    /// The number of a queue.
    pub(crate) async fn number(&self, name: &str) -> Result<i32, Error> {
        if let Some(number) = self.numbers.lock().get(name) {
            return Ok(*number);
        }
        check(name, "the name of a queue")?;
        let number = self.backend.queue(name.to_owned()).await?;
        if number > QUEUES_MAX {
            return Err(too_many());
        }
        self.numbers.lock().insert(name.to_owned(), number);
        Ok(number)
    }

    /// The name of a queue that this process knows.
    pub(crate) fn name(&self, number: i32) -> String {
        let numbers = self.numbers.lock();
        let known = numbers.iter().find(|(_, known)| **known == number);
        known.map_or_else(|| format!("#{number}"), |(name, _)| name.clone())
    }

    /// How jobs of a queue are treated: as the last worker of it in this process does.
    pub(crate) fn policy(&self, number: i32) -> Policy {
        self.policies.lock().get(&number).copied().unwrap_or_default()
    }

    pub(crate) fn set_policy(&self, number: i32, policy: Policy) {
        self.policies.lock().insert(number, policy);
    }

    /// Pushes rows in one transaction, and tells whom it concerns.
    pub(crate) async fn push_together(
        &self,
        rows: Vec<backend::Row>,
    ) -> Result<Vec<(JobId, bool)>, Error> {
        crate::push::push(&*self.backend, &self.bells, self.sessions.shard(), rows).await
    }

    /// The locks by which one process at a time keeps the queue going. `None` if there are none to be had, for good or while
    /// the database is away: then all do.
    pub(crate) async fn locks(&self) -> Option<&Locks> {
        let may_pass = |error: &Error| {
            matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate)
        };
        let locks = self.locks.get_or_try_init(|| async {
            match leaseward::connect(self.backend.locks_url()).await {
                Ok(locks) => Ok(Some(locks)),
                Err(error) if may_pass(&error) => Err(error),
                Err(error) => {
                    tracing::warn!(target: "leaseward_queue", error = %error, "no locks: every process keeps the queue going");
                    Ok(None)
                }
            }
        });
        locks.await.ok()?.as_ref()
    }
}

/// Makes or renews the tables that a URL names, as a user who may; for those whose programs may not. Answers whether there
/// was something to do.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] for a URL that names no queue, [`ErrorKind::Refused`] for tables of a newer version; else what
/// the database says.
///
/// # Cancel safety
/// Cancel safe: either all of it is made or nothing.
pub async fn migrate(url: &str) -> Result<bool, Error> {
    backend::migrate(url, None).await
}

/// Makes the tables as an earlier version had them: for tests of what comes after it.
#[doc(hidden)]
pub async fn migrate_to(url: &str, version: usize) -> Result<bool, Error> {
    backend::migrate(url, Some(version)).await
}

pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::ShutDown, "this queue is closed")
}

pub(crate) fn too_many() -> Error {
    Error::new(ErrorKind::Refused, format!("there are {QUEUES_MAX} queues already"))
        .hint("jobs of many customers share a queue: give them a key each")
}
