//! After some conflicts on a hot row: a lock, and a fence.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leaseward::{
    ErrorKind, Fence, blocking, fenced,
    optimistic::{
        Conflict, Failure, Retry, Version, Why, Work,
        postgres::{load, save, transact},
        sqlite,
    },
};
use rusqlite::Connection;
use tokio_postgres::Client;

use crate::help::{COUNTERS, connect, count, database};

const CHANGED: Conflict = Conflict::Changed { current: Version::new(2) };

fn hurried() -> Retry {
    Retry::new().attempts(6).backoff(Duration::ZERO, Duration::ZERO)
}

async fn seen(client: &Client, resource: &str) -> Option<i64> {
    let sql = "SELECT fence FROM leaseward_fences WHERE resource = $1";
    client.query_opt(sql, &[&resource]).await.expect("a table").map(|row| row.get(0))
}

#[tokio::test]
async fn the_lock_is_taken_after_so_many_conflicts_and_the_try_is_fenced() {
    let (_, mut client) = database("hot_after").await;
    fenced::postgres::create_table(&client).await.expect("a table");
    let locks = leaseward::connect("memory:").await.expect("a store");
    let retry = hurried().escalate(2, locks.lock("counter:1"));
    let fences = &std::sync::Mutex::new(Vec::new());
    let done = transact(&mut client, &retry, |_, this| {
        Work::new(async move {
            fences.lock().expect("no panic").push(this.fence());
            if this.number() < 4 { Err(CHANGED.into()) } else { Ok(()) }
        })
    });
    done.await.expect("the fourth");
    let fences = fences.lock().expect("no panic").clone();
    let [None, None, Some(third), Some(fourth)] = fences[..] else { panic!("{fences:?}") };
    assert_eq!(third, fourth, "one lease for all further tries");
    assert_eq!(seen(&client, "counter:1").await, Some(fourth.get() as i64));
    let free = locks.lock("counter:1").try_acquire().await.expect("a store");
    assert!(matches!(free, leaseward::Attempt::Granted(_)), "it was given back: {free:?}");
}

/// Another holder has written under a larger fence: the try is refused, and made again under a new lease, until its fence is
/// larger still. Fences are microseconds of the clock, so that takes as long as the other one is ahead.
#[tokio::test]
async fn a_lost_lock_is_noticed_by_the_fence_and_taken_again() {
    let (_, mut client) = database("hot_stale").await;
    fenced::postgres::create_table(&client).await.expect("a table");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
    let ahead = Fence::new((now + Duration::from_millis(500)).as_micros() as u64);
    let tx = client.transaction().await.expect("a transaction");
    fenced::postgres::check(&tx, "counter:1", ahead).await.expect("the first");
    tx.commit().await.expect("a commit");
    let locks = leaseward::connect("memory:").await.expect("a store");
    let retry = Retry::new().attempts(u32::MAX).budget(Duration::from_secs(60));
    let retry = retry.escalate(0, locks.lock("counter:1"));
    let done = transact(&mut client, &retry, |_, this| Work::new(async move { Ok(this.fence()) }));
    let fence = done.await.expect("in the end").expect("under the lock");
    assert!(fence >= ahead, "{fence} is below {ahead}");
    assert_eq!(seen(&client, "counter:1").await, Some(fence.get() as i64));
}

/// Those who never met a conflict do without the lock, and the version still decides.
#[tokio::test]
async fn tasks_that_count_on_a_hot_row_lose_nothing() {
    let (url, client) = database("hot_count").await;
    fenced::postgres::create_table(&client).await.expect("a table");
    let locks = leaseward::connect("memory:").await.expect("a store");
    let mut running = Vec::new();
    for _ in 0..6 {
        let mut own = connect(&url).await;
        let retry = Retry::new().attempts(1_000).budget(Duration::from_secs(60));
        let retry = retry.escalate(1, locks.lock("counter:1"));
        running.push(tokio::spawn(async move {
            for _ in 0..20 {
                let add = transact(&mut own, &retry, |tx, _| {
                    Work::new(async move {
                        let found =
                            load(tx, &COUNTERS, &1_i64, "count", |row| row.try_get::<_, i64>(0))
                                .await?;
                        let counter = found.expect("a row");
                        let new = counter.value() + 1;
                        save(tx, &COUNTERS, &1_i64, &counter, "count = $3", &[&new]).await?;
                        Ok(())
                    })
                });
                add.await.expect("in the end");
            }
        }));
    }
    for one in running {
        one.await.expect("no panic");
    }
    assert_eq!(count(&client, 1).await, 130);
}

#[tokio::test]
async fn a_lock_that_is_never_free_ends_with_the_budget() {
    let (_, mut client) = database("hot_busy").await;
    let locks = leaseward::connect("memory:").await.expect("a store");
    let _held = locks.lock("counter:1").acquire().await.expect("free");
    let retry = hurried().budget(Duration::from_millis(50)).escalate(0, locks.lock("counter:1"));
    let gave_up = transact(&mut client, &retry, |_, _| Work::new(async move { Ok(()) }))
        .await
        .expect_err("busy");
    assert_eq!((gave_up.why(), gave_up.tries()), (Why::Budget, 0));
    let Failure::Lock(error) = gave_up.last() else { panic!("{gave_up:?}") };
    assert_eq!(error.kind(), ErrorKind::Timeout);
}

#[test]
fn sqlite_takes_the_lock_of_threads() {
    let mut database = Connection::open_in_memory().expect("a database");
    fenced::sqlite::create_table(&database).expect("a table");
    let locks = blocking::connect("memory:").expect("a store");
    let retry = hurried().escalate(1, locks.lock("counter:1"));
    let mut fences = Vec::new();
    let done = sqlite::transact(&mut database, &retry, |_, this| {
        fences.push(this.fence());
        if this.number() == 1 { Err(CHANGED.into()) } else { Ok(()) }
    });
    done.expect("the second");
    let [None, Some(fence)] = fences[..] else { panic!("{fences:?}") };
    let sql = "SELECT fence FROM leaseward_fences WHERE resource = 'counter:1'";
    let seen: i64 = database.query_row(sql, [], |row| row.get(0)).expect("recorded");
    assert_eq!(seen, fence.get() as i64);
    let wrong = hurried().escalate(0, locks.as_async().lock("counter:1"));
    let gave_up = sqlite::transact(&mut database, &wrong, |_, _| Ok(())).expect_err("wrong kind");
    let Failure::Lock(error) = gave_up.last() else { panic!("{gave_up:?}") };
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}
