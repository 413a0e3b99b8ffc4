//! How a try can fail, and which failures another try can mend.

use std::{error, fmt};

use super::{Conflict, SaveError};
use crate::fenced::{FencedError, StaleFence};

/// Why a try failed. Everything that happens inside of one becomes this with `?`; for errors of your own there is
/// [`Failure::other`].
#[non_exhaustive]
#[derive(Debug)]
pub enum Failure {
    /// A row is no longer what was read.
    Conflict(Conflict),
    /// The lock that was taken for a hot row was lost, or another fence was stale.
    Stale(StaleFence),
    /// The lock for a hot row could not be taken.
    Lock(crate::Error),
    /// PostgreSQL or its connection.
    #[cfg(feature = "postgres")]
    Postgres(tokio_postgres::Error),
    /// PostgreSQL or its connection, by sqlx.
    #[cfg(feature = "sqlx")]
    Sqlx(sqlx::Error),
    /// SQLite.
    #[cfg(feature = "sqlite")]
    Sqlite(rusqlite::Error),
    /// Redis or its connection.
    #[cfg(feature = "redis")]
    Redis(redis::RedisError),
    /// An error of the caller's own, which ends it.
    Other(Box<dyn error::Error + Send + Sync>),
}

impl Failure {
    /// An error of one's own: the transaction is rolled back and not tried again.
    pub fn other(error: impl Into<Box<dyn error::Error + Send + Sync>>) -> Self {
        Self::Other(error.into())
    }

    /// Whether another try can mend it: somebody else was faster, and nothing changed. A row that is gone stays gone.
    pub fn is_conflict(&self) -> bool {
        match self {
            Self::Conflict(Conflict::Changed { .. }) => true,
            Self::Conflict(Conflict::Gone) | Self::Stale(_) | Self::Lock(_) | Self::Other(_) => {
                false
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(error) => error.code().is_some_and(|code| is_retryable(code.code())),
            #[cfg(feature = "sqlx")]
            Self::Sqlx(error) => {
                let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
                code.is_some_and(|code| is_retryable(&code))
            }
            // SQLITE_BUSY_SNAPSHOT is one of these: a read that was overtaken cannot become a write. Plain SQLITE_BUSY is
            // the same without a write-ahead log.
            #[cfg(feature = "sqlite")]
            Self::Sqlite(error) => {
                error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
            }
            // What may have happened there is told by the script's own answer, or not at all.
            #[cfg(feature = "redis")]
            Self::Redis(_) => false,
        }
    }
}

/// Serialization failure and deadlock: PostgreSQL has rolled back, and asks for the whole transaction again.
#[cfg(any(feature = "postgres", feature = "sqlx"))]
fn is_retryable(sqlstate: &str) -> bool {
    matches!(sqlstate, "40001" | "40P01")
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict(conflict) => conflict.fmt(f),
            Self::Stale(stale) => stale.fmt(f),
            Self::Lock(error) => error.fmt(f),
            #[cfg(feature = "postgres")]
            Self::Postgres(error) => error.fmt(f),
            #[cfg(feature = "sqlx")]
            Self::Sqlx(error) => error.fmt(f),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(error) => error.fmt(f),
            #[cfg(feature = "redis")]
            Self::Redis(error) => error.fmt(f),
            Self::Other(error) => error.fmt(f),
        }
    }
}

impl error::Error for Failure {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Conflict(_) | Self::Stale(_) => None,
            Self::Lock(error) => error.source(),
            #[cfg(feature = "postgres")]
            Self::Postgres(error) => error.source(),
            #[cfg(feature = "sqlx")]
            Self::Sqlx(error) => error.source(),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(error) => error.source(),
            #[cfg(feature = "redis")]
            Self::Redis(error) => error.source(),
            Self::Other(error) => error.source(),
        }
    }
}

impl From<Conflict> for Failure {
    fn from(conflict: Conflict) -> Self {
        Self::Conflict(conflict)
    }
}

impl From<StaleFence> for Failure {
    fn from(stale: StaleFence) -> Self {
        Self::Stale(stale)
    }
}

impl From<crate::Error> for Failure {
    fn from(error: crate::Error) -> Self {
        Self::Lock(error)
    }
}

#[cfg(feature = "postgres")]
impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Postgres(error)
    }
}

#[cfg(feature = "sqlx")]
impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::Sqlx(error)
    }
}

#[cfg(feature = "sqlite")]
impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

#[cfg(feature = "redis")]
impl From<redis::RedisError> for Failure {
    fn from(error: redis::RedisError) -> Self {
        Self::Redis(error)
    }
}

impl<E: Into<Failure>> From<SaveError<E>> for Failure {
    fn from(error: SaveError<E>) -> Self {
        match error {
            SaveError::Conflict(conflict) => conflict.into(),
            SaveError::Driver(error) => error.into(),
        }
    }
}

impl<E: Into<Failure>> From<FencedError<E>> for Failure {
    fn from(error: FencedError<E>) -> Self {
        match error {
            FencedError::Stale(stale) => stale.into(),
            FencedError::Missing => Conflict::Gone.into(),
            FencedError::Driver(error) => error.into(),
        }
    }
}
