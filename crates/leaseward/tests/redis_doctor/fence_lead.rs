//! Fences that run ahead of the server's clock.

use std::time::Duration;

use leaseward::store::Severity;
use leaseward_testkit::{Cluster, Fsync, RedisServer, Skew};

use crate::help::{connect, dangers, find};

/// A clock that was ahead when a fence was given out, and was set right since: whoever asks next finds out.
#[tokio::test]
async fn a_lead_is_found_by_a_client_that_asked_for_nothing() {
    let skew = Skew::new();
    let server = RedisServer::builder().appendonly(Fsync::Always).skew(&skew).start();
    skew.set_ms(3_600_000);
    let locks = connect(&server.url()).await;
    let guard = locks.lock("x").acquire().await.expect("it is free");
    guard.release().await.expect("released");
    let before = locks.health().await.fence_lead.expect("known after a ping");
    assert!(before < Duration::from_secs(1), "by the server's clock there is no lead: {before:?}");
    skew.set_ms(0);
    let other = connect(&server.url()).await;
    let lead = other.health().await.fence_lead.expect("known after a ping");
    assert!(lead > Duration::from_secs(3_000), "{lead:?}");
    let found = other.diagnose().await.expect("it answers");
    assert_eq!(find(&found, "the newest fence is").severity, Severity::Danger);
}

/// On a cluster a client knows what it was told itself.
#[tokio::test]
async fn a_cluster_has_no_lead_while_clocks_are_right() {
    let cluster = Cluster::start_without_replicas();
    let locks = connect(&format!("redis+cluster://{}", cluster.addresses().join(","))).await;
    for name in ["a", "b", "c", "d"] {
        let guard = locks.lock(name).acquire().await.expect("it is free");
        guard.release().await.expect("released");
    }
    let lead = locks.health().await.fence_lead.expect("known after a ping");
    assert!(lead < Duration::from_secs(1), "{lead:?}");
    let found = locks.diagnose().await.expect("it answers");
    assert!(dangers(&found).is_empty(), "{found:#?}");
}
