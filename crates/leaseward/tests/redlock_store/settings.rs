//! What can be set, and what cannot be had.

use std::time::Duration;

use leaseward::{ErrorKind, store::Severity};
use leaseward_testkit::{Fsync, PATIENCE, RedisServer};

use crate::{
    help::{LONG, taking},
    nodes::Nodes,
    operations::{connect, one, open, take},
};

#[tokio::test(flavor = "multi_thread")]
async fn drift_is_taken_off_what_a_holder_counts_on() {
    let nodes = Nodes::keeping();
    let usual = connect(&nodes.url("")).await;
    let held = take(usual.lock("a").ttl(LONG)).await;
    assert!(held.remaining() <= LONG.mul_f64(0.99), "{:?}", held.remaining());
    assert!(held.remaining() > LONG / 2, "{:?}", held.remaining());
    let wary = connect(&nodes.url("drift=40%,10ms")).await;
    let held = take(wary.lock("b").ttl(LONG)).await;
    assert!(held.remaining() <= LONG.mul_f64(0.6), "{:?}", held.remaining());
    held.renew().await.expect("they answer");
    let left = held.remaining();
    assert!(left <= LONG.mul_f64(0.6), "also after a renewal: {left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ttl_of_which_drift_leaves_less_than_half_is_raised() {
    let nodes = Nodes::keeping();
    let wary = connect(&nodes.url("drift=0%,3000ms")).await;
    let lock = wary.lock("a").ttl(Duration::from_secs(2)).wait(PATIENCE);
    let held = lock.acquire().await.expect("it is free");
    assert_eq!(held.ttl(), Duration::from_secs(6));
    assert!(held.remaining() <= held.ttl() / 2, "{:?}", held.remaining());
    held.extend(Duration::from_secs(2)).await.expect("they answer");
    assert!(held.is_held());
    for none in ["drift=0%,60000ms", "drift=50%", "drift=30%,6000ms&max_ttl=20s"] {
        let failure = leaseward::connect(&nodes.url(none)).await.expect_err(none);
        assert_eq!(failure.kind(), ErrorKind::InvalidInput, "{none}: {failure:?}");
        assert!(failure.message().contains("less than half"), "{none}: {failure}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_keeps_a_name_taken_for_longer_than_a_node_that_forgot_waits() {
    let nodes = Nodes::keeping();
    let locks = connect(&nodes.url("max_ttl=1m")).await;
    let (half, second) = (LONG / 2, Duration::from_secs(1));
    let lock = || locks.lock("a");
    let failure = lock().ttl(half).min_hold(LONG + second).try_acquire().await;
    let failure = failure.expect_err("it is too long");
    assert_eq!(failure.kind(), ErrorKind::Unsupported, "{failure:?}");
    assert!(failure.message().contains("longer than 60s"), "{failure}");
    assert!(failure.hint_text().is_some_and(|hint| hint.contains("max_ttl")), "{failure:?}");
    let several = locks.all(["a", "b"]).ttl(half).min_hold(LONG + second).acquire().await;
    assert_eq!(several.expect_err("it is too long").kind(), ErrorKind::Unsupported);
    let held = take(lock().ttl(half)).await;
    let longer = held.extend(LONG + second).await.expect_err("it is too long");
    assert_eq!(longer.kind(), ErrorKind::Unsupported, "{longer:?}");
    held.extend(LONG).await.expect("they answer");
    held.release().await.expect("given back");
    take(lock().ttl(half).min_hold(LONG)).await.release().await.expect("kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_majority_that_is_too_slow_is_told_with_the_time_it_had() {
    let nodes = Nodes::keeping();
    let store = open(&nodes.url("timeout=20ms")).await;
    nodes[..3].iter().for_each(RedisServer::pause);
    let failure = one(&*store, taking("a", 1)).await.expect_err("they are stopped");
    assert!(failure.message().contains("no answer within 20 ms"), "{failure}");
    nodes[..3].iter().for_each(RedisServer::resume);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_had_is_refused_with_the_reason() {
    let nodes = Nodes::keeping();
    let locks = connect(&nodes.url("")).await;
    let permits = locks.semaphore("a", 2).try_acquire().await.expect_err("there are none");
    assert_eq!(permits.kind(), ErrorKind::Unsupported);
    let says = "with three nodes and two permits there can be three holders";
    assert!(permits.message().contains(says), "{permits}");
    let long = locks.lock("a").ttl(2 * LONG).try_acquire().await.expect_err("it is too long");
    assert_eq!(long.kind(), ErrorKind::Unsupported);
    assert!(long.hint_text().is_some_and(|hint| hint.contains("max_ttl")), "{long:?}");
    drop(take(connect(&nodes.url("max_ttl=2m")).await.lock("a").ttl(2 * LONG)).await);
    for node in nodes.iter() {
        assert_eq!(node.cli(&["exists", "leaseward:h:lock:a"]), "0", "one of ours, not of Redis");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_of_nodes_that_is_no_better_than_fewer_is_found() {
    let nodes = Nodes::start(4, |_| RedisServer::builder().appendonly(Fsync::Always));
    let locks = connect(&nodes.url("")).await;
    let found = locks.diagnose().await.expect("they answer");
    let odd = found.iter().find(|one| one.what == "4 nodes").expect("it is told");
    assert_eq!(odd.severity, Severity::Warning);
    // With four, two may not be lost.
    nodes[0].kill();
    let held = take(locks.lock("a").ttl(LONG)).await;
    assert!(held.remaining() > Duration::ZERO);
    let one = connect(&format!("redlock://{}", nodes[1].address())).await;
    let found = one.diagnose().await.expect("it answers");
    assert!(found.iter().any(|one| one.what == "1 node"), "{found:?}");
}
