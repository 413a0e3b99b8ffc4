//! Optimistic concurrency: when no lock is the better lock.
//!
//! Read, compute, write; the write says which version it is based on, and the database refuses it if somebody else was
//! faster. Then the *whole* transaction is tried again, from the reading on. Where conflicts are rare this beats every lock;
//! on a hot row it wastes work, and after some conflicts it can take a Leaseward lock instead
//! ([`Retry::escalate`]). `docs/choosing.md` has the measurements.
//!
//! | you want | use |
//! | --- | --- |
//! | a transaction that is tried again after a conflict | `transact` of `postgres`, `sqlx` or `sqlite`, with a [`Retry`] |
//! | the same, at most once even if a commit's answer is lost | `transact_once`, with an idempotency key |
//! | to read a row of your own table, and save it only if it is still that | `load` and `save`, with a [`VersionColumn`] |
//! | many rows, each with its own outcome | `save_many` |
//! | the same for a value in Redis | `redis::load`, `redis::save` |
//! | tries of something else | [`Tries`] |
//! | a form or an HTTP client that comes back later | [`Versioned`], [`Version::etag`] and [`IfMatch`] |
//!
//! Versions are numbers in a `bigint` column. Timestamps collide, and PostgreSQL's `xmin` does not survive a dump. A row that
//! is deleted and made again must not begin with an old version: do not use an id twice, or begin above.

mod column;
mod conflict;
mod failure;
mod gave_up;
mod if_match;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
mod retry;
mod rounds;
mod run;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "sqlx")]
pub mod sqlx;
mod version;
mod versioned;
mod work;

pub use column::VersionColumn;
pub use conflict::{Conflict, SaveError};
pub use failure::Failure;
pub use gave_up::{GaveUp, Why};
pub use if_match::IfMatch;
pub use retry::{HotLock, Retry, Try};
pub use rounds::{Ambiguity, Ended};
pub use run::{BlockingTries, Settled, Tries};
pub use version::{NoVersion, Version};
pub use versioned::Versioned;
pub use work::Work;

/// What a transaction with an idempotency key came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Once<T> {
    /// It was committed now, with this result.
    Now(T),
    /// It had been committed before: by an earlier try whose answer was lost, or by somebody else with the same key. What it
    /// came to then is in the tables it wrote.
    Before,
}

/// Creates the table in which `transact_once` keeps the keys of what is done; harmless if it is there. For PostgreSQL and
/// SQLite.
///
/// Keys stay until you delete them; one that is gone can be used again, so keep them for as long as a request may come twice.
pub const DONE_TABLE_SQL: &str = "CREATE TABLE IF NOT EXISTS leaseward_done (\
    key text NOT NULL PRIMARY KEY, at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP)";

/// Takes the key `$1`; no row changed if it is taken. Who comes second waits for the first one's commit.
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "sqlx"))]
const DONE_SQL: &str = "INSERT INTO leaseward_done (key) VALUES ($1) ON CONFLICT (key) DO NOTHING";

/// As databases keep it. A made-up one above 2⁶³ counts as the largest.
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "sqlx"))]
fn to_database(version: Version) -> i64 {
    i64::try_from(version.get()).unwrap_or(i64::MAX)
}

/// As it was kept. A negative number was put there by somebody else, and is below every version.
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "sqlx"))]
fn from_database(kept: i64) -> Version {
    Version::new(u64::try_from(kept).unwrap_or(0))
}

/// Why a save changed nothing, from the version that the row has now.
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "sqlx"))]
fn why(current: Option<i64>) -> Conflict {
    current.map_or(Conflict::Gone, |kept| Conflict::Changed { current: from_database(kept) })
}
