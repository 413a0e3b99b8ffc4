//! Ours and theirs all at once: under the lock each reads a counter, waits, and writes it plus one. Two holders at a
//! time lose an addition.

use std::time::Duration;

use leaseward::Locks;
use leaseward_testkit::peers::{Library, Peer};
use serde_json::json;
use tokio::task::JoinSet;

use crate::{
    help::{PATIENCE, ours, their_urls, with_both_versions},
    nodes::Nodes,
};

/// Short, but not too short for a machine that is busy with other tests.
const TTL: Duration = Duration::from_secs(2);

/// Clients of ours, tasks of each, additions of each task.
const OURS: (u64, u64, u64) = (2, 2, 6);

/// Additions of theirs.
const THEIRS: u64 = 6;

with_both_versions! {
    no_addition_is_lost
    nor_with_a_crash_and_two_nodes_killed
}

async fn plus_one(server: &mut redis::aio::MultiplexedConnection, hold: Duration) {
    let before: Option<u64> =
        redis::cmd("GET").arg("counter").query_async(server).await.expect("a number");
    tokio::time::sleep(hold).await;
    let after = before.unwrap_or(0) + 1;
    let set = redis::cmd("SET").arg("counter").arg(after).query_async::<()>(server).await;
    set.expect("the first node is there");
}

async fn add(locks: Locks, mut server: redis::aio::MultiplexedConnection, is_slow: bool) {
    let lock = locks.lock("a").ttl(TTL);
    for turn in 0..OURS.2 {
        let guard = lock.acquire().await.expect("it comes free");
        // Now and then for so long that it must be renewed.
        let hold =
            if is_slow && turn == OURS.2 / 2 { TTL * 5 / 4 } else { Duration::from_millis(1) };
        plus_one(&mut server, hold).await;
        guard.release().await.expect("a majority is there");
    }
}

/// Ours at work.
async fn work(nodes: &Nodes) -> JoinSet<()> {
    let client = redis::Client::open(nodes[0].url()).expect("a URL");
    let server = client.get_multiplexed_async_connection().await.expect("it answers");
    let mut tasks = JoinSet::new();
    for client in 0..OURS.0 {
        let locks = ours(nodes).await;
        for task in 0..OURS.1 {
            tasks.spawn(add(locks.clone(), server.clone(), client + task == 0));
        }
    }
    tasks
}

async fn finish(mut tasks: JoinSet<()>, mut peer: Peer, nodes: &Nodes) {
    let report = peer.answer(2 * PATIENCE).await;
    assert_eq!((&report["acquired"], &report["lost"]), (&json!(THEIRS), &json!(0)), "{report}");
    while let Some(outcome) = tasks.join_next().await {
        outcome.expect("nobody panicked");
    }
    let all = OURS.0 * OURS.1 * OURS.2 + THEIRS;
    assert_eq!(nodes[0].cli(&["get", "counter"]), all.to_string());
}

/// With their own pause between attempts. Version 5 keeps the votes of an attempt that failed until they run out: with one of
/// 10 ms, and nodes that came free 30 ms apart, it never has a majority, even if there is nobody else.
fn order() -> serde_json::Value {
    json!({
        "do": "loop", "key": "a", "ttl_ms": TTL.as_millis(), "hold_ms": 3, "count": THEIRS,
        "retries": 100_000, "counter_key": "counter",
    })
}

async fn no_addition_is_lost(library: Library) {
    let nodes = Nodes::keeping();
    let mut peer = Peer::start(library, &their_urls(&nodes)).await;
    peer.send(&order());
    let tasks = work(&nodes).await;
    finish(tasks, peer, &nodes).await;
}

async fn nor_with_a_crash_and_two_nodes_killed(library: Library) {
    let nodes = Nodes::keeping();
    // The victim counts nothing, so that what it did does not matter; it holds until its time is over.
    let mut victim = Peer::start(library, &their_urls(&nodes)).await;
    let acquire = json!({ "do": "acquire", "key": "a", "ttl_ms": TTL.as_millis() });
    assert_eq!(victim.call(acquire, PATIENCE).await["ok"], true);
    let mut peer = Peer::start(library, &their_urls(&nodes)).await;
    let tasks = work(&nodes).await;
    peer.send(&order());
    victim.kill();
    nodes[1].restart();
    nodes[3].restart();
    finish(tasks, peer, &nodes).await;
}
