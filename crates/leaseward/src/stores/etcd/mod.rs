//! The etcd store: locks on consensus, for people who run a cluster for strict guarantees.
//!
//! `etcd://user:password@h1:2379,h2:2379,h3:2379?prefix=leaseward/&timeout=5s`, `etcds://` with `ca`, `cert` and `key`.
//! A lease, and a place in a queue, is the key `<prefix><name>/<token>`; whoever's key was created first holds the name.
//! That is what `etcdctl lock` does, so both exclude each other.
//!
//! - **Time**: one lease of etcd's for each class of TTLs carries all tokens of this process, kept alive over one stream.
//!   A deadline counts from the sending of the last keep-alive that was answered. What nobody renews in a living process
//!   is deleted by it.
//! - **A batch** is one transaction of nested ones, with at most one ask for each name.
//! - **Waiting**: each place watches what is in its way and, once that has gone, looks again: only a look that finds our
//!   own key, with nobody before it, is a grant.
//! - **Fences**: a base, written once, plus the create revision times 64.
//! - **Members**: one is asked at a time. One that is dead, frozen or without a leader is left for the next.
//!
//! It breaks when the cluster is restored from a backup while locks are held, or when somebody deletes keys by hand.

mod ask;
mod begin;
mod client;
mod config;
mod conn;
mod diagnose;
mod dump;
mod error;
mod guarantee;
mod inspect;
mod keepalive;
mod keeper;
mod keys;
mod leases;
mod link;
mod plan;
mod proto;
mod queue;
mod record;
mod release;
mod renew;
mod requests;
mod scale;
mod seats;
mod slots;
mod store;
mod submit;
mod table;
mod tries;
mod waiting;
mod watch;

use std::sync::Arc;

pub use self::store::Etcd;
use crate::store::Scheme;

/// The registry's line.
pub(crate) static SCHEME: Scheme = Scheme {
    names: &["etcd", "etcds"],
    what: "etcd: keys of a cluster; every machine that reaches it",
    example: "etcd://localhost:2379",
    open: |url, context| {
        Box::pin(async move { Ok(Arc::new(Etcd::open(&url, context).await?) as _) })
    },
};
