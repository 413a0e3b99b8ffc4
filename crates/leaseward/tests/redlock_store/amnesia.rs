//! Nodes that restart and have forgotten their votes.

use std::time::Duration;

use leaseward::{Attempt, Error, ErrorKind, Locks};
use leaseward_testkit::{Fsync, PATIENCE, RedisServer};

use crate::{
    help::{busy, held_at, is_away, owners, until_held_at},
    nodes::Nodes,
    operations::{connect, keys, take, until},
};

/// As long as leases last, and as forgetful nodes do not vote: long enough to be seen.
const MAX_TTL: Duration = Duration::from_secs(3);
const WAITING: &str = "max_ttl=3s";

fn forgetful() -> Nodes {
    Nodes::start(5, |_| RedisServer::builder())
}

/// Waits until all nodes are there and vote.
async fn until_they_vote(locks: &Locks) {
    until("they vote", PATIENCE, || async {
        let found = locks.diagnose().await.ok()?;
        (!found.iter().any(is_away)).then_some(())
    })
    .await;
}

/// That an error names exactly these nodes, each with the seconds left, and says what can be done.
fn names_who_waits(failure: &Error, nodes: &Nodes, waiting: &[usize]) {
    assert_eq!(failure.kind(), ErrorKind::Unavailable, "{failure}");
    for (at, node) in nodes.iter().enumerate() {
        let says = |seconds: u32| {
            let why = format!(
                "{} (may have lost its memory and does not vote for {seconds} s yet)",
                node.address()
            );
            failure.message().contains(&why)
        };
        assert_eq!((1..=4).any(says), waiting.contains(&at), "{failure}");
    }
    assert!(failure.hint_text().is_some_and(|hint| hint.contains("appendfsync")), "{failure:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn new_nodes_do_not_vote_at_first_and_the_error_says_for_how_long() {
    let nodes = forgetful();
    let locks = connect(&nodes.url(WAITING)).await;
    let failure = locks.lock("a").ttl(MAX_TTL).try_acquire().await.expect_err("all are new");
    names_who_waits(&failure, &nodes, &[0, 1, 2, 3, 4]);
    until_they_vote(&locks).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_restarted_empty_votes_again_once_all_it_forgot_has_run_out() {
    let nodes = forgetful();
    let locks = connect(&nodes.url(WAITING)).await;
    until_they_vote(&locks).await;
    nodes[2].restart();
    // A node that does not vote is not asked either.
    let held = take(locks.lock("a").ttl(MAX_TTL)).await;
    until_held_at(&nodes, "a", 4).await;
    assert!(keys(&nodes[2]).is_empty(), "{:?}", keys(&nodes[2]));
    // It is said as soon as it is connected again.
    until("it is said to wait", PATIENCE, || async {
        let found = locks.diagnose().await.ok()?;
        let address = nodes[2].address();
        let waits = |what: &str| what.contains(&address) && what.contains("does not vote for");
        found.iter().any(|one| waits(&one.what)).then_some(())
    })
    .await;
    // A renewal brings the lease to it as soon as it votes.
    until("it has it too", PATIENCE, || async { (held_at(&nodes, "a") == 5).then_some(()) }).await;
    assert!(held.is_held());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_majority_that_restarted_empty_grants_nothing_for_that_long() {
    let nodes = forgetful();
    let locks = connect(&nodes.url(WAITING)).await;
    until_they_vote(&locks).await;
    let held = take(locks.lock("a").ttl(MAX_TTL)).await;
    let restarted = [0, 1, 4];
    restarted.iter().for_each(|at| nodes[*at].restart());
    let failure = until("they are connected again", PATIENCE, || async {
        let failure = locks.lock("b").ttl(MAX_TTL).try_acquire().await.err()?;
        let waiting = failure.message().matches("does not vote").count();
        // What failed often is not asked for a moment, and is told with another hint.
        let is_asked = !failure.message().contains("not being asked");
        (is_asked && waiting == 3 && failure.message().matches(" (").count() == 3)
            .then_some(failure)
    })
    .await;
    names_who_waits(&failure, &nodes, &restarted);
    // By the time they vote, whoever held something has lost it.
    until_they_vote(&locks).await;
    assert!(!held.is_held());
    assert!(take(locks.lock("a").ttl(MAX_TTL)).await.fence() > held.fence());
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_keep_every_vote_on_disk_vote_at_once() {
    let nodes = Nodes::keeping();
    // Longer than the test: whoever waited would not get to its end.
    let locks = connect(&nodes.url("max_ttl=10m")).await;
    let held = take(locks.lock("a")).await;
    until_held_at(&nodes, "a", 5).await;
    let before = owners(&nodes, "a");
    nodes.iter().for_each(RedisServer::restart);
    assert_eq!(owners(&nodes, "a"), before);
    until("it can be renewed", PATIENCE, || async { held.renew().await.ok() }).await;
    assert!(held.is_held());
}

/// A lease on the first three nodes only, the third of which then restarts empty. The others keep what they are told.
async fn forgotten_by_one(settings: &str) -> (Nodes, Locks, Locks) {
    let nodes = Nodes::start(5, |at| match at {
        2 => RedisServer::builder(),
        _ => RedisServer::builder().appendonly(Fsync::Always),
    });
    let (first, second) =
        (connect(&nodes.url(settings)).await, connect(&nodes.url(settings)).await);
    until_they_vote(&first).await;
    nodes[3].kill();
    nodes[4].kill();
    (nodes, first, second)
}

async fn forget(nodes: &Nodes, second: &Locks) {
    until_held_at(&nodes[..3], "a", 3).await;
    [3, 4, 2].iter().for_each(|at| nodes[*at].restart());
    until("they are back", PATIENCE, || async {
        let found = second.diagnose().await.ok()?;
        let mut away = found.iter().filter(|one| is_away(one));
        away.all(|one| one.what.contains("does not vote")).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_guard_there_are_two_holders_and_only_fences_tell_them_apart() {
    let (nodes, first, second) = forgotten_by_one("amnesia=trust&max_ttl=1m").await;
    let held = take(first.lock("a").no_renewal()).await;
    forget(&nodes, &second).await;
    let again = take(second.lock("a")).await;
    assert!(held.is_held() && again.is_held(), "this is what the guard is for");
    assert!(again.fence() > held.fence(), "{:?} after {:?}", again.fence(), held.fence());
    let promised = second.guarantee();
    assert!(promised.breaks_when.iter().any(|when| when.contains("amnesia=trust")), "{promised:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_guard_there_is_one() {
    let (nodes, first, second) = forgotten_by_one(WAITING).await;
    let held = take(first.lock("a").ttl(MAX_TTL)).await;
    forget(&nodes, &second).await;
    // Two are free and two say that it is held; the one that forgot might be the third of either.
    assert!(busy(second.lock("a").ttl(MAX_TTL).try_acquire().await).holder.is_some());
    assert!(held.is_held());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_snapshot_is_no_memory() {
    let nodes = Nodes::start(3, |at| match at {
        0 => RedisServer::builder(),
        _ => RedisServer::builder().appendonly(Fsync::Always),
    });
    let locks = connect(&nodes.url(WAITING)).await;
    until_they_vote(&locks).await;
    take(locks.lock("a").ttl(MAX_TTL)).await.release().await.expect("given back");
    nodes[0].cli(&["save"]);
    nodes[2].kill();
    let last = take(locks.lock("a").ttl(MAX_TTL)).await;
    let fence = last.fence();
    last.release().await.expect("given back");
    // It comes back with the record of before, and makes a majority with the one that was away.
    nodes[0].restart();
    assert_eq!(keys(&nodes[0]), ["leaseward:b:lock:a"]);
    nodes[2].restart();
    nodes[1].kill();
    let next = until("it votes", PATIENCE, || async {
        match locks.lock("a").ttl(MAX_TTL).try_acquire().await {
            Ok(Attempt::Granted(guard)) => Some(guard),
            Ok(Attempt::Busy(_)) | Err(_) => None,
        }
    })
    .await;
    assert!(next.fence() > fence);
}
