//! Why nothing was done in a transaction.

use std::{error, fmt};

use leaseward::Error;

use crate::JobId;

/// Why nothing was done in a transaction; `E` is the driver's own error.
#[non_exhaustive]
#[derive(Debug)]
pub enum TxError<E> {
    /// The job has ended, or was given to another worker: this attempt was taken for dead. The transaction cannot commit
    /// anything any more.
    Stale(JobId),
    /// What was asked for cannot be, or the queue was not reached. The transaction is as it was.
    Queue(Error),
    /// The database or its connection failed.
    Driver(E),
}

impl<E> TxError<E> {
    /// Whether the job was given to another worker.
    pub fn is_stale(&self) -> bool {
        matches!(self, Self::Stale(_))
    }
}

impl<E: fmt::Display> fmt::Display for TxError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale(id) => write!(f, "job {id} has ended, or was given to another worker"),
            Self::Queue(error) => error.fmt(f),
            Self::Driver(error) => error.fmt(f),
        }
    }
}

impl<E: error::Error + 'static> error::Error for TxError<E> {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Stale(_) => None,
            Self::Queue(error) => error.source(),
            Self::Driver(error) => error.source(),
        }
    }
}

impl<E> From<Error> for TxError<E> {
    fn from(error: Error) -> Self {
        Self::Queue(error)
    }
}
