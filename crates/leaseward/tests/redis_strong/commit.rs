//! Group commit: many leases, few waits; and each of them waited for.

use leaseward::Locks;
use leaseward_testkit::{Cluster, RedisServer};
use tokio::task::JoinSet;

use crate::help::{STRONG, blocking, connect, primary_with, strong_url};

const TASKS: usize = 64;

/// Far below one each; how many gather depends on how the machine runs them.
const WAITS_MAX: u64 = 16;

async fn acquire_all(locks: &Locks) -> Vec<leaseward::Guard> {
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let lock = locks.lock(format!("job:{task}"));
        tasks.spawn(async move { lock.acquire().await.expect("it is free") });
    }
    tasks.join_all().await
}

fn waits(server: &RedisServer) -> u64 {
    server.calls().get("wait").copied().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_share_few_waits() {
    let (primary, _replicas) = blocking(|| primary_with(1));
    let locks = connect(&strong_url(&primary, 1)).await;
    blocking(|| primary.cli(&["config", "resetstat"]));
    let guards = acquire_all(&locks).await;
    assert!(guards.iter().all(leaseward::Guard::is_held));
    let waits = blocking(|| waits(&primary));
    assert!((1..=WAITS_MAX).contains(&waits), "{waits} waits for {TASKS} leases");
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_cluster_each_node_waits_for_its_own_replicas() {
    let cluster = blocking(Cluster::start);
    let url = format!("redis+cluster://{}?{STRONG}1", cluster.addresses().join(","));
    let locks = connect(&url).await;
    let primaries = cluster.primaries();
    blocking(|| primaries.iter().for_each(|node| node.wait_for_replicas(1)));
    blocking(|| primaries.iter().for_each(|node| drop(node.cli(&["config", "resetstat"]))));
    let guards = acquire_all(&locks).await;
    assert!(guards.iter().all(leaseward::Guard::is_held));
    for node in &primaries {
        let waits = blocking(|| waits(node));
        assert!((1..=WAITS_MAX).contains(&waits), "{waits} waits at {}", node.address());
    }
    let lost = primaries[0];
    blocking(|| cluster.replicas_of(&lost.address()).iter().for_each(|replica| replica.pause()));
    for guard in guards {
        let is_there = cluster.primary_of(&format!("lock:{}", guard.name())).port() == lost.port();
        assert_eq!(guard.renew().await.is_err(), is_there, "{}", guard.name());
    }
}
