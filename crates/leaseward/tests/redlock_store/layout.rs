//! What stands in the nodes: what others see of a lock, and that nothing is left behind.

use std::time::Duration;

use leaseward::{
    ErrorKind, Mode,
    store::{Ask, Break, IfBusy, Operation, Query, Reply},
};
use leaseward_testkit::{PATIENCE, RedisServer};

use crate::{
    help::{LONG, releasing, renewing, taking, until_held_at},
    names::{name, token},
    nodes::Nodes,
    operations::{ask, connect, granted, keys, one, open, take, until},
};

/// For how long a ballot is remembered, beside its lease: `ballot::ALLOWANCE`.
const ALLOWANCE: Duration = Duration::from_secs(600);

fn left(node: &RedisServer, key: &str) -> Duration {
    let left: i64 = node.cli(&["pttl", key]).parse().expect("a number");
    Duration::from_millis(u64::try_from(left).expect("it is there, and ends"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_a_string_that_ends_and_a_ballot_that_ends_later() {
    let nodes = Nodes::keeping();
    let store = open(&nodes.url("")).await;
    granted(one(&*store, taking("a", 1)).await);
    until_held_at(&nodes, "a", 5).await;
    for node in nodes.iter() {
        assert_eq!(keys(node), ["leaseward:b:lock:a", "lock:a"]);
        assert_eq!(node.cli(&["type", "lock:a"]), "string");
        assert_eq!(node.cli(&["get", "lock:a"]), token(1).reveal());
        assert!(left(node, "lock:a") <= LONG);
        let ballot = left(node, "leaseward:b:lock:a");
        assert!(ballot > ALLOWANCE && ballot <= ALLOWANCE + LONG + PATIENCE, "{ballot:?}");
    }
    assert!(matches!(one(&*store, renewing("a", 1)).await, Ok(Reply::Renewed(_))));
    assert!(matches!(one(&*store, releasing("a", 1)).await, Ok(Reply::Released)));
    until_held_at(&nodes, "a", 0).await;
    for node in nodes.iter() {
        assert_eq!(keys(node), ["leaseward:b:lock:a"], "only what orders fences");
        assert!(left(node, "leaseward:b:lock:a") <= ALLOWANCE + LONG + PATIENCE);
    }
    let bare = open(&nodes.url("prefix=")).await;
    granted(one(&*bare, taking("b", 1)).await);
    until("all have it", PATIENCE, || async {
        nodes.iter().all(|node| node.cli(&["get", "b"]) == token(1).reveal()).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_lock_has_a_key_of_ours() {
    let nodes = Nodes::keeping();
    let store = open(&nodes.url("prefix=")).await;
    granted(one(&*store, taking("a", 1)).await);
    for what in ["leaseward:b:a", "leaseward:r:a", "leaseward:"] {
        for operation in [taking(what, 2), renewing(what, 2), releasing(what, 2)] {
            let failure = one(&*store, operation).await.expect_err(what);
            assert_eq!(failure.kind(), ErrorKind::InvalidInput, "{failure}");
            assert!(failure.hint_text().is_some(), "{failure:?}");
        }
        let failure = store.inspect(Query::Name(name(what))).await.expect_err(what);
        assert_eq!(failure.kind(), ErrorKind::InvalidInput, "{failure}");
        let order = Break { name: name(what), now: true };
        let failure = store.break_lease(order).await.expect_err(what);
        assert_eq!(failure.kind(), ErrorKind::InvalidInput, "{failure}");
    }
    assert!(matches!(one(&*store, renewing("a", 1)).await, Ok(Reply::Renewed(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_keep_others_out_with_a_placeholder() {
    let nodes = Nodes::keeping();
    let store = open(&nodes.url("")).await;
    for who in [1, 2] {
        let reading = Ask { mode: Mode::Shared, ..ask("a", who, IfBusy::Tell, LONG) };
        granted(one(&*store, Operation::Ask(reading)).await);
    }
    let writer = one(&*store, taking("a", 3)).await;
    assert!(matches!(writer, Ok(Reply::Busy(_))), "{writer:?}");
    until("all have both", PATIENCE, || async {
        let both = |node: &RedisServer| node.cli(&["hlen", "leaseward:r:lock:a"]) == "2";
        nodes.iter().all(both).then_some(())
    })
    .await;
    for node in nodes.iter() {
        assert_eq!(keys(node), ["leaseward:b:lock:a", "leaseward:r:lock:a", "lock:a"]);
        keys(node).iter().for_each(|key| assert!(left(node, key) > Duration::ZERO));
    }
    for who in [1, 2] {
        assert!(matches!(one(&*store, releasing("a", who)).await, Ok(Reply::Released)));
    }
    until_held_at(&nodes, "a", 0).await;
    granted(one(&*store, taking("a", 3)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_names_nothing_is_left_where_one_is_busy() {
    let nodes = Nodes::keeping();
    let (locks, other) = (connect(&nodes.url("")).await, connect(&nodes.url("")).await);
    let held = take(other.lock("b")).await;
    let attempt = locks.all(["a", "b", "c"]).try_acquire().await.expect("they answer");
    assert!(format!("{attempt:?}").contains("Busy"), "{attempt:?}");
    for name in ["a", "c"] {
        until_held_at(&nodes, name, 0).await;
    }
    let fence = held.fence();
    held.release().await.expect("given back");
    let all = locks.all(["a", "b", "c"]).acquire().await.expect("they are free");
    let names: Vec<_> = locks.inspect(Query::all()).await.expect("they answer");
    let names: Vec<_> = names.iter().map(|view| view.name.clone()).collect();
    assert_eq!(names, ["a", "b", "c"].map(name));
    let busy = other.lock("b").try_acquire().await;
    assert!(matches!(busy, Ok(leaseward::Attempt::Busy(_))), "{busy:?}");
    all.release().await.expect("given back");
    assert!(take(other.lock("b")).await.fence() > fence);
    for name in ["a", "c"] {
        until_held_at(&nodes, name, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_majority_that_is_emptied_by_hand_lets_a_second_in_with_a_larger_fence() {
    let nodes = Nodes::keeping();
    let (locks, other) = (connect(&nodes.url("")).await, connect(&nodes.url("")).await);
    let first = take(locks.lock("a").ttl(LONG).no_renewal()).await;
    until_held_at(&nodes, "a", 5).await;
    for node in &nodes[..3] {
        node.cli(&["flushall"]);
    }
    let second = take(other.lock("a").ttl(LONG)).await;
    assert!(first.is_held(), "it cannot know yet");
    assert!(second.fence() > first.fence(), "by the clock");
    let promised = locks.guarantee();
    assert!(promised.breaks_when.iter().any(|when| when.contains("FLUSHALL")), "{promised:?}");
}
