//! What a handler knows of its attempt.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use leaseward::{Error, ErrorKind, Fence, clock::Moment};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    JobId, Queue,
    session::{Control, Life},
};

/// One attempt at a job. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Context {
    pub(super) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) queue: Queue,
    pub(super) name: Arc<str>,
    pub(super) id: JobId,
    pub(super) token: i64,
    pub(super) attempt: u32,
    pub(super) trace: Option<Box<str>>,
    pub(super) life: Arc<Life>,
    pub(super) control: Arc<Control>,
    pub(super) noted: AtomicBool,
    pub(super) in_transaction: AtomicBool,
}

impl Context {
    /// Which job.
    pub fn id(&self) -> JobId {
        self.inner.id
    }

    /// Its queue.
    pub fn queue(&self) -> &str {
        &self.inner.name
    }

    /// Which attempt this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.inner.attempt
    }

    /// Larger than that of every attempt at this job before, on the scale of Leaseward's locks: show it to whatever the job
    /// changes outside of the database, so that an attempt that was taken for dead changes nothing any more
    /// ([`leaseward::fenced`]). Jobs that were claimed together share it.
    pub fn fence(&self) -> Fence {
        Fence::new(u64::try_from(self.inner.token).unwrap_or(0))
    }

    /// The trace of whoever pushed the job, as a W3C `traceparent`.
    pub fn trace(&self) -> Option<&str> {
        self.inner.trace.as_deref()
    }

    /// Under which session of this process the job was claimed: jobs of one session have one [deadline](Self::deadline).
    pub fn session(&self) -> u64 {
        self.inner.life.id.unsigned_abs()
    }

    /// Until when the job is this attempt's, as far as is known: moves with each sign of life of the process. Whatever the
    /// attempt has started outside of it is to be over by then.
    pub fn deadline(&self) -> Moment {
        self.inner.life.deadline()
    }

    /// Whether the attempt is to stop: cancelled, lost, or the worker has waited long enough for it.
    pub fn is_stopped(&self) -> bool {
        self.inner.control.stopped().is_some()
    }

    /// Resolves when the attempt is to stop. The handler is dropped at that moment; this is for what it has started.
    ///
    /// # Cancel safety
    /// Cancel safe: ask again at any time.
    pub async fn stopped(&self) {
        self.inner.control.told().await;
    }

    /// Resolves when the job is lost: this process was taken for dead, and another one may have it.
    ///
    /// If it was lost because the database was not reached in time, it is put back, and has lost no attempt, as soon as the
    /// database answers and the last clone of this context was dropped. Whatever the attempt has started outside of the
    /// handler keeps one until it is over.
    ///
    /// # Cancel safety
    /// Cancel safe: ask again at any time.
    pub async fn lost(&self) {
        use crate::session::Stop;
        if !matches!(self.inner.control.told().await, Stop::Lost | Stop::Late) {
            std::future::pending::<()>().await;
        }
    }

    /// Notes how far the job is: shown by [`Queue::job`], and found by the next attempt, should this one fail.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if the job has been given to another; [`ErrorKind::InvalidInput`] if the value cannot be written
    /// as JSON; else what the database says.
    ///
    /// # Cancel safety
    /// Cancelled, it may or may not be noted.
    pub async fn checkpoint<T: Serialize + ?Sized>(&self, value: &T) -> Result<(), Error> {
        let value = serde_json::to_vec(value).map_err(|error| {
            Error::new(ErrorKind::InvalidInput, "the checkpoint cannot be written as JSON")
                .caused_by(error)
        })?;
        let inner = &self.inner;
        inner.noted.store(true, Ordering::Release);
        let backend = &inner.queue.inner.backend;
        if backend.note(inner.life.id, inner.token, inner.id, value).await? {
            Ok(())
        } else {
            Err(stale(inner.id))
        }
    }

    /// What an attempt before this one, or this one, noted last.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if it is of another type; else what the database says.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub async fn last_checkpoint<T: DeserializeOwned>(&self) -> Result<Option<T>, Error> {
        let Some(noted) = self.inner.queue.inner.backend.noted(self.inner.id).await? else {
            return Ok(None);
        };
        // It is to be forgotten with the job, whoever wrote it.
        self.inner.noted.store(true, Ordering::Release);
        serde_json::from_slice(&noted).map(Some).map_err(|error| {
            Error::new(ErrorKind::InvalidInput, "the checkpoint is of another type")
                .caused_by(error)
        })
    }

    /// Notes that a transaction of the user's completes the job, unless it is rolled back.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn completes(&self) -> (i64, i64, i64) {
        self.inner.in_transaction.store(true, Ordering::Release);
        (self.inner.life.id, self.inner.token, self.inner.id.get())
    }

    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn handle(&self) -> &Queue {
        &self.inner.queue
    }
}

/// A job that was given to another.
pub(crate) fn stale(id: JobId) -> Error {
    Error::new(ErrorKind::Lost, format!("job {id} has ended, or was given to another worker"))
        .hint("this attempt was taken for dead; stop, and change nothing")
}
