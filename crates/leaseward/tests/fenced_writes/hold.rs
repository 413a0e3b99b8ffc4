//! Leases and data in one database: no next holder before the commit.

use std::time::Duration;

use leaseward::{
    Attempt, Guard, Locks, Name,
    fenced::{
        FencedError,
        postgres::{hold, hold_in},
        sqlx as by_sqlx,
    },
};
use leaseward_testkit::{PATIENCE, eventually};
use sqlx::Connection as _;
use tokio_postgres::Client;

use crate::help::{SERVER, connect, fence};

async fn database(name: &str) -> (String, Client, Locks) {
    let url = SERVER.database(name);
    let client = connect(&url).await;
    client.batch_execute("CREATE TABLE notes AS SELECT 'begin' AS text").await.expect("a table");
    let locks = leaseward::connect(&url).await.expect("a store");
    (url, client, locks)
}

async fn take(locks: &Locks) -> Guard {
    let lock = locks.lock("a").ttl(Duration::from_millis(200)).no_renewal();
    lock.acquire().await.expect("it comes free")
}

/// Waits until the lease has ended by the database's clock.
async fn ended(database: &'static str) {
    let over = move || {
        let sql = "SELECT token IS NULL OR leaseward.clock_us() >= expires_us
            FROM leaseward.leases WHERE name = 'a'";
        (SERVER.sql_in(database, sql) == "t").then_some(())
    };
    let wait = move || eventually("the lease has ended", PATIENCE, over);
    tokio::task::spawn_blocking(wait).await.expect("it ends");
}

#[tokio::test]
async fn a_new_grant_waits_for_the_commit_in_flight() {
    let (url, mut client, locks) = database("hold_wait").await;
    let early = take(&locks).await;
    let tx = client.transaction().await.expect("a transaction");
    hold(&tx, early.name(), early.fence()).await.expect("the newest");
    ended("hold_wait").await;
    // Its time is over, and still nobody else gets it: its transaction is under way.
    let others = leaseward::connect(&url).await.expect("a store");
    let busy = others.lock("a").try_acquire().await;
    assert!(matches!(busy, Ok(Attempt::Busy(_))), "{busy:?}");
    let late = tokio::spawn(async move { (take(&others).await, others) });
    tx.execute("UPDATE notes SET text = 'early'", &[]).await.expect("a write");
    assert!(!late.is_finished(), "there was a new holder before the commit");
    tx.commit().await.expect("a commit");
    let (late, _others) = late.await.expect("no panic");
    assert!(late.fence() > early.fence());
    // From here on the earlier one is refused, and its transaction comes to nothing.
    let tx = client.transaction().await.expect("a transaction");
    tx.execute("UPDATE notes SET text = 'late'", &[]).await.expect("a write");
    let stale = hold(&tx, early.name(), early.fence()).await.expect_err("followed by another");
    let stale = stale.stale().expect("a stale fence");
    assert_eq!((stale.given, stale.seen), (early.fence(), late.fence()));
    let _ = tx.commit().await;
    let text: String = client.query_one("SELECT text FROM notes", &[]).await.expect("it").get(0);
    assert_eq!(text, "early");
}

#[tokio::test]
async fn renewals_do_not_wait_for_it() {
    let (_, mut client, locks) = database("hold_renew").await;
    let lock = locks.lock("a").ttl(Duration::from_secs(20)).no_renewal();
    let guard = lock.acquire().await.expect("it is free");
    let tx = client.transaction().await.expect("a transaction");
    hold(&tx, guard.name(), guard.fence()).await.expect("the newest");
    guard.extend(Duration::from_secs(60)).await.expect("renewed beside the transaction");
    assert!(guard.remaining() > Duration::from_secs(30));
    tx.commit().await.expect("a commit");
}

