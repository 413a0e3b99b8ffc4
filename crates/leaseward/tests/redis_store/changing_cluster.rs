//! What a client makes of a cluster whose nodes come, go and change places.

use std::time::Duration;

use futures_util::future::join_all;
use leaseward::{Attempt, Locks};
use leaseward_testkit::{Cluster, PATIENCE, RedisServer};

use crate::{
    cluster::{apart, url},
    help::{connect, take, until},
};

const TTL: Duration = Duration::from_secs(30);

/// Takes a name and gives it back, as soon as that is possible.
async fn use_in_time(locks: &Locks, name: &str) {
    let held = until("it is found", PATIENCE, || async {
        locks.lock(name).ttl(TTL).wait(PATIENCE).acquire().await.ok()
    });
    held.await.release().await.expect("given back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_away_shuts_nobody_out_of_the_others() {
    let options = RedisServer::builder().arg("cluster-require-full-coverage", "no");
    let cluster = Cluster::start_with(0, &options);
    let locks = connect(&url(&cluster)).await;
    let (away, elsewhere) = apart(&cluster);
    away.kill();
    for _ in 0..20 {
        locks.lock("a").ttl(TTL).try_acquire().await.expect_err("nobody can give it");
    }
    let attempt = locks.lock(elsewhere).ttl(TTL).try_acquire().await;
    assert!(matches!(attempt, Ok(Attempt::Granted(_))), "{attempt:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_left_is_not_asked_where_the_others_are() {
    let cluster = Cluster::start_without_replicas();
    let left = cluster.primary_of("lock:a");
    let to = cluster.addresses().into_iter().find(|node| *node != left.address());
    let to = to.expect("there are three nodes");
    // Several, because each asks its nodes in an order of its own.
    let mut clients = Vec::new();
    for _ in 0..24 {
        clients.push(connect(&url(&cluster)).await);
    }
    cluster.leave(&left.address(), &to);
    for node in cluster.nodes().iter().filter(|node| node.address() != left.address()) {
        node.cli(&["client", "kill", "type", "normal", "skipme", "yes"]);
    }
    for (at, locks) in clients.iter().enumerate() {
        for name in ["a", "b", "c"].map(|name| format!("{name}{at}")) {
            use_in_time(locks, &name).await;
        }
    }
}

/// No connection breaks, and the node that left says only that it serves nothing.
#[tokio::test(flavor = "multi_thread")]
async fn nor_is_it_asked_for_ever_if_it_stays_connected() {
    let cluster = Cluster::start_without_replicas();
    let locks = connect(&url(&cluster)).await;
    let left = cluster.primary_of("lock:a");
    let to = cluster.addresses().into_iter().find(|node| *node != left.address());
    cluster.leave(&left.address(), &to.expect("there are three nodes"));
    use_in_time(&locks, "a").await;
}

/// Every renewal of a node's names is sent to the node that has taken its place: that is connected to once.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_takes_over_is_not_stormed() {
    const HELD: usize = 200;
    let cluster = Cluster::start();
    let locks = connect(&url(&cluster)).await;
    let old = cluster.primary_of("lock:a");
    let of_it =
        |name: &String| cluster.primary_of(&format!("lock:{name}")).address() == old.address();
    let names: Vec<_> = (0..).map(|at| format!("n{at}")).filter(of_it).take(HELD).collect();
    let held = join_all(names.iter().map(|name| take(locks.lock(name.as_str()).ttl(TTL)))).await;
    let new = cluster.replicas_of(&old.address())[0];
    let connected =
        || -> u64 { new.info("stats")["total_connections_received"].parse().expect("a number") };
    new.cli(&["cluster", "failover"]);
    cluster.wait_for_new_primary_of("lock:a", &old.address());
    let before = connected();
    let renewed = join_all(held.iter().map(|guard| async {
        until("it is kept", PATIENCE, || async { guard.renew().await.ok() }).await
    }));
    renewed.await;
    // Each look is one too.
    let since = connected() - before;
    assert!(since < 10, "{since} connections for {HELD} names");
}
