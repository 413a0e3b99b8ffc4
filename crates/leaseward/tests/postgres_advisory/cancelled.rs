//! Whoever goes leaves nothing behind.

use std::time::Duration;

use leaseward_testkit::{PATIENCE, Proxy};

use crate::help::{LONG, advisory, connect, locks_in, server, take, until};

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_acquires_leave_no_lock() {
    let server = server();
    let proxy = Proxy::start(&server.address());
    let url = advisory(&server.url()).replace(&server.address(), &proxy.address());
    let locks = leaseward::connect(&url).await.expect("it can be reached");
    // So that some are cancelled before the request, some before the answer, some after it.
    proxy.delay(Duration::from_millis(3));
    let mut taken = 0;
    for round in 0..60_u64 {
        let lock = locks.lock(format!("name-{}", round % 7)).ttl(LONG);
        let acquiring = tokio::spawn(async move { lock.acquire().await.map(drop) });
        tokio::time::sleep(Duration::from_micros(round * 300)).await;
        acquiring.abort();
        taken += u32::from(acquiring.await.is_ok());
    }
    assert!(taken < 60, "none was cancelled in time");
    until("all are given back", PATIENCE, || async { (locks_in(&server) == 0).then_some(()) })
        .await;
    for name in 0..7 {
        drop(take(&connect(&server).await.lock(format!("name-{name}")).ttl(LONG)).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_waiters_leave_no_lock() {
    let server = server();
    let (locks, other) = (connect(&server).await, connect(&server).await);
    let held = take(&other.lock("a").ttl(LONG)).await;
    for _ in 0..10 {
        let lock = locks.lock("a").ttl(LONG).wait(Duration::from_millis(30));
        lock.acquire().await.expect_err("it is held");
    }
    held.release().await.expect("given back");
    until("nothing is left", PATIENCE, || async { (locks_in(&server) == 0).then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_shut_down_leaves_no_lock_and_no_session() {
    let server = server();
    let locks = connect(&server).await;
    let _held =
        [take(&locks.lock("a").ttl(LONG)).await, take(&locks.lock("b").shared().ttl(LONG)).await];
    locks.shutdown().await;
    until("nothing is left", PATIENCE, || async {
        let sessions = server
            .sql("SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'leaseward%'");
        (locks_in(&server) == 0 && sessions == "0").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_fails_half_way_leaves_no_lock() {
    let server = server();
    let locks = connect(&server).await;
    let held = take(&locks.lock("kept").ttl(LONG)).await;
    // The lock is taken, and then there is no number for it.
    server.sql(
        "DO $$ BEGIN EXECUTE format('ALTER SEQUENCE leaseward.advisory_fences MAXVALUE %s', \
         (SELECT last_value FROM leaseward.advisory_fences)); END $$",
    );
    locks.lock("a").ttl(LONG).try_acquire().await.expect_err("no fence");
    assert_eq!(locks_in(&server), 1, "what has no fence is not held");
    assert!(held.is_held(), "a failed statement is no reason to lose what is held");
    server.sql("ALTER SEQUENCE leaseward.advisory_fences NO MAXVALUE");
    assert!(take(&locks.lock("a").ttl(LONG)).await.is_held());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sequence_that_was_dropped_is_made_again() {
    let server = server();
    let locks = connect(&server).await;
    let held = take(&locks.lock("a").ttl(LONG)).await;
    let fence = held.fence();
    server.sql("SET client_min_messages = error; DROP SCHEMA leaseward CASCADE");
    locks.lock("b").ttl(LONG).try_acquire().await.expect_err("no fence");
    assert!(held.is_held(), "what is held stays held");
    held.release().await.expect("given back");
    let next = until("a new session makes it", PATIENCE, || async {
        match locks.lock("a").ttl(LONG).try_acquire().await {
            Ok(leaseward::Attempt::Granted(guard)) => Some(guard),
            _ => None,
        }
    })
    .await;
    assert!(next.fence() > fence);
}
