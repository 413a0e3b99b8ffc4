//! Ours and theirs all at once: under the lock each reads a counter, waits, and writes it plus one. Two holders at a
//! time lose an addition.

use std::time::Duration;

use leaseward::Locks;
use leaseward_testkit::peers::{Library, Peer};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{
    help::{PATIENCE, Server},
    theirs::{Other, with_every_library},
};

/// Short, but not too short for a machine that is busy with other tests.
const TTL: Duration = Duration::from_secs(1);

/// Clients of ours, tasks of each, additions of each task.
const OURS: (u64, u64, u64) = (2, 3, 8);

/// Additions of theirs.
const THEIRS: u64 = 8;

with_every_library! { no_addition_is_lost }

async fn no_addition_is_lost(other: Other) {
    let server = Server::start().await;
    let theirs = match other {
        Other::Process(library) => {
            let mut peer = Peer::start(library, &server.url()).await;
            peer.send(&work(library, json!({ "count": THEIRS, "counter_key": "counter" })));
            let key = library.key("a");
            let ours = ours(&server, &key).await;
            let report = peer.answer(2 * PATIENCE).await;
            assert_eq!((&report["acquired"], &report["lost"]), (&json!(THEIRS), &json!(0)));
            finish(ours).await;
            THEIRS
        }
        Other::Rslock => {
            let ours = ours(&server, "a").await;
            rslock_adds(&server).await;
            finish(ours).await;
            THEIRS
        }
    };
    assert_eq!(server.ask::<u64>(&["GET", "counter"]).await, OURS.0 * OURS.1 * OURS.2 + theirs);
}

fn work(library: Library, more: Value) -> Value {
    let mut order = json!({
        "do": "loop", "key": library.key("a"), "ttl_ms": TTL.as_millis(), "hold_ms": 3, "retry_ms": 10,
    });
    let (order_fields, more) = (order.as_object_mut().expect("one"), more);
    order_fields.extend(more.as_object().expect("one").clone());
    order
}

/// Ours at work.
async fn ours(server: &Server, key: &str) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for client in 0..OURS.0 {
        let locks = server.locks().await;
        for task in 0..OURS.1 {
            tasks.spawn(add(locks.clone(), key.to_owned(), server.connection(), client + task));
        }
    }
    tasks
}

async fn finish(mut tasks: JoinSet<()>) {
    while let Some(outcome) = tasks.join_next().await {
        outcome.expect("nobody panicked");
    }
}

async fn add(
    locks: Locks,
    key: String,
    mut server: redis::aio::MultiplexedConnection,
    number: u64,
) {
    let lock = locks.lock(key).ttl(TTL);
    for turn in 0..OURS.2 {
        let guard = lock.acquire().await.expect("it comes free");
        // Now and then for so long that it must be renewed.
        let is_long = number == 0 && turn == OURS.2 / 2;
        plus_one(&mut server, if is_long { TTL * 5 / 4 } else { Duration::from_millis(1) }).await;
        guard.release().await.expect("the server is there");
    }
}

async fn plus_one(server: &mut redis::aio::MultiplexedConnection, hold: Duration) {
    let before: Option<u64> =
        redis::cmd("GET").arg("counter").query_async(server).await.expect("a number");
    tokio::time::sleep(hold).await;
    let after = before.unwrap_or(0) + 1;
    let set = redis::cmd("SET").arg("counter").arg(after).query_async::<()>(server).await;
    set.expect("the server is there");
}

async fn rslock_adds(server: &Server) {
    let mut manager = rslock::LockManager::new(vec![server.url()]);
    manager.set_retry(100_000, Duration::from_millis(10));
    for _ in 0..THEIRS {
        let lock = manager.lock("a".as_bytes(), TTL).await.expect("it comes free");
        plus_one(&mut server.connection(), Duration::from_millis(3)).await;
        manager.unlock(&lock).await;
    }
}

/// All at once, and one of theirs is killed while it holds the lock.
#[tokio::test]
async fn a_crash_amid_all_of_them_loses_nothing() {
    let server = Server::start().await;
    // The one key that all of them can lock.
    let key = Library::RedisSemaphore.key("a");
    let order = |more| {
        let mut order = work(Library::RedisSemaphore, more);
        order["ttl_ms"] = json!(1_000);
        order
    };
    let libraries = [Library::NodeRedlock, Library::RedisSemaphoreRenewing, Library::RedisPy];
    let mut peers = Vec::new();
    for library in libraries {
        peers.push(Peer::start(library, &server.url()).await);
    }
    // The victim counts nothing, so that what it did does not matter; it holds for ever.
    let mut victim = Peer::start(Library::NodeRedlock4, &server.url()).await;
    let acquire = json!({ "do": "acquire", "key": key, "ttl_ms": 1_000 });
    assert_eq!(victim.call(acquire, PATIENCE).await["ok"], true);
    let ours = ours(&server, &key).await;
    for peer in &mut peers {
        peer.send(&order(json!({ "count": THEIRS, "counter_key": "counter" })));
    }
    victim.kill();
    for peer in &mut peers {
        let report = peer.answer(2 * PATIENCE).await;
        assert_eq!((&report["acquired"], &report["lost"]), (&json!(THEIRS), &json!(0)));
    }
    finish(ours).await;
    let all = OURS.0 * OURS.1 * OURS.2 + THEIRS * libraries.len() as u64;
    assert_eq!(server.ask::<u64>(&["GET", "counter"]).await, all);
}
