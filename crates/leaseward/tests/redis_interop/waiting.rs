//! Waiting for holders of other libraries: their doings are pushed to us.
//!
//! Where a client's time stands still, nothing but a push can wake its waiters.

use std::time::Duration;

use leaseward::store::{Reply, Standing};
use leaseward_testkit::RedisServer;

use super::{
    help::{LONG, Server, busy, queue, release, renew, served, take, wait_for},
    theirs::{Other, with_every_library},
};

with_every_library! {
    their_release_wakes_ours
    the_end_of_their_time_wakes_ours
}

async fn their_release_wakes_ours(other: Other) {
    let server = Server::start().await;
    let mut theirs = other.on(&server, "a").await;
    assert!(theirs.acquire(LONG).await);
    let locks = server.timeless_locks().await;
    let waiting = wait_for(&locks, theirs.key());
    server.until_watched().await;
    theirs.release().await;
    drop(served(waiting).await);
}

async fn the_end_of_their_time_wakes_ours(other: Other) {
    let server = Server::start().await;
    let mut theirs = other.on(&server, "a").await;
    assert!(theirs.acquire(Duration::from_secs(1)).await);
    let locks = server.timeless_locks().await;
    let waiting = wait_for(&locks, theirs.key());
    server.until_watched().await;
    theirs.crash();
    drop(served(waiting).await);
}

#[tokio::test]
async fn a_renewal_of_theirs_costs_one_ask() {
    const RENEWALS: u64 = 20;
    let server = Server::start().await;
    server.do_it(&["SET", "a", "theirs", "PX", "600000"]).await;
    let locks = server.timeless_locks().await;
    let waiting = wait_for(&locks, "a");
    server.until_watched().await;
    let begin = server.calls().await;
    for renewal in 1..=RENEWALS {
        server.do_it(&["PEXPIRE", "a", "600000"]).await;
        server.until("an ask", async |server| server.calls().await >= begin + renewal).await;
        server.until_watched().await;
    }
    assert_eq!(server.calls().await, begin + RENEWALS);

    // Renewals in quick succession are noticed together, and the last one is not missed.
    for _ in 0..RENEWALS {
        server.do_it(&["PEXPIRE", "a", "600000"]).await;
    }
    server.until_watched().await;
    let calls = server.calls().await;
    assert!(calls <= begin + 2 * RENEWALS, "{} calls", calls - begin);
    server.do_it(&["DEL", "a"]).await;
    drop(served(waiting).await);
}

#[tokio::test]
async fn whatever_ends_it_wakes_ours() {
    for end in [&["DEL", "a"][..], &["UNLINK", "a"], &["RENAME", "a", "b"], &["FLUSHALL"]] {
        let server = Server::start().await;
        server.do_it(&["SET", "a", "theirs"]).await;
        let locks = server.timeless_locks().await;
        let waiting = wait_for(&locks, "a");
        server.until_watched().await;
        let before = server.calls().await;
        server.do_it(end).await;
        let _guard = served(waiting).await;
        assert_eq!(server.calls().await - before, 1, "one ask");
    }
}

#[tokio::test]
async fn a_lock_retaken_by_another_is_waited_for_again() {
    let server = Server::start().await;
    server.do_it(&["SET", "a", "theirs"]).await;
    let locks = server.timeless_locks().await;
    let waiting = wait_for(&locks, "a");
    for _ in 0..5 {
        server.until_watched().await;
        let before = server.calls().await;
        let mut swap = redis::pipe();
        swap.atomic().cmd("DEL").arg("a").cmd("SET").arg("a").arg("another");
        server.pipeline(&swap).await;
        server.until("an ask", async |server| server.calls().await > before).await;
        assert!(!waiting.is_finished());
    }
    server.until_watched().await;
    server.do_it(&["DEL", "a"]).await;
    drop(served(waiting).await);
}

#[tokio::test]
async fn ours_are_served_in_their_order() {
    let server = Server::start().await;
    server.do_it(&["SET", "a", "theirs"]).await;
    let mut waiting = Vec::new();
    for place in 1..=3 {
        let locks = server.timeless_locks().await;
        waiting.push((wait_for(&locks, "a"), locks));
        server.until_waiting("a", place).await;
    }
    server
        .until("all watch", async |server| server.figure("clients", "tracking_clients").await == 3)
        .await;
    server.until_watched().await;
    server.do_it(&["DEL", "a"]).await;
    for (place, (one, _locks)) in waiting.into_iter().enumerate() {
        let guard = served(one).await;
        server.until_waiting("a", 2 - u64::try_from(place).expect("few")).await;
        guard.release().await.expect("the server is there");
    }
}

