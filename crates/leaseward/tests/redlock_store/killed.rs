//! Nodes that are gone: a minority does not matter, a majority ends everything until it returns.

use std::time::Duration;

use leaseward::{ErrorKind, LostReason, Release};
use leaseward_testkit::{PATIENCE, RedisServer};

use crate::{
    help::{LONG, busy, held_at, owners, take_in_time, taking, until_all_vote},
    nodes::Nodes,
    operations::{connect, healed, one, open, take, try_open, until},
};

#[tokio::test(flavor = "multi_thread")]
async fn with_any_two_killed_everything_goes_on() {
    let nodes = Nodes::keeping();
    let (locks, other) = (connect(&nodes.url("")).await, connect(&nodes.url("")).await);
    let mut last = take(locks.lock("kept").ttl(LONG)).await;
    for (first, second) in (0..5).flat_map(|a| (0..a).map(move |b| (a, b))) {
        nodes[first].kill();
        nodes[second].kill();
        // What was held before is kept, and passes on with a larger fence.
        last.renew().await.expect("three have it");
        assert!(busy(other.lock("kept").try_acquire().await).holder.is_some());
        let waiting = other.lock("kept").ttl(LONG);
        let waiting = tokio::spawn(async move { waiting.acquire().await });
        let fence = last.fence();
        assert_eq!(last.release().await.expect("given back"), Release::Released);
        last = waiting.await.expect("no panic").expect("its turn");
        assert!(last.fence() > fence, "without {first} and {second}");
        // What begins now works as well.
        let fresh = take(locks.lock("fresh")).await;
        fresh.renew().await.expect("three have it");
        assert_eq!(fresh.release().await.expect("given back"), Release::Released);
        nodes[first].restart();
        nodes[second].restart();
        // Both are back, and have the lease, before the next two go: or it would be three.
        for client in [&locks, &other] {
            until("they are back", PATIENCE, || async {
                let found = client.diagnose().await.expect("it answers");
                found.iter().all(|one| !one.what.contains("not reached")).then_some(())
            })
            .await;
        }
        until("they have it", PATIENCE, || async {
            last.renew().await.expect("all are there");
            (held_at(&nodes, "kept") == 5).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_starts_without_a_minority() {
    let nodes = Nodes::keeping();
    nodes[0].kill();
    nodes[3].kill();
    let store = open(&nodes.url("")).await;
    crate::operations::granted(one(&*store, taking("a", 1)).await);
    nodes[0].restart();
    nodes[3].restart();
    until_all_vote(&*store).await;
    let new = open(&nodes.url("")).await;
    until("it is seen by all", PATIENCE, || async {
        let answer = one(&*new, taking("a", 2)).await.expect("it answers");
        matches!(answer, leaseward::store::Reply::Busy(_)).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_three_killed_nothing_is_granted_until_they_return() {
    let nodes = Nodes::keeping();
    let (locks, other) = (connect(&nodes.url("")).await, connect(&nodes.url("")).await);
    let held = take(locks.lock("held").ttl(Duration::from_millis(1_500))).await;
    let fence = held.fence();
    let gone = [1, 2, 4];
    gone.iter().for_each(|at| nodes[*at].kill());
    let failure = until("the loss is noticed", PATIENCE, || async {
        let failure = other.lock("new").try_acquire().await.expect_err("there is no majority");
        // The first may have been on its way when they were killed.
        (failure.kind() == ErrorKind::Unavailable && failure.message().contains("without"))
            .then_some(failure)
    })
    .await;
    for (at, node) in nodes.iter().enumerate() {
        let is_named = failure.message().contains(&node.address());
        assert_eq!(is_named, gone.contains(&at), "{failure}");
    }
    assert!(failure.message().contains("3 are needed"), "{failure}");
    assert_eq!(held.lost().await, LostReason::Expired, "told by the clock alone");
    for at in [0, 3] {
        assert_eq!(nodes[at].cli(&["get", "lock:new"]), "", "what failed leaves nothing");
    }
    // Nor does a client start.
    let refused = try_open(&nodes.url("")).await.expect_err("there is no majority");
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(gone.iter().all(|at| refused.message().contains(&nodes[*at].address())), "{refused}");
    gone.iter().for_each(|at| nodes[*at].restart());
    let again = take_in_time(&other, "held").await;
    assert!(again.fence() > fence);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_for_want_of_a_majority_is_not_left_behind() {
    let nodes = Nodes::keeping();
    let store = open(&nodes.url("timeout=1s")).await;
    for at in [0, 1, 2] {
        nodes[at].pause();
    }
    let failure = one(&*store, taking("a", 1)).await.expect_err("only two answer");
    assert!(failure.message().contains("no answer within 1000 ms"), "{failure}");
    for at in [0, 1, 2] {
        assert!(failure.message().contains(&nodes[at].address()), "{failure}");
    }
    nodes[..3].iter().for_each(RedisServer::resume);
    healed(&*store).await;
    until("it is taken back everywhere", PATIENCE, || async {
        owners(&nodes, "a").iter().all(String::is_empty).then_some(())
    })
    .await;
}
