//! A cluster: nodes are lost, slots move, names are everywhere.

use std::time::Duration;

use leaseward::{
    Error, ErrorKind, LostReason,
    store::{Query, Reply, Store},
};
use leaseward_testkit::{Cluster, PATIENCE, RedisServer, eventually};

use crate::{
    help::{
        LONG, connect, granted, one, open, releasing, renewing, take, take_in_time, taking, until,
    },
    names::name,
    work::Works,
};

const TTL: Duration = Duration::from_secs(30);

pub(crate) fn url(cluster: &Cluster) -> String {
    format!("redis+cluster://{}", cluster.addresses().join(","))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_node_is_replaced_and_waiters_are_served() {
    let cluster = Cluster::start();
    let (locks, other) = (connect(&url(&cluster)).await, connect(&url(&cluster)).await);
    let held = take(locks.lock("a").ttl(TTL)).await;
    let lock = other.lock("a").ttl(TTL);
    let waiter = tokio::spawn(async move { lock.acquire().await.expect("served") });
    let waits = || async {
        let views = locks.inspect(Query::Name(name("a"))).await.expect("answered");
        views.first().filter(|view| !view.waiters.is_empty()).map(|_| ())
    };
    until("it waits", PATIENCE, waits).await;
    let old = cluster.primary_of("lock:a");
    // What is acknowledged by nobody may be lost with it; here its replica has all.
    cluster.replicas_of(&old.address())[0].wait_for_copy(old);
    old.kill();
    cluster.wait_for_new_primary_of("lock:a", &old.address());
    until("the lease is kept", PATIENCE, || async { held.renew().await.ok() }).await;
    assert!(held.is_held());
    let fence = held.fence();
    held.release().await.expect("given back");
    let next = tokio::time::timeout(PATIENCE, waiter).await.expect("served soon");
    assert!(next.expect("no panic").fence() > fence);
}

/// The primary is lost with what only it knew, and its replica takes its place.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_no_replica_has_is_given_twice() {
    let cluster = Cluster::start();
    let (locks, other) = (connect(&url(&cluster)).await, connect(&url(&cluster)).await);
    let old = cluster.primary_of("lock:a");
    let replicas = cluster.isolate_replicas_of(&old.address());
    // It asks nobody before the other is in.
    let first = take(locks.lock("a").ttl(LONG).no_renewal()).await;
    old.kill();
    replicas.iter().for_each(|replica| replica.resume());
    cluster.wait_for_new_primary_of("lock:a", &old.address());
    let second = take_in_time(other.lock("a").ttl(LONG), PATIENCE).await;
    assert!(first.is_held() && second.is_held(), "both believe");
    assert!(second.fence() > first.fence(), "the resource refuses the first one's writes");
    let told = until("the first is told", PATIENCE, || async {
        first.renew().await.err().filter(|error| error.kind() == ErrorKind::Lost)
    });
    told.await;
    assert_eq!(first.lost().await, LostReason::NotOurs);
    assert!(second.is_held());
}

/// The node that has the name `a`, and a name of another node.
pub(crate) fn apart(cluster: &Cluster) -> (&RedisServer, String) {
    let away = cluster.primary_of("lock:a");
    let elsewhere = (0..)
        .map(|number| format!("n{number}"))
        .find(|name| cluster.primary_of(&format!("lock:{name}")).address() != away.address());
    (away, elsewhere.expect("there are three nodes"))
}

