//! Every library that locks by a string key excludes ours and is excluded by it.

use std::time::Duration;

use leaseward::{ErrorKind, LostReason, Release, store::Reply};
use leaseward_testkit::peers::{Library, Peer};
use serde_json::json;

use super::{
    help::{LONG, PATIENCE, Server, busy, in_time, release, renew, served, take, wait_for},
    theirs::{Other, with_every_library},
};

const STRANGER: &str = "a client of another library";

/// Long enough for a slow machine to lengthen it in time.
const SHORT: Duration = Duration::from_millis(1_500);

with_every_library! {
    theirs_keeps_ours_out
    ours_keeps_theirs_out
    nobody_touches_what_another_took_meanwhile
    renewals_keep_the_other_out
    a_crash_ends_with_its_ttl
}

async fn theirs_keeps_ours_out(other: Other) {
    let server = Server::start().await;
    let mut theirs = other.on(&server, "a").await;
    let (locks, key) = (server.locks().await, theirs.key().to_owned());
    assert!(theirs.acquire(LONG).await);
    let value = server.value(&key).await;
    for lock in [locks.lock(&key), locks.lock(&key).shared(), locks.semaphore(&key, 3)] {
        let busy = busy(lock.try_acquire().await);
        let holder = busy.holder.expect("somebody has it");
        assert_eq!(&*holder.who, STRANGER);
        let left = holder.remaining.expect("it has an expiry");
        assert!(left <= LONG && left > LONG - PATIENCE, "{left:?}");
    }
    let several = locks.all(["b", &key]).try_acquire().await.expect("the server is there");
    assert!(format!("{several:?}").contains(STRANGER), "{several:?}");
    in_time(async { while server.pttl("b").await != -2 {} }).await;
    assert_eq!(server.value(&key).await, value);
    theirs.release().await;
    let guard = in_time(locks.lock(&key).acquire()).await.expect("it is free");
    assert_eq!(guard.release().await.expect("the server is there"), Release::Released);
    assert_eq!(server.ask::<Vec<String>>(&["KEYS", "*"]).await, ["leaseward:fence"]);
}

async fn ours_keeps_theirs_out(other: Other) {
    let server = Server::start().await;
    let mut theirs = other.on(&server, "a").await;
    let (locks, key) = (server.locks().await, theirs.key().to_owned());
    let guard = locks.lock(&key).ttl(LONG).acquire().await.expect("it is free");
    assert!(!theirs.acquire(LONG).await);
    guard.release().await.expect("the server is there");

    // Of several the longest keeps them out, whichever goes first.
    let shared = locks.lock(&key).shared();
    let permits = locks.semaphore(&key, 2);
    for lock in [shared, permits] {
        let short = lock.clone().ttl(PATIENCE).acquire().await.expect("it is free");
        let long = lock.ttl(LONG).acquire().await.expect("there is room");
        assert!(!theirs.acquire(LONG).await);
        let left = server.pttl(&key).await;
        assert!(u128::try_from(left).is_ok_and(|left| left > PATIENCE.as_millis()), "{left}");
        long.release().await.expect("the server is there");
        assert!(!theirs.acquire(LONG).await);
        let left = server.pttl(&key).await;
        assert!(u128::try_from(left).is_ok_and(|left| left <= PATIENCE.as_millis()), "{left}");
        short.release().await.expect("the server is there");
        assert_eq!(server.pttl(&key).await, -2);
    }
    assert!(theirs.acquire(LONG).await);
}