#[tokio::test]
async fn what_was_never_given_out_is_no_lease() {
    let (_, mut client, locks) = database("hold_never").await;
    let guard = take(&locks).await;
    let other = Name::new("other").expect("a name");
    let ahead = fence(guard.fence().get() + 1_000);
    for (name, fence) in [(&other, guard.fence()), (guard.name(), ahead)] {
        let tx = client.transaction().await.expect("a transaction");
        let outcome = hold(&tx, name, fence).await;
        assert!(matches!(outcome, Err(FencedError::Missing)), "{name}: {outcome:?}");
    }
}

/// A name that nobody used for an hour is forgotten; its old holders are not let in for that.
#[tokio::test]
async fn a_forgotten_name_lets_no_old_holder_in() {
    let (_, mut client, locks) = database("hold_forgot").await;
    let guard = take(&locks).await;
    let (name, old) = (guard.name().clone(), guard.fence());
    guard.release().await.expect("released");
    let swept =
        client.query_one("SELECT forgotten FROM leaseward.sweep(100, -60000000)", &[]).await;
    assert_eq!(swept.expect("a sweep").get::<_, i32>(0), 1);
    let tx = client.transaction().await.expect("a transaction");
    let stale = hold(&tx, &name, old).await.expect_err("long gone");
    assert_eq!(stale.stale().expect("a stale fence").given, old);
}

#[tokio::test]
async fn the_same_with_sqlx() {
    let (url, _, locks) = database("hold_sqlx").await;
    let mut connection = sqlx::PgConnection::connect(&url).await.expect("a server");
    let early = take(&locks).await;
    let mut tx = connection.begin().await.expect("a transaction");
    by_sqlx::hold(&mut tx, early.name(), early.fence()).await.expect("the newest");
    tx.commit().await.expect("a commit");
    let (name, old) = (early.name().clone(), early.fence());
    early.release().await.expect("released");
    let late = take(&locks).await;
    let mut tx = connection.begin().await.expect("a transaction");
    let stale = by_sqlx::hold(&mut tx, &name, old).await.expect_err("followed by another");
    assert_eq!(stale.stale().expect("a stale fence").seen, late.fence());
    tx.rollback().await.expect("a rollback");
    let mut tx = connection.begin().await.expect("a transaction");
    let unknown = by_sqlx::hold(&mut tx, &name, fence(late.fence().get() + 1_000)).await;
    assert!(matches!(unknown, Err(FencedError::Missing)), "{unknown:?}");
}

#[tokio::test]
async fn a_store_in_another_schema_is_held_there() {
    let (url, mut client, _) = database("hold_schema").await;
    let locks = leaseward::connect(&format!("{url}?schema=elsewhere")).await.expect("a store");
    let early = take(&locks).await;
    let tx = client.transaction().await.expect("a transaction");
    hold_in(&tx, "elsewhere", early.name(), early.fence()).await.expect("the newest");
    tx.commit().await.expect("a commit");
    let tx = client.transaction().await.expect("a transaction");
    let outcome = hold(&tx, early.name(), early.fence()).await;
    assert!(matches!(outcome, Err(FencedError::Missing)), "of the other store: {outcome:?}");
    tx.rollback().await.expect("a rollback");
    let (name, old) = (early.name().clone(), early.fence());
    early.release().await.expect("released");
    let late = take(&locks).await;

    let tx = client.transaction().await.expect("a transaction");
    let stale = hold_in(&tx, "elsewhere", &name, old).await.expect_err("followed by another");
    assert_eq!(stale.stale().expect("a stale fence").seen, late.fence());
    tx.rollback().await.expect("a rollback");
    let mut connection = sqlx::PgConnection::connect(&url).await.expect("a server");
    let mut tx = connection.begin().await.expect("a transaction");
    by_sqlx::hold_in(&mut tx, "elsewhere", &name, late.fence()).await.expect("the newest");
    tx.commit().await.expect("a commit");
    let mut tx = connection.begin().await.expect("a transaction");
    let stale = by_sqlx::hold_in(&mut tx, "elsewhere", &name, old).await.expect_err("followed");
    assert_eq!(stale.stale().expect("a stale fence").seen, late.fence());
}
