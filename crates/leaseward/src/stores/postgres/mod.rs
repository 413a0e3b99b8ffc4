//! The PostgreSQL store: leases kept as rows of a database, for people whose critical section is that database.
//!
//! `postgres://user:password@host/database?lanes=4&listen=URL&schema=leaseward&timeout=3s&sslmode=verify-full`. The
//! schema is made by whoever comes first. A batch of operations is one call of one function: one statement, one commit,
//! nothing that depends on the connection, so it works behind PgBouncer in transaction mode. Where it is certain that there
//! is nobody like that, calls are parsed once.
//!
//! - **Time** is the database's clock, and no client's.
//! - **No batch waits for a row**: a name that another transaction is at work on is skipped and asked for again, alone.
//!   Rows are then taken in the order of names, so transactions of ours cannot deadlock.
//! - **Fences** are kept in a row for each name, apart from the lease: a transaction that holds it `FOR SHARE` delays the
//!   next lease of that name until it ends, and nothing else. A name unused for an hour is forgotten; the largest fence
//!   of all that were is the floor for names that are met for the first time.
//! - **Waiting**: the queue stands in the database; whoever gives a lease back gives it to the next in line and tells
//!   that client by `NOTIFY`. A client listens on one connection of its own, from its first wait on. Where that is not
//!   possible it asks again every quarter of a second.
//! - **Durability**: leases are committed durably even where the database's default is not to wait for the disk.
//!
//! It breaks when the server's clock is set forward, when the server does not write to disk (`fsync = off`), or when an
//! asynchronous standby is promoted that has not heard of the last commits.

pub mod advisory;
mod answers;
mod client;
mod clock;
mod config;
mod diagnose;
mod dial;
mod error;
mod guarantee;
mod inspect;
mod keeper;
mod lines;
mod link;
mod listener;
mod lone;
mod named;
mod probe;
mod schema;
mod socket;
mod store;
mod wire;

use std::sync::Arc;

#[doc(hidden)]
pub use self::link::{Heard, Link};
pub use self::{
    schema::{Migrated, migrate},
    store::Postgres,
};
use crate::store::Scheme;

/// The registry's line.
pub(crate) static SCHEME: Scheme = Scheme {
    names: &["postgres", "postgresql"],
    what: "PostgreSQL: rows of a database; every machine that reaches it",
    example: "postgres://user@localhost/database",
    open: |url, context| {
        Box::pin(async move { Ok(Arc::new(Postgres::open(&url, context).await?) as _) })
    },
};
