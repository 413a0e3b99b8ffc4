//! The session is ended, by an operator, by the server, by a line that is cut.

use std::time::Duration;

use leaseward::{ErrorKind, LostReason, Release};
use leaseward_testkit::{PATIENCE, Proxy};

use crate::help::{LONG, advisory, connect, end_sessions, is_busy, locks_in, server, take, until};

#[tokio::test(flavor = "multi_thread")]
async fn an_ended_session_is_told_at_once_to_all_its_holders() {
    let server = server();
    let (locks, other) = (connect(&server).await, connect(&server).await);
    // So long that nothing but the end of the session can tell.
    let (a, b) =
        (take(&locks.lock("a").ttl(LONG)).await, take(&locks.lock("b").shared().ttl(LONG)).await);
    assert!(end_sessions(&server) >= 2);
    assert_eq!(a.lost().await, LostReason::SessionEnded);
    assert_eq!(b.lost().await, LostReason::SessionEnded);
    assert_eq!(a.release().await.expect("answered"), Release::AlreadyExpired);
    let next = until("the other is back", PATIENCE, || async {
        match other.lock("a").ttl(LONG).try_acquire().await {
            Ok(leaseward::Attempt::Granted(guard)) => Some(guard),
            Ok(leaseward::Attempt::Busy(busy)) => panic!("the lock outlived its session: {busy}"),
            Err(_) => None,
        }
    })
    .await;
    assert!(next.is_held());
    let again = until("so is the first", PATIENCE, || async {
        locks.lock("c").ttl(LONG).try_acquire().await.ok()
    });
    assert!(matches!(again.await, leaseward::Attempt::Granted(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_outlive_their_session() {
    let server = server();
    let (locks, other) = (connect(&server).await, connect(&server).await);
    let held = take(&other.lock("a").ttl(LONG)).await;
    let waiter = tokio::spawn(async move { locks.lock("a").ttl(LONG).acquire().await });
    for _ in 0..3 {
        // Only sessions of whoever holds nothing.
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity a WHERE backend_type = 'client backend' \
                   AND pid <> pg_backend_pid() AND NOT EXISTS (SELECT FROM pg_locks l WHERE l.pid = a.pid \
                   AND l.locktype = 'advisory')";
        until("the waiter has a session", PATIENCE, || async {
            (!server.sql(sql).is_empty()).then_some(())
        })
        .await;
    }
    assert!(held.is_held() && !waiter.is_finished());
    let fence = held.fence();
    held.release().await.expect("given back");
    let next = waiter.await.expect("no panic").expect("served");
    assert!(next.fence() > fence);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_server_loses_all_and_fences_go_on() {
    let server = server();
    let locks = connect(&server).await;
    let held = take(&locks.lock("a").ttl(LONG)).await;
    let fence = held.fence();
    server.restart();
    assert_eq!(held.lost().await, LostReason::SessionEnded);
    let next = until("it is back", PATIENCE, || async {
        match locks.lock("a").ttl(LONG).try_acquire().await {
            Ok(leaseward::Attempt::Granted(guard)) => Some(guard),
            _ => None,
        }
    })
    .await;
    assert!(next.fence() > fence, "{} after {fence}", next.fence());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_falls_silent_frees_its_locks_within_the_ttl() {
    let server = server();
    let proxy = Proxy::start(&server.address());
    let ttl = Duration::from_millis(900);
    let far = advisory(&server.url()).replace(&server.address(), &proxy.address());
    let far = leaseward::connect(&far).await.expect("it can be reached");
    let near = connect(&server).await;
    let held = take(&far.lock("a").ttl(ttl)).await;
    // Nothing arrives any more, and neither side is told.
    proxy.hold_to_server();
    let next = near.lock("a").ttl(LONG).acquire().await.expect("the server noticed");
    assert!(!held.is_held(), "two hold it");
    assert!(next.fence() > held.fence());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_session_lives_as_long_as_its_longest_lease_and_longer() {
    let server = server();
    let locks = connect(&server).await;
    let timeout = || {
        server.sql("SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'leaseward%'")
    };
    // Short leases make a short leash; with nothing held the session must not hang on it.
    let ttl = Duration::from_millis(300);
    let pid =
        || server.sql("SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'leaseward%'");
    take(&locks.lock("a").ttl(ttl)).await.release().await.expect("given back");
    let before = pid();
    tokio::time::sleep(ttl * 6).await;
    assert_eq!((pid(), timeout().as_str()), (before.clone(), "1"), "an idle session was ended");
    // A long lease beside a short one outlives its renewals being far apart.
    let long = take(&locks.lock("long").ttl(LONG)).await;
    let short = take(&locks.lock("short").ttl(ttl)).await;
    tokio::time::sleep(ttl * 4).await;
    assert!(long.is_held() && short.is_held());
    short.release().await.expect("given back");
    tokio::time::sleep(ttl * 6).await;
    assert!(long.is_held());
    assert_eq!(pid(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_server_is_an_error_and_leaves_nothing_behind() {
    let server = server();
    let url = format!("{}?timeout=500ms", advisory(&server.url()));
    let locks = leaseward::connect(&url).await.expect("it can be reached");
    take(&locks.lock("warm").ttl(LONG)).await.release().await.expect("given back");
    server.pause();
    let error = locks.lock("a").ttl(LONG).try_acquire().await.expect_err("no answer");
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate), "{error:?}");
    server.resume();
    let other = connect(&server).await;
    // Whatever the server did when it woke, nobody holds it for long.
    let next = until("it is free", PATIENCE, || async {
        match other.lock("a").ttl(LONG).try_acquire().await {
            Ok(leaseward::Attempt::Granted(guard)) => Some(guard),
            _ => None,
        }
    })
    .await;
    assert!(is_busy(&connect(&server).await.lock("a").ttl(LONG)).await);
    next.release().await.expect("given back");
    until("nothing is left", PATIENCE, || async { (locks_in(&server) == 0).then_some(()) }).await;
}
