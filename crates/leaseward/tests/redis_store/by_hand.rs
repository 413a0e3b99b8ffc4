//! Keys that somebody deleted, changed or wrote by hand, and rights that somebody took away.

use std::time::Duration;

use leaseward::{
    Mode,
    store::{Ask, HeldView, IfBusy, Operation, Query, Release, Reply, Store},
};
use leaseward_testkit::{RedisServer, Skew};

use crate::{
    help::{LONG, ask, granted, keys, one, open, queueing, releasing, taking},
    names::{name, token},
};

fn reading(what: &str, who: u128) -> Operation {
    Operation::Ask(Ask { mode: Mode::Shared, ..ask(what, who, IfBusy::Queue, LONG) })
}

/// Nobody has it: beside it a batch goes to the script that does everything.
fn something_unusual() -> Operation {
    let keep = Duration::from_secs(1);
    Operation::Release(Release { name: name("z"), token: token(99), keep })
}

async fn holders(store: &dyn Store, what: &str) -> Vec<HeldView> {
    let views = store.inspect(Query::Name(name(what))).await.expect("it answers");
    views.into_iter().flat_map(|view| view.holders).collect()
}

async fn whose(store: &dyn Store, what: &str) -> Vec<String> {
    holders(store, what).await.into_iter().map(|held| held.token_prefix).collect()
}

async fn queued(store: &dyn Store, operation: Operation) {
    let answer = one(store, operation).await;
    assert!(matches!(answer, Ok(Reply::Queued(_))), "{answer:?}");
}

/// A release on its own, and one that is not for the small script.
async fn released(store: &dyn Store, what: &str, who: u128, is_usual: bool) {
    let rest = (!is_usual).then(something_unusual);
    let answers = store.submit([releasing(what, who)].into_iter().chain(rest).collect()).await;
    assert!(matches!(answers[0], Ok(Reply::Released)), "{answers:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hand_over_stands_if_its_message_is_refused() {
    // It may do everything, except publish to any channel.
    let server = RedisServer::builder().acl("mute on >x resetchannels ~* +@all").start();
    let store = open(&format!("redis://mute:x@{}", server.address())).await;
    for is_usual in [true, false] {
        for first in [reading("a", 1), taking("a", 1)] {
            granted(one(&*store, first).await);
            queued(&*store, queueing("a", 2)).await;
            released(&*store, "a", 1, is_usual).await;
            assert_eq!(whose(&*store, "a").await, [token(2).prefix()]);
            granted(one(&*store, queueing("a", 2)).await);
            released(&*store, "a", 2, is_usual).await;
            assert_eq!(keys(&server), ["leaseward:fence"]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_cannot_be_read_is_nobodys() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    for is_usual in [true, false] {
        for unreadable in ["1", "3"] {
            for mode in [queueing, reading] {
                granted(one(&*store, taking("a", 1)).await);
                queued(&*store, mode("a", 2)).await;
                queued(&*store, mode("a", 3)).await;
                server.cli(&["lset", "leaseward:q:lock:a", unreadable, "v2 x 0 5000"]);
                released(&*store, "a", 1, is_usual).await;
                let next = if unreadable == "1" { 3 } else { 2 };
                assert_eq!(whose(&*store, "a").await, [token(next).prefix()], "{unreadable}");
                granted(one(&*store, mode("a", next)).await);
                released(&*store, "a", next, is_usual).await;
                assert_eq!(keys(&server), ["leaseward:fence"], "{unreadable}");
            }
        }
        // Whose it was asks again, and somebody comes behind it.
        granted(one(&*store, taking("a", 1)).await);
        queued(&*store, queueing("a", 2)).await;
        server.cli(&["lset", "leaseward:q:lock:a", "1", "v2 x 0 5000"]);
        queued(&*store, queueing("a", 3)).await;
        queued(&*store, queueing("a", 2)).await;
        for who in 1..=3 {
            released(&*store, "a", who, is_usual).await;
        }
        assert_eq!(keys(&server), ["leaseward:fence"]);
        // Half a place.
        granted(one(&*store, taking("a", 1)).await);
        queued(&*store, queueing("a", 2)).await;
        server.cli(&["rpop", "leaseward:q:lock:a"]);
        released(&*store, "a", 1, is_usual).await;
        assert_eq!(keys(&server), ["leaseward:fence"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_known_of_strangers_ends_by_itself() {
    let skew = Skew::new();
    let server = RedisServer::builder().skew(&skew).start();
    let store = open(&server.url()).await;
    server.cli(&["set", "lock:a", "stranger", "px", "3600000"]);
    queued(&*store, queueing("a", 1)).await;
    server.cli(&["del", "lock:a"]);
    granted(one(&*store, queueing("a", 1)).await);
    queued(&*store, queueing("a", 2)).await;
    // Long enough that the key is left free for a moment.
    skew.set_ms(1_000);
    released(&*store, "a", 1, true).await;
    assert_eq!(keys(&server), ["leaseward:fence", "leaseward:p:lock:a", "leaseward:q:lock:a"]);
    skew.set_ms(3_600_000);
    assert_eq!(keys(&server), ["leaseward:fence"], "nobody looked");
}
