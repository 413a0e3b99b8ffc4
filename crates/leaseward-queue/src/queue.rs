//! The handle on a database full of queues.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use leaseward::{Error, ErrorKind, Locks};
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use crate::{
    JobId, NewJob, Pushed,
    backend::{self, Backend, Cancelling, Change, Told},
    body::Body,
    crew::Crew,
    cron::Schedules,
    events::{Event, Events, wall_us},
    id::QUEUES_MAX,
    job::check,
    push::Pusher,
    session::Sessions,
    view::{JobState, JobView, QueueStats},
    wake::Bells,
    worker::Policy,
};

/// How long a process that says nothing is taken for alive.
pub const TTL_DEFAULT: Duration = Duration::from_secs(15);

/// Shorter, and a busy machine would lose its jobs.
pub const TTL_MIN: Duration = Duration::from_millis(200);

/// How long dead letters are kept if not told otherwise.
const KEEP_DEAD: Duration = Duration::from_secs(30 * 24 * 3_600);

/// How many dead letters are replayed in one go.
const REPLAY_PAGE: u32 = 500;

/// The trace of whoever pushes, as a W3C `traceparent`.
pub(crate) type TraceSource = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// How a [`Queue`] is set up.
#[must_use = "nothing happens until it connects"]
pub struct Builder {
    pub(crate) ttl: Duration,
    pub(crate) who: Option<String>,
    pub(crate) keep_dead: Duration,
    pub(crate) trace: Option<TraceSource>,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("ttl", &self.ttl)
            .field("who", &self.who)
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// How long a process that says nothing is taken for alive, and so the longest time until the jobs of one that was
    /// killed run elsewhere, but for a second: 15 s if not set, at least 200 ms. Signs of life are sent three times as often.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl.max(TTL_MIN);
        self
    }

    /// How this process is shown to others; `host:pid` if not set.
    pub fn who(mut self, who: impl Into<String>) -> Self {
        self.who = Some(who.into());
        self
    }

    /// How long dead letters are kept: 30 days if not set.
    pub fn keep_dead(mut self, time: Duration) -> Self {
        self.keep_dead = time;
        self
    }

    /// Where the trace of whoever pushes a job is found, as a W3C `traceparent`: the job continues it
    /// ([`Context::trace`](crate::Context::trace)).
    pub fn trace_with(
        mut self,
        source: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.trace = Some(Arc::new(source));
        self
    }

    /// Opens the database a URL names, and makes the tables that are missing.
    ///
    /// # Errors
    /// As [`Queue::open`].
    ///
    /// # Cancel safety
    /// Cancel safe: tables may have been made.
    pub async fn connect(self, url: &str) -> Result<Queue, Error> {
        let who = self.who.clone().unwrap_or_else(who);
        check(&who, "an identity")?;
        let backend = backend::open(url, &who).await?;
        let inner = Arc::new_cyclic(|me: &Weak<Inner>| Inner {
            me: me.clone(),
            numbers: Mutex::default(),
            bells: Arc::new(Bells::new(backend.clone())),
            sessions: Sessions::new(backend.clone(), who, self.ttl),
            events: Events::default(),
            pusher: Pusher::default(),
            locks: OnceCell::new(),
            crew: Crew::default(),
            schedules: Mutex::default(),
            policies: Mutex::default(),
            builder: self,
            backend,
        });
        Ok(Queue { inner })
    }
}

