//! A server without memory to spare: nobody gets anything new, and whoever has something keeps it and can give it back.

use std::{sync::Arc, time::Duration};

use leaseward::{
    ErrorKind, Mode,
    store::{Ask, IfBusy, Operation, Release, Reply, Store},
};
use leaseward_testkit::RedisServer;

use crate::{
    help::{LONG, ask, granted, keys, one, open, queueing, releasing, renewing, taking},
    names::{name, token},
};

fn several(what: &str, who: u128, mode: Mode) -> Operation {
    Operation::Ask(Ask { mode, ..ask(what, who, IfBusy::Queue, LONG) })
}

fn keeping(what: &str, who: u128) -> Operation {
    let keep = Duration::from_secs(60);
    Operation::Release(Release { name: name(what), token: token(who), keep })
}

async fn renewed(store: &Arc<dyn Store>, what: &str, who: u128) {
    let renewed = one(&**store, renewing(what, who)).await;
    assert!(matches!(renewed, Ok(Reply::Renewed(_))), "holders go on: {renewed:?}");
}

async fn released(store: &Arc<dyn Store>, operation: Operation) {
    let released = one(&**store, operation.clone()).await;
    assert!(matches!(released, Ok(Reply::Released)), "{operation:?}: {released:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_server_gives_nothing_and_takes_everything_back() {
    let server = RedisServer::start();
    let (store, other) = (open(&server.url()).await, open(&server.url()).await);
    let before = granted(one(&*store, taking("a", 1)).await);
    one(&*other, queueing("a", 2)).await.expect("queued");
    server.cli(&["config", "set", "maxmemory", "1"]);
    for refused in [taking("b", 3), queueing("b", 3), queueing("a", 3)] {
        let failure = one(&*store, refused).await.expect_err("there is no memory");
        assert_eq!(failure.kind(), ErrorKind::Unavailable);
        assert!(failure.message().contains("memory"), "{failure}");
    }
    assert_eq!(server.cli(&["--raw", "keys", "*lock:b"]), "", "nothing is held in doubt");
    renewed(&store, "a", 1).await;
    released(&store, releasing("a", 1)).await;
    let next = granted(one(&*other, queueing("a", 2)).await);
    assert!(next.fence() > before.fence());
    one(&*other, releasing("a", 2)).await.expect("given back");
    server.cli(&["config", "set", "maxmemory", "0"]);
    granted(one(&*store, taking("b", 3)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_permits_and_places_are_kept_on_a_full_server() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let permit = Mode::Permit { capacity: 2 };
    for who in [1, 2] {
        granted(one(&*store, several("r", who, Mode::Shared)).await);
        granted(one(&*store, several("p", who, permit)).await);
    }
    let exclusive = granted(one(&*store, taking("x", 1)).await);
    for who in [2, 3, 4] {
        one(&*store, queueing("x", who)).await.expect("queued");
    }
    server.cli(&["config", "set", "maxmemory", "1"]);
    for refused in [several("r", 3, Mode::Shared), several("p", 3, permit), queueing("x", 5)] {
        let failure = one(&*store, refused).await.expect_err("there is no memory");
        assert_eq!(failure.kind(), ErrorKind::Unavailable, "{failure}");
    }
    for who in [1, 2] {
        server.cli(&["pexpire", "lock:r", "60000"]);
        renewed(&store, "r", who).await;
        renewed(&store, "p", who).await;
        let left: u64 = server.cli(&["pttl", "lock:r"]).parse().expect("a number");
        assert!(left > 60_000, "{left}");
    }
    // Whoever waits asks again, in any place; and leaves it, from any.
    for (who, ahead) in [(2, 0), (3, 1), (4, 2)] {
        let again = one(&*store, queueing("x", who)).await.expect("it keeps its place");
        let Reply::Queued(place) = again else { panic!("{again:?}") };
        assert_eq!(place.standing.ahead, ahead);
    }
    released(&store, releasing("x", 3)).await;
    released(&store, releasing("x", 4)).await;
    released(&store, keeping("r", 1)).await;
    released(&store, keeping("p", 1)).await;
    for (what, who) in [("r", 2), ("p", 2), ("x", 1)] {
        released(&store, releasing(what, who)).await;
    }
    let next = granted(one(&*store, queueing("x", 2)).await);
    assert!(next.fence() > exclusive.fence());
    released(&store, keeping("x", 2)).await;
    let left = keys(&server);
    assert!(!left.iter().any(|key| key.starts_with("leaseward:q:")), "{left:?}");
}
