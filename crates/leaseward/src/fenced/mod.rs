//! Fenced writes: the protected resource refuses a holder that was paused past its deadline.
//!
//! A lease cannot stop a process that does not look at the clock. Its [`Fence`] can: the resource remembers the highest
//! fence it has seen, accepts a write whose fence is at least as large, and refuses a smaller one with [`StaleFence`].
//! Equal is accepted because a holder may write several times; its own writes are in order only if it awaits each of them
//! (rule R12).
//!
//! Two things make it hold:
//!
//! - **The check and the write are one step.** A check beforehand and a write afterwards leave a gap in which the next holder
//!   can write. So each of these does both in one transaction, one script, or while a [`Pass`] is held.
//! - **Show the fence before you read** what the write will depend on (`claim`, `check`, `get`). Else the holder before may
//!   still write after the read, with a fence that is the highest so far, and what it wrote is overwritten.
//!
//! | what is written | use | with the feature |
//! | --- | --- | --- |
//! | a row of a table that can have one more column | `claim` and `update` of `sqlite`, `postgres` or `sqlx`, with a [`FenceColumn`] | `sqlite`, `postgres`, `sqlx` |
//! | anything else in a database | `check` of the same, first in the transaction | the same |
//! | anything in the database that also keeps the leases | `hold` of `postgres` or `sqlx`, first in the transaction | `postgres`, `sqlx` |
//! | a value in Redis | `redis::get`, `redis::set`, `redis::delete` | `redis` |
//! | what an HTTP service does | `http::FenceLayer` in front of it | `tower` |
//! | anything else | [`FenceGate`] | |
//!
//! ```
//! use leaseward::{Fence, fenced::FenceGate};
//!
//! let gate = FenceGate::new();
//! gate.check("printer", Fence::new(7))?;
//! gate.check("printer", Fence::new(7))?; // the same holder again
//! gate.check("printer", Fence::new(9))?; // the next one
//! let stale = gate.check("printer", Fence::new(7)).unwrap_err();
//! assert_eq!((stale.given.get(), stale.seen.get()), (7, 9));
//! # Ok::<(), leaseward::fenced::StaleFence>(())
//! ```

mod column;
mod error;
mod gate;
#[cfg(feature = "tower")]
pub mod http;
mod pass;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(any(feature = "postgres", feature = "sqlx"))]
mod postgres_sql;
#[cfg(feature = "redis")]
pub mod redis;
mod side;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "sqlx")]
pub mod sqlx;

pub use column::FenceColumn;
pub use error::{FencedError, StaleFence};
pub use gate::FenceGate;
pub use pass::Pass;
pub use side::{FORGET_SQL, SIDE_TABLE_SQL};

#[cfg(any(feature = "postgres", feature = "sqlite", feature = "sqlx"))]
use crate::Fence;

/// As databases keep it. Fences stay far below 2⁶³; a made-up one above it counts as the largest.
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "sqlx"))]
fn to_database(fence: Fence) -> i64 {
    i64::try_from(fence.get()).unwrap_or(i64::MAX)
}

/// As it was kept. A negative number was put there by somebody else, and is below every fence.
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "sqlx"))]
fn from_database(kept: i64) -> Fence {
    Fence::new(u64::try_from(kept).unwrap_or(0))
}
