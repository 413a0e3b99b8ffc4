//! A client that is cut off from some of the nodes, while others are not.

use std::time::Duration;

use leaseward::{Attempt, ErrorKind, LostReason};
use leaseward_testkit::{PATIENCE, Proxy};

use crate::{
    help::{LONG, Lines, busy, take_in_time},
    nodes::Nodes,
    operations::{connect, take, until},
};

#[tokio::test(flavor = "multi_thread")]
async fn cut_off_from_a_minority_a_client_goes_on() {
    let nodes = Nodes::keeping();
    let lines = Lines::to(&nodes);
    let (cut_off, other) = (connect(&lines.url("")).await, connect(&nodes.url("")).await);
    let before = take(cut_off.lock("before").ttl(LONG)).await;
    lines.cut(&[0, 3]);
    until("it is noticed, or does not matter", PATIENCE, || async { before.renew().await.ok() })
        .await;
    let during = take(cut_off.lock("during").ttl(LONG)).await;
    for name in ["before", "during"] {
        let seen = busy(other.lock(name).try_acquire().await);
        assert!(seen.holder.is_some(), "the other side sees who has `{name}`");
    }
    let fence = during.fence();
    during.release().await.expect("given back");
    assert!(take(other.lock("during")).await.fence() > fence);
}

#[tokio::test(flavor = "multi_thread")]
async fn cut_off_from_a_majority_a_client_believes_nothing() {
    let nodes = Nodes::keeping();
    let lines = Lines::to(&nodes);
    let (cut_off, other) = (connect(&lines.url("")).await, connect(&nodes.url("")).await);
    let held = take(cut_off.lock("a").ttl(Duration::from_secs(2))).await;
    lines.cut(&[0, 2, 4]);
    let next = take_in_time(&other, "a");
    let (reason, next) = tokio::join!(held.lost(), next);
    assert_eq!(reason, LostReason::Expired);
    assert!(!held.is_held(), "nobody holds it twice");
    assert!(next.fence() > held.fence());
    let failure = cut_off.lock("b").try_acquire().await.expect_err("there is no majority");
    assert!(matches!(failure.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate));
    lines.mend();
    next.release().await.expect("given back");
    let back = take_in_time(&cut_off, "a").await;
    assert!(back.is_held());
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_vanish_are_as_good_as_cut_lines() {
    let nodes = Nodes::keeping();
    let lines = Lines::to(&nodes);
    let cut_off = connect(&lines.url("timeout=300ms")).await;
    // No more than two: nobody notices. The third takes the majority.
    for gone in 1..=3 {
        lines.0[gone].hold_to_server();
        let attempt = cut_off.lock("a").try_acquire().await;
        match (gone, attempt) {
            (1 | 2, Ok(Attempt::Granted(guard))) => {
                guard.release().await.expect("given back");
            }
            (3, Err(_)) => {}
            (_, attempt) => panic!("with {gone} black holes: {attempt:?}"),
        }
    }
    lines.0.iter().for_each(Proxy::pass);
    take_in_time(&cut_off, "a").await.release().await.expect("given back");
}
