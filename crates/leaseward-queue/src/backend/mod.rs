//! The seam: what a database does for a queue. Dumb and atomic; everything clever is done above it, once.
//!
//! Each call is one transaction. Tokens are fences: a later lease of a job has a larger one, whatever clocks do, because
//! every place in which a job can lie remembers the last it had.

#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;

use std::{fmt, sync::Arc};

use leaseward::{Error, ErrorKind, clock::BoxFuture, store::StoreUrl};

use crate::{
    JobId,
    view::{JobState, QueueStats},
};

/// What a call comes to.
pub(crate) type Answer<'a, T> = BoxFuture<'a, Result<T, Error>>;

/// One job to be pushed. A due time of zero is now, below zero counted from now, above zero microseconds since the epoch.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// Queue and priority: an id without its number.
    pub(crate) slot: i64,
    pub(crate) due_us: i64,
    pub(crate) key: Option<Box<str>>,
    /// The key, and for how long: zero until the job has ended.
    pub(crate) unique: Option<(Box<str>, i64)>,
    pub(crate) body: Vec<u8>,
}

impl Row {
    /// Whether nothing but inserting it is to be done.
    pub(crate) fn is_plain(&self) -> bool {
        self.due_us == 0 && self.key.is_none() && self.unique.is_none()
    }
}

/// What became of jobs that were pushed, in their order.
#[derive(Debug)]
pub(crate) struct Pushes {
    /// The id, and whether the job is new or was there under its unique key.
    pub(crate) jobs: Vec<(JobId, bool)>,
    /// Whether a worker of another process sleeps.
    pub(crate) others_sleep: bool,
}

/// Jobs claimed together.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) token: i64,
    pub(crate) jobs: Vec<Leased>,
}

#[derive(Debug)]
pub(crate) struct Leased {
    pub(crate) id: JobId,
    pub(crate) key: Option<Box<str>>,
    pub(crate) body: Vec<u8>,
}

/// A lease whose session had ended.
#[derive(Debug)]
pub(crate) struct Adopted {
    pub(crate) lease: Lease,
    /// Jobs of it that a transaction of the user's has completed.
    pub(crate) finished: Vec<JobId>,
    /// Whose it was.
    pub(crate) who: String,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) queue: i32,
    /// The newest token this session has had.
    pub(crate) last: i64,
    pub(crate) count: u32,
    /// Those that may have killed their worker, instead of all others.
    pub(crate) alone: bool,
}

/// What a claim found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Found {
    /// As many as were wanted, or all there were.
    #[default]
    All,
    Paused,
    /// No more may run of this queue.
    Limited,
    /// Some were put aside because of their keys: there may be more behind them.
    Aside,
    /// Nothing, because the session has ended.
    Over,
}

/// What becomes of a job.
#[derive(Clone, Debug)]
pub(crate) enum Fate {
    Done,
    /// Done, and remembered for a while.
    Kept {
        body: Vec<u8>,
        result: Option<Vec<u8>>,
        for_us: i64,
    },
    /// Cancelled, and remembered for a while if there is a body.
    Cancelled {
        kept: Option<(Vec<u8>, i64)>,
    },
    /// Failed, to be tried again; `alone` if its worker vanished.
    Retry {
        body: Vec<u8>,
        after_us: i64,
        alone: bool,
    },
    Snoozed {
        body: Vec<u8>,
        after_us: i64,
    },
    /// Broken off, and not by the job.
    Interrupted {
        body: Vec<u8>,
        after_us: i64,
    },
    /// As if it had never been claimed.
    Back {
        body: Vec<u8>,
    },
    Dead {
        body: Vec<u8>,
    },
}

/// The end of one job under one lease.
#[derive(Clone, Debug)]
pub(crate) struct Ending {
    pub(crate) token: i64,
    pub(crate) id: JobId,
    pub(crate) fate: Fate,
    pub(crate) key: Option<Box<str>>,
    pub(crate) unique: Option<Box<str>>,
    /// Whether something may have been noted of its progress.
    pub(crate) noted: bool,
}

impl Ending {
    /// Whether nothing but the lease knows of the job.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self.fate, Fate::Done)
            && self.key.is_none()
            && self.unique.is_none()
            && !self.noted
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Settle {
    /// Leases of which nothing is left after this.
    pub(crate) ended: Vec<i64>,
    pub(crate) endings: Vec<Ending>,
    /// Whether transactions of the user's may have completed some: then leases may be busy.
    pub(crate) in_transactions: bool,
}

/// Ends jobs and claims others, in one transaction.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) session: i64,
    pub(crate) settle: Settle,
    pub(crate) claim: Option<Claim>,
}

#[derive(Debug, Default)]
pub(crate) struct Turned {
    /// Leases that were still this session's: what was settled of others has not happened.
    pub(crate) ours: Vec<i64>,
    /// Leases that a transaction of the user's is at work on: to be settled later.
    pub(crate) busy: Vec<i64>,
    /// Queues in which something has become possible for others.
    pub(crate) freed: Vec<i32>,
    pub(crate) lease: Option<Lease>,
    pub(crate) found: Found,
}

#[derive(Debug)]
pub(crate) struct Promoted {
    pub(crate) count: u64,
    pub(crate) queues: Vec<i32>,
    /// Until the next is due, if there is one.
    pub(crate) pause_us: Option<i64>,
}

/// What became of a cancellation.
#[derive(Debug)]
pub(crate) enum Cancelling {
    NoSuchJob,
    TakenOut,
    /// Its worker was told, if it listens: its session.
    Told(i64),
}

/// A change of a queue's setup.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    Paused(bool),
    Limit(Option<u32>),
    KeyLimit(u32),
}