/// `host:pid`.
fn who() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = match host.trim() {
        "" => std::env::var("HOSTNAME").unwrap_or_else(|_| "localhost".to_owned()),
        host => host.to_owned(),
    };
    format!("{host}:{}", std::process::id())
}

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
        Builder { ttl: TTL_DEFAULT, who: None, keep_dead: KEEP_DEAD, trace: None }
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
        let mut rows = Vec::new();
        for job in jobs {
            rows.push(self.row(job).await?);
        }
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let pushed = self.inner.push_together(rows).await?;
        Ok(pushed.into_iter().map(Pushed::of).collect())
    }

    /// Wakes the workers of a queue in this process: after the commit of a transaction that pushed jobs, where nobody waits
    /// for the next look.
    pub fn wake(&self, queue: &str) {
        if let Some(number) = self.inner.numbers.lock().get(queue) {
            self.inner.bells.ring(*number);
        }
    }

    /// The row of a job.
    pub(crate) async fn row(&self, job: NewJob) -> Result<backend::Row, Error> {
        let number = self.inner.number(job.queue()).await?;
        let trace = self.inner.builder.trace.as_ref().and_then(|source| source());
        job.row(number, wall_us(), trace)
    }

    /// Cancels a job. One that has not begun is taken out at once; the worker of one that runs is told, and stops it.
    ///
    /// # Errors
    /// What the database says.
    ///
    /// # Cancel safety
    /// Cancelled, the job may or may not be.
    pub async fn cancel(&self, id: JobId) -> Result<Cancelled, Error> {
        let session = self.inner.sessions.shard();
        match self.inner.backend.cancel(session, id).await? {
            Cancelling::NoSuchJob => Ok(Cancelled::NoSuchJob),
            Cancelling::TakenOut => Ok(Cancelled::TakenOut),
            Cancelling::Told(owner) => {
                self.inner.bells.tell(Told::Cancel(owner));
                Ok(Cancelled::Told)
            }
        }
    }

    /// Puts a dead letter back into its queue, with all its attempts before it; its history stays. `false` if there is no
    /// such dead letter.
    ///
    /// # Errors
    /// What the database says.
    ///
    /// # Cancel safety
    /// Cancelled, it may or may not be put back.
    pub async fn replay(&self, id: JobId) -> Result<bool, Error> {
        let Some(raw) =
            self.inner.backend.find(id).await?.filter(|raw| raw.state == JobState::Dead)
        else {
            return Ok(false);
        };
        self.put_back(id, &raw.body).await
    }

    /// Puts all dead letters of a queue back into it; how many there were.
    ///
    /// # Errors
    /// What the database says; some may have been put back.
    ///
    /// # Cancel safety
    /// Cancelled, some may have been put back.
    pub async fn replay_all(&self, queue: &str) -> Result<u64, Error> {
        let number = self.inner.number(queue).await?;
        let (mut count, mut after) = (0, None);
        loop {
            let page = self.inner.backend.list(number, JobState::Dead, after, REPLAY_PAGE).await?;
            let Some(last) = page.last() else { return Ok(count) };
            after = Some(last.id);
            for raw in page {
                count += u64::from(self.put_back(raw.id, &raw.body).await?);
            }
        }
    }

    async fn put_back(&self, id: JobId, body: &[u8]) -> Result<bool, Error> {
        let mut body = Body::decode(body)?;
        body.failures = 0;
        let done =
            self.inner.backend.replay(self.inner.sessions.shard(), id, body.encode()).await?;
        if done {
            self.inner.bells.work(id.queue());
        }
        Ok(done)
    }

    /// One job; `None` if it has ended and is not kept, or never was.
    ///
    /// # Errors
    /// What the database says.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub async fn job(&self, id: JobId) -> Result<Option<JobView>, Error> {
        self.inner.backend.find(id).await?.map(JobView::new).transpose()
    }

    /// Jobs of a queue in one state, in the order of their ids, which is that of claims; `after` is where the last page ended.
    ///
    /// # Errors
    /// What the database says.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub async fn jobs(
        &self,
        queue: &str,
        state: JobState,
        after: Option<JobId>,
        count: u32,
    ) -> Result<Vec<JobView>, Error> {
        let number = self.inner.number(queue).await?;
        let page = self.inner.backend.list(number, state, after, count).await?;
        page.into_iter().map(JobView::new).collect()
    }

    /// All queues, from counters: as quick with a million jobs as with none.
    ///
    /// # Errors
    /// What the database says.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub async fn stats(&self) -> Result<Vec<QueueStats>, Error> {
        self.inner.backend.stats().await
    }

    /// Whether no job of a queue is ready, put aside, or leased to anyone. What is to be run later does not count.
    ///
    /// # Errors
    /// What the database says.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub async fn is_drained(&self, queue: &str) -> Result<bool, Error> {
        let number = self.inner.number(queue).await?;
        self.inner.backend.is_drained(number).await
    }

    /// Has nothing of a queue claimed any more; what runs goes on.
    ///
    /// # Errors
    /// What the database says.
    ///
    /// # Cancel safety
    /// Cancelled, it may or may not be paused.
    pub async fn pause(&self, queue: &str) -> Result<(), Error> {
        self.configure(queue, Change::Paused(true)).await
    }

    /// Has a queue claimed again.
    ///
    /// # Errors
    /// What the database says.
    ///
    /// # Cancel safety
    /// Cancelled, it may or may not be resumed.
    pub async fn resume(&self, queue: &str) -> Result<(), Error> {
        self.configure(queue, Change::Paused(false)).await
    }

    /// How many jobs of a queue run at once, in all processes together. Those that run already are not counted.
    ///
    /// # Errors
    /// What the database says.
    ///
    /// # Cancel safety
    /// Cancelled, it may or may not be set.
    pub async fn set_limit(&self, queue: &str, limit: Option<u32>) -> Result<(), Error> {
        self.configure(queue, Change::Limit(limit)).await
    }

    /// How many jobs of one [key](NewJob::key) run at once, in all processes together: one if not set.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for zero; else what the database says.
    ///
    /// # Cancel safety
    /// Cancelled, it may or may not be set.
    pub async fn set_key_limit(&self, queue: &str, limit: u32) -> Result<(), Error> {
        if limit == 0 {
            return Err(Error::new(ErrorKind::InvalidInput, "no job of a key could ever run")
                .hint("pause the queue instead"));
        }
        self.configure(queue, Change::KeyLimit(limit)).await
    }

    async fn configure(&self, queue: &str, change: Change) -> Result<(), Error> {
        let number = self.inner.number(queue).await?;
        self.inner.backend.configure(self.inner.sessions.shard(), number, change).await?;
        self.inner.bells.work(number);
        Ok(())
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

/// What became of a cancellation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// It had not begun, and never will.
    TakenOut,
    /// It runs, and its worker was told to stop it.
    Told,
    /// There is no such job, or it has ended.
    NoSuchJob,
}

