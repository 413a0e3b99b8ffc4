//! Redlock with fences: leases on a majority of independent Redis servers.
//!
//! A lease is granted once more than half of the nodes have granted it, and counts from the moment the first of them was
//! asked. The lock key on each node is the one that node-redlock, redsync and others have, so all of them exclude each
//! other over the same nodes (with `?prefix=`, which is empty there).
//!
//! What is usually held against Redlock is answered here:
//! - *It has no fences.* The fence is a ballot: a number that a majority of nodes has granted under the rule that no node
//!   grants a number for a name twice, or a smaller one later. A holder that was paused past its deadline is refused by
//!   whatever it protects.
//! - *A node that restarts forgets its vote.* Such a node does not vote until every lease that it may have forgotten has
//!   run out; see `?amnesia=` and `?max_ttl=`.
//! - *Clocks.* Deadlines are counted on a clock that never jumps and are shorter than the leases by the drift; what remains
//!   is that the clocks of a majority of nodes must not be set forward while a lease lasts. Then exclusion breaks, and
//!   fences still hold.
//!
//! There are no permits: with three nodes and two permits there can be three holders, each with a majority.

pub mod amnesia;
pub mod ballot;
mod client;
mod config;
mod diagnose;
mod guarantee;
mod heal;
mod hearing;
mod inspect;
mod member;
mod opening;
mod overdue;
mod plain;
mod proposal;
pub mod quorum;
mod roll;
mod round;
mod script;
mod store;
mod submit;
mod votes;
mod watch;
mod wire;

use std::sync::Arc;

use crate::store::Scheme;

pub use self::{config::Amnesia, store::Redlock};

/// The registry's line.
pub(crate) static SCHEME: Scheme = Scheme {
    names: &["redlock", "redlocks"],
    what: "Redlock with fences: a majority of independent Redis servers",
    example: "redlock://host1,host2,host3",
    open: |url, context| {
        Box::pin(async move { Ok(Arc::new(Redlock::open(&url, context).await?) as _) })
    },
};
