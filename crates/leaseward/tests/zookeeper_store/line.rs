//! Standing in the line: what a hand-over costs, and that leases that move do not lose it.

use std::{sync::Arc, time::Duration};

use leaseward::{Name, store::Query};
use leaseward_testkit::ZooKeeper;

use crate::help::{LONG, client, over, queue_of, store, take, until, view};

/// All requests that the server was sent, heartbeats among them.
pub(crate) fn received(server: &ZooKeeper) -> u64 {
    let said = server.command(0, "mntr").expect("it answers");
    let line = said.lines().find_map(|line| line.strip_prefix("zk_packets_received"));
    line.and_then(|number| number.trim().parse::<f64>().ok()).expect("a number") as u64
}

const ROUNDS: u64 = 20;

/// Requests for each of twenty hand-overs, with so many waiters in line behind those who are served.
async fn cost(server: &ZooKeeper, waiters: usize) -> u64 {
    let url = server.url(&format!("line-{waiters}"));
    let (holder, crowd) = (client(&url, "holder").await, client(&url, "crowd").await);
    let mut held = take(&holder.lock("x").ttl(LONG)).await;
    let mut served = Vec::new();
    for at in 0..usize::try_from(ROUNDS).expect("small") + waiters {
        let lock = crowd.lock("x").ttl(LONG);
        let mut asked = Box::pin(async move { lock.acquire().await });
        let asks = std::future::poll_fn(|cx| std::task::Poll::Ready(asked.as_mut().poll(cx)));
        assert!(asks.await.is_pending());
        served.push(tokio::spawn(asked));
        if at % 50 == 0 {
            queue_of(&holder, "x", at + 1).await;
        }
    }
    queue_of(&holder, "x", served.len()).await;
    let mut served = served.into_iter();
    let before = received(server);
    for _ in 0..ROUNDS {
        held.release().await.expect("given back");
        let next = served.next().expect("one waits");
        held = next.await.expect("no panic").expect("served in its turn");
    }
    let spent = received(server) - before;
    for left in served {
        left.abort();
    }
    spent
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hand_over_costs_the_same_however_many_wait() {
    let server = ZooKeeper::start();
    let (few, many) = (cost(&server, 2).await, cost(&server, 500).await);
    println!("{ROUNDS} hand-overs: {few} requests with 2 more waiting, {many} with 500");
    // Waiters keep their places meanwhile, each by itself, which is no part of a hand-over: three seconds apart.
    let kept = 3 * 500;
    assert!(few <= ROUNDS * 8, "{few} requests for {ROUNDS} hand-overs");
    assert!(many <= few + ROUNDS * 2 + kept, "{many} requests with 500 waiting, {few} with 2");
}

/// A waiter watches a node that goes and comes back in one transaction, when its lease moves to another session.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_moves_is_not_taken_for_one_that_ended() {
    let server = ZooKeeper::start();
    let url = server.url("moves");
    let (one, other) = (client(&url, "one").await, client(&url, "other").await);
    let guard = take(&one.lock("x").ttl(Duration::from_secs(3))).await;
    let lock = other.lock("x").ttl(LONG);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    queue_of(&one, "x", 1).await;
    for seconds in [60, 600, 3_600] {
        guard.extend(Duration::from_secs(seconds)).await.expect("it is ours");
    }
    assert!(guard.is_held() && !waiting.is_finished());
    let seen = view(&other, "x").await;
    assert_eq!((seen.holders[0].fence, seen.waiters.len()), (guard.fence(), 1));
    let handle = guard.detach();
    let third = client(&url, "third").await;
    let guard = third.attach(&handle).await.expect("still held");
    assert!(!waiting.is_finished());
    let fence = guard.fence();
    guard.release().await.expect("given back");
    assert!(waiting.await.expect("no panic").expect("served").fence() > fence);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_try_that_is_busy_leaves_no_node() {
    let server = ZooKeeper::start();
    let url = server.url("tries");
    let (one, other) = (client(&url, "one").await, store(&url, "other").await);
    let other = over(other, "other");
    let _held = take(&one.lock("x").ttl(LONG)).await;
    let nodes = || server.command(0, "srvr").expect("it answers");
    let count = |said: String| {
        let line =
            said.lines().find_map(|line| line.strip_prefix("Node count: ").map(str::to_owned));
        line.expect("it counts its nodes")
    };
    let before = count(nodes());
    for _ in 0..5 {
        assert!(crate::help::is_busy(&other.lock("x").ttl(LONG)).await);
    }
    assert_eq!(count(nodes()), before);
}

/// The node of a name that is empty is removed by the server, at any moment.
#[tokio::test(flavor = "multi_thread")]
async fn a_names_node_may_go_at_any_time() {
    let server = ZooKeeper::start();
    let locks = Arc::new(client(&server.url("gone"), "one").await);
    for _ in 0..3 {
        take(&locks.lock("x").ttl(LONG)).await.release().await.expect("given back");
        // What the server itself does, once a minute.
        server.remove("/gone/x");
        assert!(locks.inspect(Query::Name(Name::new("x").expect("good"))).await.is_ok());
    }
    let both = locks.all(["x", "y"]).try_acquire().await.expect("answered");
    assert!(matches!(both, leaseward::MultiAttempt::Granted(_)));
    until("both are shown", || async {
        (locks.inspect(Query::all()).await.ok()?.len() == 2).then_some(())
    })
    .await;
}
