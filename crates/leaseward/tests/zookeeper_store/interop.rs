//! kazoo's locks under the same path exclude ours, and are excluded by ours.

use std::time::Duration;

use leaseward_testkit::{
    ZooKeeper,
    peers::{Library, Peer},
};
use serde_json::{Value, json};

use crate::help::{LONG, client, is_busy, queue_of, take, view};

const PATIENCE: Duration = Duration::from_secs(30);

fn acquire(kind: &str, waits: bool) -> Value {
    json!({"do": "acquire", "key": "/shared/x", "kind": kind, "retries": if waits { -1 } else { 0 }})
}

async fn call(peer: &mut Peer, command: Value) -> bool {
    peer.call(command, PATIENCE).await["ok"] == true
}

#[tokio::test(flavor = "multi_thread")]
async fn kazoo_and_ours_exclude_each_other() {
    let server = ZooKeeper::start();
    let locks = client(&server.url("shared"), "ours").await;
    let mut kazoo = Peer::start(Library::Kazoo, &server.hosts()).await;
    for kind in ["Lock", "WriteLock"] {
        let held = take(&locks.lock("x").ttl(LONG)).await;
        assert!(!call(&mut kazoo, acquire(kind, false)).await, "{kind} came in beside ours");
        held.release().await.expect("given back");
        assert!(call(&mut kazoo, acquire(kind, false)).await, "{kind}");
        assert!(is_busy(&locks.lock("x").ttl(LONG)).await, "we came in beside {kind}");
        assert!(is_busy(&locks.lock("x").shared().ttl(LONG)).await, "we read beside {kind}");
        let seen = view(&locks, "x").await;
        assert_eq!((&*seen.holders[0].who, seen.holders[0].remaining), ("kazoo", None));
        assert!(call(&mut kazoo, json!({"do": "release"})).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_of_both_read_together_and_writers_wait() {
    let server = ZooKeeper::start();
    let locks = client(&server.url("shared"), "ours").await;
    let mut kazoo = Peer::start(Library::Kazoo, &server.hosts()).await;
    let reader = take(&locks.lock("x").shared().ttl(LONG)).await;
    assert!(call(&mut kazoo, acquire("ReadLock", false)).await, "readers read together");
    assert!(is_busy(&locks.lock("x").ttl(LONG)).await);
    assert!(call(&mut kazoo, json!({"do": "release"})).await);
    assert!(!call(&mut kazoo, acquire("WriteLock", false)).await, "a writer beside our reader");
    reader.release().await.expect("given back");
    let permit = take(&locks.semaphore("x", 2).ttl(LONG)).await;
    for kind in ["Lock", "WriteLock", "ReadLock"] {
        assert!(!call(&mut kazoo, acquire(kind, false)).await, "{kind} beside our permit");
    }
    permit.release().await.expect("given back");
    assert!(call(&mut kazoo, acquire("ReadLock", false)).await);
    assert!(is_busy(&locks.semaphore("x", 2).ttl(LONG)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_waits_for_the_other_in_one_line() {
    let server = ZooKeeper::start();
    let locks = client(&server.url("shared"), "ours").await;
    let mut kazoo = Peer::start(Library::Kazoo, &server.hosts()).await;
    for kind in ["Lock", "WriteLock", "ReadLock"] {
        let held = take(&locks.lock("x").ttl(LONG)).await;
        kazoo.send(&acquire(kind, true));
        queue_of(&locks, "x", 1).await;
        let lock = locks.lock("x").ttl(LONG);
        let waiting = tokio::spawn(async move { lock.acquire().await });
        queue_of(&locks, "x", 2).await;
        let fence = held.fence();
        held.release().await.expect("given back");
        assert_eq!(kazoo.answer(PATIENCE).await["ok"], true, "{kind} was first in line");
        assert!(!waiting.is_finished(), "we came in beside {kind}");
        assert!(call(&mut kazoo, json!({"do": "release"})).await);
        let next = waiting.await.expect("no panic").expect("served after it");
        assert!(next.fence() > fence);
        next.release().await.expect("given back");
    }
}

/// A holder of another library that died keeps nobody out for longer than its session.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_peer_is_followed() {
    let server = ZooKeeper::builder().longest_session(Duration::from_secs(3)).start();
    let locks = client(&server.url("shared"), "ours").await;
    let mut kazoo = Peer::start(Library::Kazoo, &server.hosts()).await;
    assert!(call(&mut kazoo, acquire("Lock", false)).await);
    kazoo.kill();
    let ttl = Duration::from_secs(1);
    assert!(locks.lock("x").ttl(ttl).acquire().await.expect("in the end").is_held());
}