async fn nobody_touches_what_another_took_meanwhile(other: Other) {
    let server = Server::start().await;
    let mut theirs = other.on(&server, "a").await;
    let (locks, key) = (server.locks().await, theirs.key().to_owned());

    // Somebody deletes our key, as libraries without a comparison do, and they take it.
    let store = server.store("").await;
    for lock in [locks.lock(&key), locks.lock(&key).shared(), locks.semaphore(&key, 2)] {
        let guard = lock.ttl(LONG).no_renewal().acquire().await.expect("it is free");
        server.do_it(&["DEL", &key]).await;
        assert!(theirs.acquire(LONG).await);
        let (value, left) = (server.value(&key).await, server.pttl(&key).await);
        assert_eq!(guard.renew().await.expect_err("it is theirs").kind(), ErrorKind::Lost);
        assert_eq!(guard.lost().await, LostReason::NotOurs);
        assert_eq!(guard.release().await.expect("an answer"), Release::AlreadyExpired);
        let answers = store.carry_out(vec![renew(&key, 7), release(&key, 7)]).await;
        let are_refused = answers.iter().all(|answer| matches!(answer, Ok(Reply::NotYours(_))));
        assert!(are_refused, "{answers:?}");
        assert_eq!(server.value(&key).await, value);
        assert!((left - 60_000..=left).contains(&server.pttl(&key).await));
        theirs.release().await;
    }
    assert!(theirs.acquire(LONG).await);

    // And the other way round.
    server.do_it(&["DEL", &key]).await;
    let guard = locks.lock(&key).ttl(PATIENCE).acquire().await.expect("it is free");
    let value = server.value(&key).await;
    assert!(!theirs.extend(LONG).await);
    theirs.release().await;
    assert_eq!(server.value(&key).await, value);
    let left = server.pttl(&key).await;
    assert!(u128::try_from(left).is_ok_and(|left| left <= PATIENCE.as_millis()), "{left}");
    guard.renew().await.expect("it is ours");
    assert_eq!(guard.release().await.expect("an answer"), Release::Released);
}

async fn renewals_keep_the_other_out(other: Other) {
    let server = Server::start().await;
    let mut theirs = other.on(&server, "a").await;
    let (locks, key) = (server.locks().await, theirs.key().to_owned());

    // One renewal comes each third of the TTL: after four it would have ended without.
    let guard = locks.lock(&key).ttl(SHORT / 2).acquire().await.expect("it is free");
    for _ in 0..4 {
        let calls = server.calls().await;
        server.until("a renewal", async |server| server.calls().await > calls).await;
        assert!(!theirs.acquire(LONG).await);
    }
    guard.release().await.expect("the server is there");

    // Theirs is lengthened by hand, but by the one that does it by itself, too.
    assert!(theirs.acquire(SHORT).await);
    let mut elapsed = Duration::ZERO;
    while elapsed <= SHORT {
        let begin = server.pttl(&key).await;
        let step = Duration::from_millis(300);
        let end = begin - i64::try_from(step.as_millis()).expect("short");
        server.until("time passes", async |server| server.pttl(&key).await < end).await;
        elapsed += step;
        assert!(theirs.extend(SHORT).await);
        let busy = busy(locks.lock(&key).try_acquire().await);
        assert_eq!(busy.holder.as_ref().map(|holder| &*holder.who), Some(STRANGER));
    }
    theirs.release().await;
    assert_eq!(server.pttl(&key).await, -2);
}

async fn a_crash_ends_with_its_ttl(other: Other) {
    let server = Server::start().await;
    let mut theirs = other.on(&server, "a").await;
    let (locks, key) = (server.locks().await, theirs.key().to_owned());
    assert!(theirs.acquire(SHORT).await);
    theirs.crash();
    assert!(server.pttl(&key).await > 0, "a crash releases nothing");
    let guard = in_time(locks.lock(&key).acquire()).await.expect("its time ends");
    guard.release().await.expect("the server is there");

    // Ours, asked for by hand, is renewed by nobody.
    let mut theirs = other.on(&server, "a").await;
    let guard = locks.lock(&key).ttl(SHORT / 2).no_renewal().acquire().await.expect("it is free");
    let _handle = guard.detach();
    assert!(!theirs.acquire(LONG).await);
    in_time(async { while !theirs.acquire(LONG).await {} }).await;
    let store = server.store("").await;
    let answers = store.carry_out(vec![take(&key, 7)]).await;
    assert!(matches!(answers[..], [Ok(Reply::Busy(_))]), "{answers:?}");
}

#[tokio::test]
async fn a_lock_of_redis_py_without_expiry() {
    let server = Server::start().await;
    let mut peer = Peer::start(Library::RedisPy, &server.url()).await;
    let order = json!({ "do": "acquire", "key": "a", "ttl_ms": null });
    assert_eq!(peer.call(order, PATIENCE).await["ok"], true);
    let locks = server.timeless_locks().await;
    let holder = busy(locks.lock("a").try_acquire().await).holder.expect("somebody has it");
    assert_eq!(holder.remaining, None);
    assert_eq!(holder.to_string(), format!("{STRANGER}, no known expiry"));
    let waiting = wait_for(&locks, "a");
    server.until_watched().await;
    peer.call(json!({ "do": "release" }), PATIENCE).await;
    drop(served(waiting).await);
}