/// A job as it lies in the database.
#[derive(Debug)]
pub(crate) struct Raw {
    pub(crate) id: JobId,
    pub(crate) state: JobState,
    /// When it is due, began or ended: microseconds since the epoch.
    pub(crate) at_us: Option<i64>,
    pub(crate) fence: Option<i64>,
    pub(crate) key: Option<Box<str>>,
    pub(crate) who: Option<String>,
    /// It is leased to a session that has ended.
    pub(crate) is_orphaned: bool,
    pub(crate) body: Vec<u8>,
    pub(crate) result: Option<Vec<u8>>,
    pub(crate) progress: Option<Vec<u8>>,
}

/// What others tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// There may be something to claim in a queue.
    Work(i32),
    /// Something may have happened, nobody says what: messages may have been missed.
    Anything,
    /// Something later than now was pushed.
    Later,
    /// A job of a session is to be cancelled.
    Cancel(i64),
}

/// Gets what others tell.
pub(crate) type Ear = Arc<dyn Fn(Told) + Send + Sync>;

pub(crate) trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Where it is, without secrets.
    fn location(&self) -> String;
    /// The schema of its tables, where there is such a thing.
    fn schema(&self) -> Option<&str>;
    /// The URL under which the locks of this queue are kept.
    fn locks_url(&self) -> &str;
    /// The number of a queue, which is made if it is not there.
    fn queue(&self, name: String) -> Answer<'_, i32>;
    /// With `tells`, others that sleep are told at the commit of what they can begin now, where that can be.
    fn push(&self, session: i64, jobs: Vec<Row>, tells: bool) -> Answer<'_, Pushes>;
    /// Not cancel safe: it may be carried out. What was settled twice is not `ours` the second time.
    fn turn(&self, turn: Turn) -> Answer<'_, Turned>;
    fn begin(&self, session: i64, who: String, ttl_us: i64) -> Answer<'_, ()>;
    /// A sign of life; `false` if the session has ended.
    fn beat(&self, session: i64, ttl_us: i64, idle: bool) -> Answer<'_, bool>;
    /// Jobs of a session that are to be cancelled. Only reads.
    fn cancelled(&self, session: i64) -> Answer<'_, Vec<JobId>>;
    /// Leases of a session that it does not know of, because the answer to its claim was lost.
    fn strays(&self, session: i64, known: Vec<i64>) -> Answer<'_, Vec<Lease>>;
    fn leave(&self, session: i64) -> Answer<'_, ()>;
    fn promote(&self, session: i64, count: u32) -> Answer<'_, Promoted>;
    fn adopt(&self, session: i64, last: i64, count: u32) -> Answer<'_, Vec<Adopted>>;
    /// Forgets what is over; answers whether there may be more.
    fn tidy(&self, dead_for_us: i64) -> Answer<'_, bool>;
    /// Tells others.
    fn tell(&self, what: Vec<Told>) -> Answer<'_, ()>;
    /// Begins to hear what others tell, if possible.
    fn listen(&self, ear: Ear);
    fn cancel(&self, session: i64, id: JobId) -> Answer<'_, Cancelling>;
    /// Puts a dead letter back with this body.
    fn replay(&self, session: i64, id: JobId, body: Vec<u8>) -> Answer<'_, bool>;
    fn list(
        &self,
        queue: i32,
        state: JobState,
        after: Option<JobId>,
        count: u32,
    ) -> Answer<'_, Vec<Raw>>;
    fn find(&self, id: JobId) -> Answer<'_, Option<Raw>>;
    fn stats(&self) -> Answer<'_, Vec<QueueStats>>;
    /// Whether nothing of a queue is ready, due, put aside or leased.
    fn is_drained(&self, queue: i32) -> Answer<'_, bool>;
    fn configure(&self, session: i64, queue: i32, change: Change) -> Answer<'_, ()>;
    /// Pushes a job unless that was done for this or a later time; with no job it only remembers the time.
    fn fire(
        &self,
        session: i64,
        name: String,
        at_us: i64,
        job: Option<Row>,
    ) -> Answer<'_, Option<Pushes>>;
    /// When a periodic job was last fired.
    fn last_fired(&self, name: String) -> Answer<'_, Option<i64>>;
    /// Notes how far a job is; `false` if the lease is gone.
    fn note(&self, session: i64, token: i64, id: JobId, value: Vec<u8>) -> Answer<'_, bool>;
    fn noted(&self, id: JobId) -> Answer<'_, Option<Vec<u8>>>;
    fn close(&self) -> Answer<'_, ()>;
}

/// Opens what a URL names.
pub(crate) async fn open(url: &str, who: &str) -> Result<Arc<dyn Backend>, Error> {
    let parsed = StoreUrl::parse(url)?;
    match parsed.scheme.as_str() {
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => {
            Ok(Arc::new(postgres::Postgres::open(url, &parsed, who).await?))
        }
        #[cfg(feature = "sqlite")]
        "sqlite" => Ok(Arc::new(sqlite::Sqlite::open(&parsed).await?)),
        other => {
            let _ = who;
            Err(unknown(other))
        }
    }
}

/// Brings the tables that a URL names to a version, or to the newest; answers whether there was something to do.
pub(crate) async fn migrate(url: &str, version: Option<usize>) -> Result<bool, Error> {
    let parsed = StoreUrl::parse(url)?;
    match parsed.scheme.as_str() {
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => postgres::Postgres::migrate(&parsed, version).await,
        #[cfg(feature = "sqlite")]
        "sqlite" => sqlite::Sqlite::migrate(&parsed, version).await,
        other => {
            let _ = version;
            Err(unknown(other))
        }
    }
}

fn unknown(scheme: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("no queue is kept in a `{scheme}:`")).hint(
        "in `postgres://user@host/database` or `sqlite:app.db`; both are features of the crate",
    )
}
