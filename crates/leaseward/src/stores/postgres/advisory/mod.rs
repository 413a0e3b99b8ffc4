//! PostgreSQL's advisory locks: no tables, no commits, and a lock that ends with the session that took it.
//!
//! `postgres+advisory://user:password@host/database?namespace=leaseward&keys=hashed&timeout=3s&sslmode=verify-full`. A
//! client has one session of its own, and all its locks are that session's. Other programs meet them under the same
//! keys ([`AdvisoryKey`]).
//!
//! - **The session's death is the loss of all its locks**, and is told at once. The server ends a session that it has not
//!   heard of for the longest TTL held over it (PostgreSQL 14 or newer), so that a holder that froze, or whose line broke,
//!   keeps nobody out for longer; the session is heard of at least every third of that.
//! - **Locks of one session do not exclude each other** in the server: this client keeps a table of what it holds, and
//!   two tasks of one process exclude each other like anybody else.
//! - **Fences** come from a sequence, in the statement that takes the lock. It is raised to the server's clock by every
//!   session before its first lock, so nothing has to reach the disk: what a crash forgets, the clock has passed.
//! - **Waiting**: the server's own queue would stop the session, so whoever waits asks again.
//! - **No pooler**: behind one that gives each transaction another connection, locks stay with whoever had it. It is
//!   recognised and refused.
//!
//! Not here: permits, values, minimum holds, a list of all names held (the server knows keys only), breaking one lease of
//! another client. The rows of `postgres://` have all that.

mod client;
mod config;
mod guarantee;
#[cfg(feature = "sqlx")]
pub mod in_sqlx;
mod in_transaction;
mod inspect;
mod keeper;
mod key;
mod plan;
mod pooler;
mod pump;
mod sequence;
mod session;
mod statement;
mod store;
mod table;

use std::sync::Arc;

pub(super) use self::sequence::migrate;
pub use self::{
    in_transaction::{lock_in, lock_shared_in, try_lock_in, try_lock_shared_in},
    key::AdvisoryKey,
    store::Advisory,
};
use crate::store::Scheme;

/// The registry's line.
pub(crate) static SCHEME: Scheme = Scheme {
    names: &["postgres+advisory", "postgresql+advisory"],
    what: "PostgreSQL's advisory locks: no rows, no commits; every machine that reaches it",
    example: "postgres+advisory://user@localhost/database",
    open: |url, context| {
        Box::pin(async move { Ok(Arc::new(Advisory::open(&url, context).await?) as _) })
    },
};

/// The statements that take one lock and give it back, as they are sent, for whoever wants to measure them. Their
/// parameters are the session's process, and for each step what is done (2 takes, 4 gives back), the key and the number of
/// fences.
#[must_use]
pub fn statements(schema: &str) -> [String; 2] {
    use statement::Fences;
    [Fences::Single, Fences::None].map(|fences| statement::text(schema, fences))
}
