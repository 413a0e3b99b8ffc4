//! A cluster: nodes are lost, slots move, names are everywhere.

use std::time::Duration;

use leaseward::{
    ErrorKind, MultiAttempt,
    store::{Ask, IfBusy, Operation, Query, Reply},
};
use leaseward_testkit::{Cluster, PATIENCE, RedisServer, eventually};

use crate::{
    help::{LONG, ask, connect, granted, one, open, releasing, take, taking, until},
    names::name,
    work::Works,
};

const TTL: Duration = Duration::from_secs(30);

fn url(cluster: &Cluster) -> String {
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

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_away_takes_only_its_own_names_with_it() {
    let options = RedisServer::builder().arg("cluster-require-full-coverage", "no");
    let cluster = Cluster::start_with(0, &options);
    let locks = connect(&url(&cluster)).await;
    let away = cluster.primary_of("lock:a");
    let elsewhere = (0..)
        .map(|number| format!("n{number}"))
        .find(|name| cluster.primary_of(&format!("lock:{name}")).address() != away.address())
        .expect("there are three nodes");
    away.kill();
    until("its names are out of reach", PATIENCE, || async {
        locks.lock("a").try_acquire().await.err().map(|error| error.kind())
    })
    .await;
    let held = take(locks.lock(elsewhere.as_str()).ttl(TTL)).await;
    held.release().await.expect("given back");
    assert!(locks.lock("a").try_acquire().await.is_err(), "nobody else has its slots");
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
async fn several_names_are_taken_together_where_they_share_a_slot() {
    let cluster = Cluster::start_without_replicas();
    let store = open(&url(&cluster)).await;
    let both = |one: &str, other: &str| {
        let names = [name(one), name(other)].into_iter().collect();
        Operation::Ask(Ask { names, ..ask(one, 1, IfBusy::Tell, LONG) })
    };
    // An ask across slots fails for itself; what came with it does not.
    let mut answers = store.submit(vec![taking("a", 2), both("a", "b"), taking("a", 3)]).await;
    assert!(matches!(answers.pop(), Some(Ok(Reply::Busy(_)))));
    let failure = answers.pop().expect("three").expect_err("two slots");
    assert_eq!(failure.kind(), ErrorKind::Unsupported);
    assert!(failure.hint_text().is_some_and(|hint| hint.contains("braces")), "{failure:?}");
    granted(answers.pop().expect("three"));
    one(&*store, releasing("a", 2)).await.expect("given back");
    let grant = granted(one(&*store, both("{o:1}:bill", "{o:1}:stock")).await);
    assert_eq!(grant.blocks.len(), 2);

    // Whoever asks for several need not know: together if possible, else one by one.
    let locks = connect(&url(&cluster)).await;
    let busy = locks.all(["{o:1}:stock", "{o:1}:other"]).ttl(TTL).try_acquire().await;
    assert!(matches!(busy, Ok(MultiAttempt::Busy(_))), "{busy:?}");
    for names in [["{o:2}:stock", "{o:2}:bill"], ["a", "b"]] {
        let attempt = locks.all(names).ttl(TTL).try_acquire().await.expect("answered");
        let MultiAttempt::Granted(all) = attempt else { panic!("{attempt:?}") };
        let waiting = locks.all(names).ttl(TTL);
        let waiter = tokio::spawn(async move { waiting.acquire().await });
        tokio::task::yield_now().await;
        let fence = all.fence(names[0]).expect("one of them");
        all.release().await.expect("given back");
        let next = waiter.await.expect("no panic").expect("served");
        assert!(next.fence(names[0]).expect("one of them") > fence);
        next.release().await.expect("given back");
    }
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