impl Inner {
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

    /// The locks by which one process at a time keeps the queue going. `None` if there are none to be had: then all do.
    pub(crate) async fn locks(&self) -> Option<&Locks> {
        let locks = self.locks.get_or_init(|| async {
            match leaseward::connect(self.backend.locks_url()).await {
                Ok(locks) => Some(locks),
                Err(error) => {
                    tracing::warn!(target: "leaseward_queue", error = %error, "no locks: every process keeps the queue going");
                    None
                }
            }
        });
        locks.await.as_ref()
    }
}

/// Makes or renews the tables that a URL names, as a user who may; for those whose programs may not.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] for a URL that names no queue; else what the database says.
///
/// # Cancel safety
/// Cancel safe: either all of it is made or nothing.
pub async fn migrate(url: &str) -> Result<(), Error> {
    backend::migrate(url, None).await
}

/// Makes the tables as an earlier version had them: for tests of what comes after it.
#[doc(hidden)]
pub async fn migrate_to(url: &str, version: usize) -> Result<(), Error> {
    backend::migrate(url, Some(version)).await
}

pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::ShutDown, "this queue is closed")
}

pub(crate) fn too_many() -> Error {
    Error::new(ErrorKind::Refused, format!("there are {QUEUES_MAX} queues already"))
        .hint("jobs of many customers share a queue: give them a key each")
}
