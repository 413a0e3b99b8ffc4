//! The Redis store: leases on one server, behind Sentinel, or on a Cluster.
//!
//! The exclusive lock is the string key `<prefix><name>` that begins with the owner's token and has an expiry: the layout
//! that node-redlock, redsync, redis-py, rslock and others have, so all of them exclude each other. Behind the token it says
//! what was granted, the fence first of all. The queue, readers and permits are kept in side keys of the same hash slot. A
//! batch of operations is one script call.
//!
//! Clients of other libraries poll, and to them a name with a queue of ours never looks free. `?handover=` says what is
//! done about it:
//! - `auto`, the default: where one of them held the name within the last minute, it is left free for a fifth of the
//!   time, so that each comes in after a few attempts. Elsewhere this costs nothing; but one that never held the name
//!   cannot be seen, and comes in only once nobody of ours waits.
//! - `never`: each release leaves the name free until the first in line has been told, which costs a round trip each time.
//! - `always`: leases are handed over come what may.
//!
//! How firmly it holds depends on how the server is set up; [`Store::guarantee`](crate::store::Store::guarantee) says
//! so. It does not survive the loss of a primary whose replicas lag, unless `?replicas=N` makes it wait for them.

pub(super) mod answers;
mod calls;
mod client;
pub(super) mod clocks;
mod cluster;
pub(super) mod config;
pub(super) mod connection;
pub(super) mod diagnose;
pub(super) mod dial;
pub(super) mod error;
mod fences;
mod guarantee;
pub(super) mod inspect;
pub(super) mod keys;
mod late;
pub(super) mod node;
mod plain;
pub(super) mod probe;
pub(super) mod reserved;
mod run;
pub(super) mod script;
mod sentinel;
mod servers;
mod store;
mod strong;
pub(super) mod watch;
pub(super) mod wire;

use std::sync::Arc;

use crate::store::Scheme;

pub(crate) use self::keys::tag_beside;
pub use self::store::Redis;

/// The registry's line.
pub(crate) static SCHEME: Scheme = Scheme {
    names: &[
        "redis",
        "rediss",
        "redis+unix",
        "redis+sentinel",
        "rediss+sentinel",
        "redis+cluster",
        "rediss+cluster",
        "valkey",
        "valkeys",
        "valkey+unix",
        "valkey+sentinel",
        "valkeys+sentinel",
        "valkey+cluster",
        "valkeys+cluster",
    ],
    what: "Redis or Valkey: one server, Sentinel, Cluster; every machine that reaches it",
    example: "redis://localhost",
    open: |url, context| {
        Box::pin(async move { Ok(Arc::new(Redis::open(&url, context).await?) as _) })
    },
};
