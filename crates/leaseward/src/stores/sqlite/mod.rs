//! The SQLite store: leases shared by the processes of one machine through a file. The embedded default.
//!
//! `sqlite:PATH?durability=normal|full`; without a path, [`default_path`]. Holders, queue and fence counter are three
//! tables; every batch is one transaction, carried out on the caller's own thread while nobody else writes. A waiter in
//! another process is called by the one that gave it the lease (`wake`), with a slow look as net.
//!
//! - **One fence counter for the whole file**, not a row per name: a free name then leaves nothing behind, so the file
//!   stays bounded without a floor row that reaping would have to keep right, and fences grow for ever, per name and
//!   over all names. The price, one row that every grant writes, is nothing here: a file has one writer at a time anyway.
//! - **Time** is `CLOCK_BOOTTIME`. A lease written under another boot counts as held until it was seen unchanged for its
//!   whole TTL; places in the queue do not outlive a boot.
//! - **Durability**: `normal` does not wait for the disk. A killed process loses nothing; a power cut may take back the
//!   last commits, and with it every holder on the machine; the clock floor keeps fences growing as long as the clock is
//!   right. `full` waits for the disk at each commit.
//!
//! Not for network file systems, whose locks lie: they are refused where they are recognised (Linux). Processes in
//! different time namespaces must not share a file, because their boot clocks differ.

mod ask;
mod boot;
mod client;
mod config;
mod connection;
mod diagnose;
mod error;
mod file;
mod inspect;
mod keeper;
mod lease;
mod link;
mod log;
mod network;
mod pinned;
mod room;
mod row;
mod schema;
mod settle;
mod store;
mod sweep;
mod turn;
mod wake;
mod worker;
mod writer;

use std::sync::Arc;

pub use self::{
    config::{Durability, default_path},
    store::Sqlite,
};
#[doc(hidden)]
pub use self::{
    connection::Opened,
    link::{Link, Rung, Thread, call},
};
use crate::store::Scheme;

/// The registry's line.
pub(crate) static SCHEME: Scheme = Scheme {
    names: &["sqlite"],
    what: "processes of one machine that share a file; no server",
    example: "sqlite:leases.db",
    open: |url, context| {
        Box::pin(async move {
            let config = config::Config::from_url(&url)?;
            Ok(Arc::new(Sqlite::connect(config, context).await?) as _)
        })
    },
};
