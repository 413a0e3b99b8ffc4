//! Jobs in the caller's own transactions: pushed with what they are about, and done with what they did.
//!
//! `push` in a transaction: the job is there if and only if the transaction commits. `complete` in a
//! transaction: what a job did and that it is done are one commit, and if the attempt has been taken for dead, neither
//! happens. One module for each driver: `postgres` (`tokio-postgres`), `sqlx`, `sqlite` (`rusqlite`).

mod error;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "sqlx")]
pub mod sqlx;

#[cfg(any(feature = "postgres", feature = "sqlite"))]
use leaseward::{Error, ErrorKind};

pub use self::error::TxError;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
use crate::{NewJob, Queue, backend::Row};

/// The rows of jobs, whose queues are there.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
async fn rows(queue: &Queue, jobs: impl IntoIterator<Item = NewJob>) -> Result<Vec<Row>, Error> {
    let mut rows: Vec<Row> = Vec::new();
    for row in queue.rows(jobs.into_iter().collect()).await? {
        let is_twin = row.unique.is_some()
            && rows.iter().any(|other| {
                let key = |row: &Row| row.unique.as_ref().map(|(key, _)| key.clone());
                other.slot >> 48 == row.slot >> 48 && key(other) == key(&row)
            });
        if is_twin {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "two of these jobs have the same unique key",
            )
            .hint("push one of them"));
        }
        rows.push(row);
    }
    Ok(rows)
}

/// A queue that is kept in another kind of database than the transaction's.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
fn elsewhere() -> Error {
    Error::new(ErrorKind::InvalidInput, "the queue is not kept in this kind of database")
        .hint("a transaction reaches only what is in its own database")
}

/// Fails a transaction on the server.
#[cfg(feature = "postgres")]
fn poison(id: crate::JobId) -> String {
    format!(
        "DO $$ BEGIN RAISE EXCEPTION 'job {id} has ended, or was given to another worker'; END $$"
    )
}
