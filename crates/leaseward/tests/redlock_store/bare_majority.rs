//! A lease that no more nodes have than are needed: each of them that loses it counts with those that never had it.

use leaseward::{Guard, Locks};
use leaseward_testkit::{Fsync, PATIENCE, RedisServer, Skew};

use crate::{
    help::{LONG, busy, held_at, is_away, take_in_time, until_held_at},
    nodes::Nodes,
    operations::{connect, take, until},
};

/// More than a lease lasts, and not so far ahead that the others out-vote it.
const AHEAD_MS: i64 = 600_000;

/// A lease at the first three of five nodes; the others are back, and nobody has told them.
async fn of_three(nodes: &Nodes) -> (Guard, Locks, Locks) {
    let (locks, other) = (connect(&nodes.url("")).await, connect(&nodes.url("")).await);
    let away = &nodes[3..];
    away.iter().for_each(RedisServer::kill);
    let held = take(locks.lock("a").ttl(LONG).no_renewal()).await;
    until_held_at(&nodes[..3], "a", 3).await;
    away.iter().for_each(RedisServer::restart);
    for client in [&locks, &other] {
        until("they are back", PATIENCE, || async {
            let found = client.diagnose().await.ok()?;
            (!found.iter().any(is_away)).then_some(())
        })
        .await;
    }
    assert!(busy(other.lock("a").try_acquire().await).holder.is_some(), "three have it");
    assert_eq!(held_at(away, "a"), 0);
    (held, locks, other)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_them_that_is_emptied_lets_a_second_in_with_a_larger_fence() {
    let nodes = Nodes::keeping();
    let (held, _locks, other) = of_three(&nodes).await;
    nodes[0].cli(&["flushall"]);
    let second = take(other.lock("a").ttl(LONG)).await;
    assert!(held.is_held(), "it cannot know yet");
    assert!(second.fence() > held.fence(), "by the clock");
    let promised = other.guarantee();
    let says = |what| promised.breaks_when.iter().any(|when| when.contains(what));
    assert!(says("together with nodes that do not have the lease"), "{promised:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_them_whose_clock_is_set_forward_lets_a_second_in_with_a_larger_fence() {
    let clock = Skew::new();
    let nodes = Nodes::start(5, |at| {
        let keeping = RedisServer::builder().appendonly(Fsync::Always);
        if at == 0 { keeping.skew(&clock) } else { keeping }
    });
    let (held, _locks, other) = of_three(&nodes).await;
    clock.set_ms(AHEAD_MS);
    // The first attempt may only teach how high to go there.
    let second = take_in_time(&other, "a").await;
    assert!(held.is_held(), "it cannot know yet");
    assert!(second.fence() > held.fence(), "by the ballot");
}

#[tokio::test(flavor = "multi_thread")]
async fn renewed_once_it_is_at_all_of_them_and_a_minority_is_a_minority() {
    let nodes = Nodes::keeping();
    let (held, _locks, other) = of_three(&nodes).await;
    until("it is put there", PATIENCE, || async {
        held.renew().await.expect("a majority has it");
        (held_at(&nodes, "a") == 5).then_some(())
    })
    .await;
    nodes[..2].iter().for_each(|node| drop(node.cli(&["flushall"])));
    assert!(busy(other.lock("a").try_acquire().await).holder.is_some());
}
