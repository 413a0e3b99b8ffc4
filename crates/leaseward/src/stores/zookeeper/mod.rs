//! ZooKeeper: a line of nodes for each name, each of which ends with the session of whoever stands there.
//!
//! `zookeeper://user:password@h1:2181,h2:2181,h3:2181/locks?timeout=3s`. The layout is that of kazoo's `Lock`,
//! `WriteLock` and `ReadLock`, so each excludes the other.
//!
//! - **Whoever is first in the line has the name**; who waits watches the one before, so a release wakes one. After that
//!   one has gone, the own node must still be there before anything is granted.
//! - **A session lasts longer than the leases on it**: a lease counts from the sending of a request that the leader had a
//!   part in, and ends before the leader can end the session, whatever a follower says meanwhile. A connection that breaks
//!   is no loss: the session goes on at another server.
//! - **A lost answer is resolved by the node's name**, which begins with the token: there are never two of a token.
//! - **Fences** are the transactions that created the nodes, on the scale of microseconds since the epoch.
//! - **Leases move**: another process that has the handle puts a node of the same name, owned by its own session, into
//!   the place of the old one, in one transaction.
//! - **What gathers goes out together**: one transaction and one read for many operations, each with its own answer.
//!
//! The protocol is spoken here, without a driver: what was sent when, and who answered, is what deadlines are made of.
//!
//! Not here: minimum holds, which would have to outlive the session; logins other than digest; TLS.

mod ask;
mod bounds;
mod client;
mod config;
mod desk;
mod diagnose;
mod error;
mod fences;
mod inspect;
mod keeper;
mod layout;
mod line;
mod proof;
mod record;
mod release;
mod renew;
mod round;
mod running;
mod session;
mod store;
mod wait;
mod wire;

use std::sync::Arc;

pub use self::store::ZooKeeper;
use crate::store::Scheme;

/// The registry's line.
pub(crate) static SCHEME: Scheme = Scheme {
    names: &["zookeeper"],
    what: "ZooKeeper: decided by a majority of servers; every machine that reaches it",
    example: "zookeeper://localhost/locks",
    open: |url, context| {
        Box::pin(async move { Ok(Arc::new(ZooKeeper::open(&url, context).await?) as _) })
    },
};
