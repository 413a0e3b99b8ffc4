//! Each peer locks, is refused, lengthens, releases, and is excluded by the others.

use std::time::Duration;

use leaseward_testkit::{
    RedisServer,
    peers::{Library, Peer},
};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(20);

fn number(server: &RedisServer, args: &[&str]) -> i64 {
    server.cli(args).parse().expect("a number")
}

async fn locks_and_unlocks(library: Library) {
    let server = RedisServer::start();
    let key = library.key("a");
    let mut peer = Peer::start(library, &server.url()).await;
    let acquire = json!({ "do": "acquire", "key": key, "ttl_ms": 30_000 });
    let answer = peer.call(acquire.clone(), PATIENCE).await;
    assert_eq!(answer, json!({ "ok": true }), "{library:?}");
    let left = number(&server, &["pttl", &key]);
    assert!((20_000..=30_000).contains(&left), "{library:?}: {left}");

    let refused = peer.call(acquire, PATIENCE).await;
    assert_eq!(refused["ok"], false, "{library:?}");
    assert!(refused["error"].is_string(), "{library:?}: {refused}");

    let answer = peer.call(json!({ "do": "extend", "ttl_ms": 60_000 }), PATIENCE).await;
    assert_eq!(answer, json!({ "ok": true }), "{library:?}");
    let left = number(&server, &["pttl", &key]);
    assert!((50_000..=60_000).contains(&left), "{library:?}: {left}");

    let answer = peer.call(json!({ "do": "release" }), PATIENCE).await;
    assert_eq!(answer, json!({ "ok": true }), "{library:?}");
    assert_eq!(server.cli(&["exists", &key]), "0", "{library:?}");
}

#[tokio::test]
async fn node_redlock() {
    locks_and_unlocks(Library::NodeRedlock).await;
}

#[tokio::test]
async fn node_redlock_4() {
    locks_and_unlocks(Library::NodeRedlock4).await;
}

#[tokio::test]
async fn redis_semaphore() {
    locks_and_unlocks(Library::RedisSemaphore).await;
}

#[tokio::test]
async fn redis_py() {
    locks_and_unlocks(Library::RedisPy).await;
}

#[tokio::test]
async fn redis_py_without_expiry() {
    let server = RedisServer::start();
    let mut peer = Peer::start(Library::RedisPy, &server.url()).await;
    let acquire = json!({ "do": "acquire", "key": "a", "ttl_ms": null });
    assert_eq!(peer.call(acquire, PATIENCE).await, json!({ "ok": true }));
    assert_eq!(server.cli(&["pttl", "a"]), "-1");
    peer.kill();
    assert_eq!(server.cli(&["exists", "a"]), "1", "a crash leaves it for ever");
}

#[tokio::test]
async fn redis_semaphore_renews_by_itself() {
    let server = RedisServer::start();
    let mut peer = Peer::start(Library::RedisSemaphoreRenewing, &server.url()).await;
    let acquire = json!({ "do": "acquire", "key": "mutex:a", "ttl_ms": 1_000 });
    assert_eq!(peer.call(acquire, PATIENCE).await, json!({ "ok": true }));
    let mut before = number(&server, &["pttl", "mutex:a"]);
    leaseward_testkit::eventually("the time left grows", PATIENCE, || {
        let left = number(&server, &["pttl", "mutex:a"]);
        let grown = left > before;
        before = left;
        grown.then_some(())
    });
    assert_eq!(peer.call(json!({ "do": "release" }), PATIENCE).await, json!({ "ok": true }));
}

#[tokio::test]
async fn all_exclude_each_other() {
    const COUNT: u64 = 15;
    let server = RedisServer::start();
    // The one key that all of them can lock.
    let key = Library::RedisSemaphore.key("a");
    let work = json!({
        "do": "loop", "key": key, "ttl_ms": 10_000, "count": COUNT, "hold_ms": 2, "retry_ms": 5,
        "counter_key": "counter",
    });
    let mut peers = Vec::new();
    for library in Library::ALL {
        peers.push(Peer::start(library, &server.url()).await);
    }
    peers.iter_mut().for_each(|peer| peer.send(&work));
    let mut reports = Vec::new();
    for peer in &mut peers {
        reports.push(peer.answer(PATIENCE).await);
    }
    for report in &reports {
        assert_eq!(report["acquired"], COUNT, "{report}");
        assert_eq!((&report["failed"], &report["lost"]), (&Value::from(0), &Value::from(0)));
        assert_eq!(report["waits_ms"].as_array().map(Vec::len), Some(COUNT as usize));
    }
    assert_eq!(server.cli(&["get", "counter"]), (COUNT * peers.len() as u64).to_string());

    // For a time instead of a number, on a key that another has.
    server.cli(&["set", "b", "another"]);
    let work = json!({ "do": "loop", "key": "b", "ttl_ms": 10_000, "for_ms": 100, "retry_ms": 20 });
    let report = peers[0].call(work, PATIENCE).await;
    assert_eq!((&report["acquired"], &report["failed"]), (&Value::from(0), &Value::from(1)));
    assert!(report["max_wait_ms"].as_f64().is_some_and(|wait| wait >= 50.0), "{report}");
}
