//! A node that is slow, not dead: the others decide without it, and what it says later is put right.

use leaseward::store::Reply;
use leaseward_testkit::PATIENCE;

use crate::{
    help::{held_at, owners, releasing, renewing, taking, until_held_at},
    names::token,
    nodes::Nodes,
    operations::{connect, granted, one, open, take, until},
};

/// Far longer than any test: whoever waited for a stopped node would not get to its end.
const PATIENT: &str = "timeout=10m";

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_a_stopped_minority() {
    let nodes = Nodes::keeping();
    let (locks, other) = (connect(&nodes.url(PATIENT)).await, connect(&nodes.url(PATIENT)).await);
    nodes[1].pause();
    nodes[4].pause();
    let held = take(locks.lock("a")).await;
    held.renew().await.expect("three have it");
    assert!(matches!(other.lock("a").try_acquire().await, Ok(leaseward::Attempt::Busy(_))));
    let waiting = other.lock("a");
    let waiting = tokio::spawn(async move { waiting.acquire().await });
    held.release().await.expect("three have it");
    let next = waiting.await.expect("no panic").expect("its turn");
    next.release().await.expect("three have it");
    nodes[1].resume();
    nodes[4].resume();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_vote_for_what_was_granted_is_kept_and_counts() {
    let nodes = Nodes::keeping();
    let store = open(&nodes.url(PATIENT)).await;
    nodes[0].pause();
    nodes[1].pause();
    let grant = granted(one(&*store, taking("a", 1)).await);
    assert_eq!(held_at(&nodes[2..], "a"), 3);
    nodes[0].resume();
    nodes[1].resume();
    until_held_at(&nodes, "a", 5).await;
    // These two count from now on: two of the first three may go.
    nodes[2].kill();
    nodes[3].kill();
    until("it can be renewed", PATIENCE, || async {
        matches!(one(&*store, renewing("a", 1)).await, Ok(Reply::Renewed(_))).then_some(())
    })
    .await;
    let again = granted(one(&*store, taking("a", 1)).await);
    assert_eq!(again.fence(), grant.fence(), "under the same ballot");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_vote_for_what_was_refused_is_taken_back() {
    let nodes = Nodes::keeping();
    let store = open(&nodes.url(PATIENT)).await;
    // Held by another library at a majority, so nobody waits for the two that are stopped.
    for node in &nodes[..3] {
        node.cli(&["set", "lock:a", "theirs"]);
    }
    nodes[3].pause();
    nodes[4].pause();
    let refused = one(&*store, taking("a", 1)).await;
    assert!(matches!(refused, Ok(Reply::Busy(_))), "{refused:?}");
    nodes[3].resume();
    nodes[4].resume();
    // Both have heard all of it once they have answered something that was sent later.
    granted(one(&*store, taking("b", 1)).await);
    until_held_at(&nodes, "b", 5).await;
    assert_eq!(owners(&nodes, "a"), ["theirs", "theirs", "theirs", "", ""]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_vote_over_a_lost_connection_is_taken_back_with_the_next() {
    let nodes = Nodes::keeping();
    // Two of the nodes are given up while they are stopped.
    let store = open(&nodes.url("timeout=300ms")).await;
    for node in &nodes[..3] {
        node.cli(&["set", "lock:a", "theirs"]);
    }
    nodes[3].pause();
    nodes[4].pause();
    let refused = one(&*store, taking("a", 1)).await;
    assert!(matches!(refused, Ok(Reply::Busy(_))), "{refused:?}");
    until("they are given up", PATIENCE, || async {
        let found = store.diagnose().await.expect("it can be asked");
        let away = found.iter().filter(|one| one.meaning.contains("the others decide without it"));
        (away.count() == 2).then_some(())
    })
    .await;
    nodes[3].resume();
    nodes[4].resume();
    crate::help::until_all_vote(&*store).await;
    until("it is taken back", PATIENCE, || async {
        (owners(&nodes, "a") == ["theirs", "theirs", "theirs", "", ""]).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_given_back_while_a_node_was_away_is_free_there_when_it_returns() {
    let nodes = Nodes::keeping();
    let store = open(&nodes.url("")).await;
    granted(one(&*store, taking("a", 1)).await);
    until_held_at(&nodes, "a", 5).await;
    nodes[0].kill();
    nodes[1].kill();
    let released = one(&*store, releasing("a", 1)).await;
    assert!(matches!(released, Ok(Reply::Released)), "{released:?}");
    nodes[0].restart();
    nodes[1].restart();
    assert_eq!(owners(&nodes[2..], "a"), ["", "", ""]);
    until_held_at(&nodes, "a", 0).await;
    granted(one(&*store, taking("a", 2)).await);
    until("it is somebody else's everywhere", PATIENCE, || async {
        owners(&nodes, "a").iter().all(|owner| *owner == token(2).reveal()).then_some(())
    })
    .await;
}
