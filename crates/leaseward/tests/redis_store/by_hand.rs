//! Keys that somebody deleted, changed or wrote by hand, and rights that somebody took away.

use std::time::Duration;

use leaseward::{
    ErrorKind,
    store::{Break, HeldView, Operation, Query, Reply, Store},
};
use leaseward_testkit::{RedisServer, Skew};

use crate::{
    help::{
        LONG, granted, keys, one, open, queueing, reading, releasing, renewing, something_unusual,
        taking,
    },
    names::{name, token},
};

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
    let answers = store.carry_out([releasing(what, who)].into_iter().chain(rest).collect()).await;
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

/// A moment in which the name is left free for them ends, wherever the clock has gone since.
#[tokio::test(flavor = "multi_thread")]
async fn a_moment_left_free_does_not_last_as_long_as_a_clock_was_set_back() {
    let skew = Skew::new();
    let server = RedisServer::builder().skew(&skew).start();
    let store = open(&server.url()).await;
    server.cli(&["set", "lock:a", "stranger", "px", "3600000"]);
    queued(&*store, queueing("a", 1)).await;
    server.cli(&["del", "lock:a"]);
    granted(one(&*store, queueing("a", 1)).await);
    queued(&*store, queueing("a", 2)).await;
    skew.set_ms(1_000);
    released(&*store, "a", 1, true).await;
    assert_eq!(server.cli(&["exists", "lock:a"]), "0", "it is left free");
    skew.set_ms(-3_600_000);
    granted(one(&*store, queueing("a", 2)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_is_not_kept_for_ever_where_notes_cannot_be() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    server.cli(&["set", "lock:a", "stranger", "px", "3600000"]);
    server.cli(&["sadd", "leaseward:p:lock:a", "x"]);
    let error = one(&*store, queueing("a", 1)).await.expect_err("it cannot be noted");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert_eq!(keys(&server), ["leaseward:p:lock:a", "lock:a"], "refused is refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_shown_is_what_an_ask_would_find() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    // An empty value is a value; and what stands there while there are readers is not ours if there are none.
    for value in ["", "leaseward:held-by-several"] {
        server.cli(&["set", "lock:a", value]);
        let busy = one(&*store, taking("a", 1)).await;
        assert!(matches!(busy, Ok(Reply::Busy(_))), "{busy:?}");
        let shown = holders(&*store, "a").await;
        assert_eq!(shown.len(), 1, "{value:?} is shown as free");
        assert_eq!(&*shown[0].who, "a client of another library");
        let all = store.inspect(Query::all()).await.expect("it answers");
        assert_eq!(all.len(), 1, "{value:?} is not listed");
        let broken = Break { name: name("a"), now: true };
        let broken = store.break_lease(broken).await.expect("it is deleted");
        assert_eq!(broken.holders.len(), 1);
    }
    // Readers whose key was deleted have ended.
    granted(one(&*store, reading("a", 1)).await);
    assert_eq!(whose(&*store, "a").await, [token(1).prefix()]);
    server.cli(&["del", "lock:a"]);
    assert_eq!(whose(&*store, "a").await, Vec::<String>::new());
    let late = one(&*store, renewing("a", 1)).await;
    assert!(matches!(late, Ok(Reply::NotYours(_))), "{late:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_was_told_of_its_end_stays_ended() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    granted(one(&*store, reading("a", 1)).await);
    server.cli(&["del", "lock:a"]);
    for after_another in [false, true] {
        if after_another {
            granted(one(&*store, reading("a", 2)).await);
        }
        let late = one(&*store, renewing("a", 1)).await;
        assert!(matches!(late, Ok(Reply::NotYours(_))), "{late:?}");
    }
    one(&*store, releasing("a", 2)).await.expect("given back");
    granted(one(&*store, taking("a", 3)).await);
}

const BESIDE: &str = "leaseward:h:lock:a";

fn renewing_for(ttl: Duration) -> Operation {
    let Operation::Renew(renew) = renewing("a", 1) else { unreachable!() };
    Operation::Renew(leaseward::store::Renew { ttl, ..renew })
}

/// What has become of a lease is lost: it may have been broken, so its holder is told that it is not its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_whose_record_was_lost_is_not_lengthened() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    for is_broken in [false, true] {
        granted(one(&*store, taking("a", 1)).await);
        if is_broken {
            let order = Break { name: name("a"), now: false };
            store.break_lease(order).await.expect("it is broken");
        } else {
            one(&*store, renewing_for(2 * LONG)).await.expect("it is renewed");
        }
        assert_eq!(server.cli(&["del", BESIDE]), "1");
        for is_usual in [true, false] {
            let rest = (!is_usual).then(something_unusual);
            let batch = [renewing("a", 1)].into_iter().chain(rest).collect();
            let late = store.carry_out(batch).await;
            assert!(matches!(late[0], Ok(Reply::NotYours(_))), "{is_broken} {is_usual} {late:?}");
        }
        let left: u128 = server.cli(&["pttl", "lock:a"]).parse().expect("it has an end");
        assert_eq!(left > LONG.as_millis(), !is_broken, "nothing was made shorter");
        let busy = one(&*store, taking("a", 2)).await;
        assert!(matches!(busy, Ok(Reply::Busy(_))), "it is not free before its end: {busy:?}");
        released(&*store, "a", 1, true).await;
        assert_eq!(keys(&server), ["leaseward:fence"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stands_where_a_record_should_be_is_left_alone() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    granted(one(&*store, taking("a", 1)).await);
    let strange: [(&[&str], &str); 2] =
        [(&["sadd", BESIDE, "x"], "set"), (&["set", BESIDE, "some data"], "string")];
    for (put, kind) in strange {
        server.cli(put);
        queued(&*store, queueing("a", 2)).await;
        let error = one(&*store, renewing_for(2 * LONG)).await.expect_err("it cannot be noted");
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        let order = Break { name: name("a"), now: false };
        store.break_lease(order).await.expect_err("it cannot be noted");
        released(&*store, "a", 2, false).await;
        assert_eq!(server.cli(&["type", BESIDE]), kind);
        // Without the lock nobody can know whether the name is free.
        released(&*store, "a", 1, true).await;
        one(&*store, taking("a", 1)).await.expect_err("nobody can know");
        assert_eq!(server.cli(&["type", BESIDE]), kind);
        server.cli(&["del", BESIDE]);
        granted(one(&*store, taking("a", 1)).await);
    }
}

/// Data that begins a little like a lease of ours: it is held by somebody else, and keeps what it is.
#[tokio::test(flavor = "multi_thread")]
async fn what_only_resembles_a_lease_is_not_touched() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let token = token(1).reveal();
    let run = format!("{token}\ns1000 100@ 1 1\n");
    let cut = format!("{token}\ns1000 100");
    for data in ["a: 1\ns2 3 4 5\nmore", &*run, &*cut, &*token] {
        server.cli(&["set", "lock:a", data]);
        let busy = store.carry_out(vec![taking("a", 2), something_unusual()]).await;
        assert!(matches!(busy[0], Ok(Reply::Busy(_))), "{data:?}: {busy:?}");
        queued(&*store, queueing("a", 3)).await;
        let late = store.carry_out(vec![renewing("a", 1), something_unusual()]).await;
        assert!(matches!(late[0], Ok(Reply::NotYours(_))), "{data:?}: {late:?}");
        let shown = holders(&*store, "a").await;
        assert_eq!(&*shown[0].who, "a client of another library", "{data:?}");
        assert_eq!(server.cli(&["pttl", "lock:a"]), "-1", "{data:?}");
        assert_eq!(server.cli(&["get", "lock:a"]).trim_end(), data.trim_end());
        released(&*store, "a", 3, true).await;
        server.cli(&["del", "lock:a"]);
    }
}