#[tokio::test]
async fn where_watching_is_forbidden_it_is_polled() {
    let options = RedisServer::builder().acl("locker on >secret ~* &* +@all -client|tracking");
    let server = Server::with(options).await;
    server.do_it(&["SET", "a", "theirs"]).await;
    let url = format!("redis://locker:secret@{}?prefix=", server.server.address());
    let locks = Server::timeless(&url).await;
    let waiting = wait_for(&locks, "a");
    let before = server.calls().await;
    server.until("it asks again", async |server| server.calls().await > before + 2).await;
    assert_eq!(server.figure("clients", "tracking_clients").await, 0);
    server.do_it(&["DEL", "a"]).await;
    drop(served(waiting).await);
}

/// What stands on a key that is no string, and how it is called.
const KINDS: [(&[&str], &str); 5] = [
    (&["HSET", "a", "6f9-uuid:1", "1"], "a Redisson-style lock"),
    (&["LPUSH", "a", "x"], "a key of the kind `list`, which is no lock"),
    (&["ZADD", "a", "1", "x"], "a key of the kind `zset`, which is no lock"),
    (&["SADD", "a", "x"], "a key of the kind `set`, which is no lock"),
    (&["XADD", "a", "*", "x", "1"], "a key of the kind `stream`, which is no lock"),
];

#[tokio::test]
async fn a_key_of_another_kind_is_waited_for() {
    for (make, called) in KINDS {
        let server = Server::start().await;
        server.do_it(make).await;
        let locks = server.timeless_locks().await;
        for lock in [locks.lock("a"), locks.lock("a").shared(), locks.semaphore("a", 2)] {
            let holder = busy(lock.try_acquire().await).holder.expect("something is there");
            assert_eq!((&*holder.who, holder.remaining), (called, None));
        }
        let waiting = wait_for(&locks, "a");
        server.until_watched().await;
        server.do_it(&["DEL", "a"]).await;
        let guard = served(waiting).await;
        guard.renew().await.expect("it is ours");
    }
}

#[tokio::test]
async fn a_key_of_another_kind_spoils_nobody_elses_answer() {
    for (make, called) in KINDS {
        let server = Server::start().await;
        server.do_it(make).await;
        let store = server.store("").await;
        let held = store.carry_out(vec![take("held", 1), take("given", 2)]).await;
        assert!(held.iter().all(|answer| matches!(answer, Ok(Reply::Granted(_)))), "{held:?}");
        let answers = store
            .carry_out(vec![
                take("free", 3),
                take("a", 4),
                queue("a", 5),
                renew("a", 6),
                release("a", 7),
                renew("held", 1),
                release("given", 2),
                release("a", 5),
                queue("held", 8),
            ])
            .await;
        let is_theirs = |standing: &Standing| {
            standing.holder.as_ref().is_some_and(|holder| &*holder.who == called)
        };
        let [free, tried, queued, renewed, released, held, given, left, waits] = &answers[..]
        else {
            panic!("an answer each: {answers:?}")
        };
        assert!(matches!(free, Ok(Reply::Granted(_))), "{free:?}");
        assert!(matches!(tried, Ok(Reply::Busy(standing)) if is_theirs(standing)), "{tried:?}");
        assert!(matches!(queued, Ok(Reply::Queued(place)) if is_theirs(&place.standing)));
        assert!(matches!(renewed, Ok(Reply::NotYours(_))), "{renewed:?}");
        assert!(matches!(released, Ok(Reply::NotYours(_))), "{released:?}");
        assert!(matches!(held, Ok(Reply::Renewed(_))), "{held:?}");
        assert!(matches!(given, Ok(Reply::Released)), "{given:?}");
        assert!(matches!(left, Ok(Reply::Released)), "{left:?}");
        assert!(matches!(waits, Ok(Reply::Queued(_))), "{waits:?}");
        assert_eq!(server.ask::<u64>(&["EXISTS", "a", "given"]).await, 1, "only theirs is left");
    }
}