/// Why the name of a node that was just killed is not to be had. What was under way is unknown; from then on it is
/// known that nothing happens.
async fn refusal_of_the_dead(store: &dyn Store, what: &str) -> Error {
    until("its names are out of reach", PATIENCE, || async {
        let failure = one(store, taking(what, 1)).await.expect_err("nobody can give it");
        (failure.kind() != ErrorKind::Indeterminate).then_some(failure)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_away_takes_only_its_own_names_with_it() {
    let options = RedisServer::builder().arg("cluster-require-full-coverage", "no");
    let cluster = Cluster::start_with(0, &options);
    let store = open(&url(&cluster)).await;
    let (away, elsewhere) = apart(&cluster);
    away.kill();
    let failure = refusal_of_the_dead(&*store, "a").await;
    assert_eq!(failure.kind(), ErrorKind::Unavailable, "{failure}");
    granted(one(&*store, taking(&elsewhere, 1)).await);
    // Also once the others have noticed.
    let other = cluster.primary_of(&format!("lock:{elsewhere}"));
    eventually("it is known to be gone", PATIENCE, || {
        other.cli(&["cluster", "nodes"]).contains("master,fail ").then_some(())
    });
    one(&*store, releasing(&elsewhere, 1)).await.expect("given back");
    let failure = one(&*store, taking("a", 1)).await.expect_err("nobody else has its slots");
    assert_eq!(failure.kind(), ErrorKind::Unavailable, "{failure}");
}

#[tokio::test(flavor = "multi_thread")]
async fn by_default_a_cluster_that_lost_a_node_refuses_every_name_until_it_is_back() {
    let cluster = Cluster::start_without_replicas();
    let store = open(&url(&cluster)).await;
    let (away, elsewhere) = apart(&cluster);
    granted(one(&*store, taking(&elsewhere, 1)).await);
    let other = cluster.primary_of(&format!("lock:{elsewhere}"));
    away.kill();
    eventually("the cluster is down", PATIENCE, || {
        other.cli(&["cluster", "info"]).contains("cluster_state:fail").then_some(())
    });
    let before = answered(other, "CLUSTERDOWN");
    let asked = [taking(&elsewhere, 2), renewing(&elsewhere, 1), releasing(&elsewhere, 1)];
    for operation in asked.clone() {
        let failure = one(&*store, operation).await.expect_err("no node takes writes");
        assert_eq!(failure.kind(), ErrorKind::Unavailable, "{failure}");
        assert_eq!(failure.message(), "the redis cluster is down: some slots have no primary");
    }
    assert_eq!(answered(other, "CLUSTERDOWN"), before + 3, "asked once each");
    assert_eq!(refusal_of_the_dead(&*store, "a").await.kind(), ErrorKind::Unavailable);
    away.restart();
    cluster.wait_until_whole();
    let [taken, renewed, released] = asked;
    // Nothing of what was refused has happened.
    assert!(matches!(one(&*store, taken).await, Ok(Reply::Busy(_))));
    assert!(matches!(one(&*store, renewed).await, Ok(Reply::Renewed(_))));
    assert!(matches!(one(&*store, released).await, Ok(Reply::Released)));
    let back =
        until("its names are back", PATIENCE, || async { one(&*store, taking("a", 1)).await.ok() });
    assert!(matches!(back.await, Reply::Granted(_)));
}

/// How often a node has answered with a code.
fn answered(node: &RedisServer, code: &str) -> u64 {
    let stats = node.info("errorstats");
    let count = stats.get(&format!("errorstat_{code}"));
    count.map_or(0, |count| count.trim_start_matches("count=").parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_moves_under_load_loses_no_update() {
    let cluster = Cluster::start_without_replicas();
    let slot = cluster.slot_of("lock:a");
    let works = Works::start(&[url(&cluster), url(&cluster), url(&cluster)]).await;
    for to in cluster.addresses().iter().cycle().take(4) {
        let from = cluster.primary_of("lock:a");
        if from.address() == *to {
            continue;
        }
        let before = answered(from, "ASK");
        let migration = cluster.begin_migration(slot, to);
        migration.move_keys();
        // Now the old owner has none of the keys and sends whoever asks to the new one.
        eventually("somebody is sent there", PATIENCE, || {
            (answered(from, "ASK") > before).then_some(())
        });
        migration.move_keys();
        migration.finish();
        works.go_on().await;
    }
    works.finish().await;
    assert!(cluster.nodes().iter().any(|node| answered(node, "MOVED") > 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_on_all_nodes_and_all_are_listed() {
    let cluster = Cluster::start_without_replicas();
    let locks = connect(&url(&cluster)).await;
    let mut held = Vec::new();
    for at in 0..30 {
        held.push(take(locks.lock(format!("n{at:02}")).ttl(TTL)).await);
    }
    for node in cluster.primaries() {
        let here = node.cli(&["--raw", "keys", "lock:*"]);
        assert!(here.lines().count() > 1, "{} has none", node.address());
    }
    let listed = locks.inspect(Query::all()).await.expect("answered");
    let listed: Vec<_> = listed.iter().map(|view| view.name.as_str().to_owned()).collect();
    assert_eq!(listed, (0..30).map(|at| format!("n{at:02}")).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_are_enough_to_find_the_cluster() {
    let cluster = Cluster::start();
    let primaries: Vec<_> = cluster.primaries().iter().map(|node| node.address()).collect();
    let replicas: Vec<_> =
        cluster.addresses().into_iter().filter(|node| !primaries.contains(node)).collect();
    assert!(!replicas.is_empty());
    let locks = connect(&format!("redis+cluster://{}", replicas.join(","))).await;
    for name in ["a", "b", "c", "d"] {
        take(locks.lock(name).ttl(TTL)).await.release().await.expect("given back");
    }
}
