//! What tests of servers ask for beside the basics. Shared by the tests of Redis and Redlock.

use std::sync::Arc;

use leaseward::store::Store;
use leaseward_testkit::{PATIENCE, RedisServer};

pub(crate) use crate::basics::{ask, connect, granted, one, take, try_open, until};

pub(crate) async fn open(url: &str) -> Arc<dyn Store> {
    try_open(url).await.expect("the server can be reached")
}

/// Waits until a store works again after a fault.
pub(crate) async fn healed(store: &dyn Store) {
    until("the store works again", PATIENCE, || async { store.ping().await.ok() }).await;
}

/// The keys of a server, sorted; but for the sign that some stand beside lock keys: it is one for all names, and outlasts
/// them (`tests/redis_store/beside.rs`).
pub(crate) fn keys(server: &RedisServer) -> Vec<String> {
    let keys = server.cli(&["--raw", "keys", "*"]);
    let is_sign = |key: &str| key.starts_with("leaseward:") && key.ends_with(":beside");
    let is_shown = |key: &&str| !key.is_empty() && !is_sign(key);
    let mut keys: Vec<_> = keys.lines().filter(is_shown).map(str::to_owned).collect();
    keys.sort_unstable();
    keys
}
