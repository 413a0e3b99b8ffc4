//! Locks in the caller's own transaction.

use std::time::Duration;

use leaseward::{
    ErrorKind,
    postgres::{AdvisoryKey, lock_in, lock_shared_in, try_lock_in, try_lock_shared_in},
};
use leaseward_testkit::{PATIENCE, Postgres};

use crate::help::{LONG, connect, is_busy, locks_in, name, server, session, take, until};

/// Waits until somebody waits for an advisory lock in the server.
async fn somebody_waits(server: &Postgres) {
    let sql = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
    until("somebody waits", PATIENCE, || async { (server.sql(sql) == "1").then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_or_rollback_frees_it() {
    let server = server();
    let locks = connect(&server).await;
    let mut client = session(&server.url()).await;
    for commits in [true, false] {
        let tx = client.transaction().await.expect("begun");
        lock_in(&tx, "orders").await.expect("free");
        assert!(is_busy(&locks.lock("orders").ttl(LONG)).await, "it is the same lock");
        if commits {
            tx.commit().await.expect("committed");
        } else {
            tx.rollback().await.expect("rolled back");
        }
        take(&locks.lock("orders").ttl(LONG)).await.release().await.expect("given back");
    }
    let tx = client.transaction().await.expect("begun");
    let held = take(&locks.lock("orders").ttl(LONG)).await;
    assert!(!try_lock_in(&tx, "orders").await.expect("answered"));
    assert!(!try_lock_shared_in(&tx, &name("orders")).await.expect("answered"));
    held.release().await.expect("given back");
    assert!(try_lock_in(&tx, "orders").await.expect("answered"));
    drop(tx);
    until("a dropped one too", PATIENCE, || async { (locks_in(&server) == 0).then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_share_and_writers_wait() {
    let server = server();
    let (mut one, mut two, mut three) =
        (session(&server.url()).await, session(&server.url()).await, session(&server.url()).await);
    let (first, second) =
        (one.transaction().await.expect("begun"), two.transaction().await.expect("begun"));
    lock_shared_in(&first, 42).await.expect("free");
    lock_shared_in(&second, 42).await.expect("shared");
    assert!(try_lock_in(&second, (0, 42)).await.expect("answered"), "two numbers are another lock");
    let writing = tokio::spawn(async move {
        let tx = three.transaction().await.expect("begun");
        lock_in(&tx, AdvisoryKey::I64(42)).await.expect("in the end");
        tx.commit().await.expect("committed");
    });
    somebody_waits(&server).await;
    first.commit().await.expect("committed");
    somebody_waits(&server).await;
    assert!(!writing.is_finished());
    second.rollback().await.expect("rolled back");
    writing.await.expect("it had its turn");
}

#[tokio::test(flavor = "multi_thread")]
async fn deadlocks_and_time_limits_are_named() {
    let server = server();
    let (mut one, mut two) = (session(&server.url()).await, session(&server.url()).await);
    let first = one.transaction().await.expect("begun");
    lock_in(&first, "a").await.expect("free");
    let mut second = two.transaction().await.expect("begun");
    second.batch_execute("SET LOCAL lock_timeout = '50ms'").await.expect("set");
    let nested = second.transaction().await.expect("a savepoint");
    let error = lock_in(&nested, "a").await.expect_err("it is held");
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error:?}");
    nested.rollback().await.expect("back to the savepoint");
    second.batch_execute("SET LOCAL lock_timeout = 0").await.expect("set");
    lock_in(&second, "b").await.expect("free");
    let (first, second) = tokio::join!(
        async {
            let outcome = lock_in(&first, "b").await;
            // Whoever was not chosen goes on once the other one is gone.
            drop(first);
            outcome
        },
        async {
            let outcome = lock_in(&second, "a").await;
            drop(second);
            outcome
        }
    );
    let errors: Vec<_> = [first, second].into_iter().filter_map(Result::err).collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0].kind(), ErrorKind::Deadlock, "{:?}", errors[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_names_are_refused_before_the_server_is_asked() {
    let server = server();
    let mut client = session(&server.url()).await;
    let tx = client.transaction().await.expect("begun");
    let error = lock_in(&tx, "a\nb").await.expect_err("no name");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:?}");
    lock_in(&tx, "a").await.expect("the transaction goes on");
    let _ = tokio::time::timeout(Duration::from_secs(10), tx.commit()).await.expect("in time");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_sqlx_it_is_the_same_lock() {
    use leaseward::postgres::sqlx as ours;
    use sqlx::Connection as _;

    let server = server();
    let locks = connect(&server).await;
    let mut one = sqlx::PgConnection::connect(&server.url()).await.expect("connected");
    let mut two = sqlx::PgConnection::connect(&server.url()).await.expect("connected");
    let error = ours::lock_in(&mut one, "orders").await.expect_err("no transaction");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    let mut tx = one.begin().await.expect("begun");
    ours::lock_in(&mut tx, "orders").await.expect("free");
    ours::lock_shared_in(&mut tx, (1, 2)).await.expect("free");
    assert!(is_busy(&locks.lock("orders").ttl(LONG)).await);
    let mut other = two.begin().await.expect("begun");
    assert!(!ours::try_lock_in(&mut other, "orders").await.expect("answered"));
    assert!(ours::try_lock_shared_in(&mut other, (1, 2)).await.expect("answered"), "shared");
    sqlx::query("SET LOCAL lock_timeout = '10ms'").execute(&mut *other).await.expect("set");
    let error = ours::lock_in(&mut other, "orders").await.expect_err("it is held");
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    other.rollback().await.expect("rolled back");
    tx.commit().await.expect("committed");
    take(&locks.lock("orders").ttl(LONG)).await.release().await.expect("given back");
}
