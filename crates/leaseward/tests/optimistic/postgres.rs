//! PostgreSQL with `tokio-postgres`.

use std::{sync::Arc, time::Duration};

use leaseward::optimistic::{
    Conflict, Failure, Retry, SaveError, Versioned, Why, Work,
    postgres::{Change, Prepared, load, save, save_many, transact},
};
use tokio::sync::{Barrier, Mutex, Notify};
use tokio_postgres::{Client, Error, GenericClient};

use crate::help::{COUNTERS, connect, count, database, version};

async fn read(client: &impl GenericClient, id: i64) -> Result<Versioned<i64>, Error> {
    let found = load(client, &COUNTERS, &id, "count", |row| row.try_get(0)).await?;
    Ok(found.expect("a row"))
}

fn conflict(outcome: Result<impl std::fmt::Debug, SaveError<Error>>) -> Conflict {
    outcome.expect_err("a conflict").conflict().expect("a conflict")
}

async fn set(client: &Client, read: &Versioned<i64>, to: i64) -> Result<(), SaveError<Error>> {
    save(client, &COUNTERS, &1_i64, read, "count = $3", &[&to]).await.map(drop)
}

#[tokio::test]
async fn saves_what_is_still_as_it_was_read_and_nothing_else() {
    let (_, client) = database("opt_save").await;
    let (mine, theirs) = (read(&client, 1).await.expect("it"), read(&client, 1).await.expect("it"));
    assert_eq!((*mine.value(), mine.version()), (10, version(1)));
    set(&client, &mine, 11).await.expect("saved");
    let late = set(&client, &theirs, 99).await;
    assert_eq!(conflict(late), Conflict::Changed { current: version(2) });
    assert_eq!(read(&client, 1).await.expect("it"), Versioned::new(11, version(2)));
    client.execute("DELETE FROM counters WHERE id = 1", &[]).await.expect("deleted");
    assert_eq!(conflict(set(&client, &theirs, 99).await), Conflict::Gone);
}

/// The update had begun before the rival's commit, and waited for it: the answer is what is there after that.
#[tokio::test]
async fn a_conflict_tells_the_version_after_the_wait() {
    let (url, client) = database("opt_wait").await;
    let mut rival = connect(&url).await;
    let counter = read(&client, 1).await.expect("it");
    let tx = rival.transaction().await.expect("a transaction");
    let theirs = read(&tx, 1).await.expect("it");
    save(&tx, &COUNTERS, &1_i64, &theirs, "count = 0", &[]).await.expect("saved");
    let mine = tokio::spawn(async move { set(&client, &counter, 99).await });
    tokio::task::spawn_blocking(|| {
        leaseward_testkit::eventually("ours waits", leaseward_testkit::PATIENCE, || {
            let waits = "SELECT count(*) FROM pg_stat_activity
                WHERE datname = 'opt_wait' AND wait_event = 'transactionid'";
            (crate::help::SERVER.sql(waits) != "0").then_some(())
        });
    })
    .await
    .expect("it waits");
    tx.commit().await.expect("a commit");
    let late = mine.await.expect("no panic");
    assert_eq!(conflict(late), Conflict::Changed { current: version(2) });
}

#[tokio::test]
async fn a_batch_tells_the_outcome_of_each_row() {
    let (_, mut client) = database("opt_batch").await;
    let tx = client.transaction().await.expect("a transaction");
    let change = |id: &'static i64, seen| Change { id, seen: version(seen), parameters: &[&7_i64] };
    let changes = [change(&1, 1), change(&2, 9), change(&8, 1), change(&3, 1)];
    let outcomes = save_many(&tx, &COUNTERS, "count = $3", &changes).await.expect("answers");
    let expected = [
        Ok(version(2)),
        Err(Conflict::Changed { current: version(1) }),
        Err(Conflict::Gone),
        Ok(version(2)),
    ];
    assert_eq!(outcomes, expected);
    tx.commit().await.expect("a commit");
    assert_eq!((count(&client, 1).await, count(&client, 2).await), (7, 20));
}

#[tokio::test]
async fn the_whole_transaction_is_done_again_after_a_conflict() {
    let (url, mut client) = database("opt_again").await;
    let rival = connect(&url).await;
    // Spawned, as users do: the future is `Send`.
    let (tries, client) = tokio::spawn(async move {
        let (retry, rival) = (Retry::new(), &rival);
        let tries = transact(&mut client, &retry, |tx, this| {
            Work::new(async move {
                tx.execute("UPDATE counters SET count = count + 1 WHERE id = 3", &[]).await?;
                let counter = read(tx, 1).await?;
                if this.number() <= 2 {
                    rival
                        .execute("UPDATE counters SET version = version + 1 WHERE id = 1", &[])
                        .await?;
                }
                let new = counter.value() + 1;
                save(tx, &COUNTERS, &1_i64, &counter, "count = $3", &[&new]).await?;
                Ok(this.number())
            })
        });
        (tries.await, client)
    })
    .await
    .expect("no panic");
    assert_eq!(tries.expect("the third"), 3);
    assert_eq!(count(&client, 1).await, 11);
    assert_eq!(count(&client, 3).await, 31, "what failed left something behind");
}

/// Two who read each other's row and write their own, at the highest level: one of them is refused with 40001.
#[tokio::test]
async fn a_serialization_failure_is_tried_again() {
    let (url, mut client) = database("opt_serial").await;
    let rival = &Mutex::new(connect(&url).await);
    let level = "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE";
    let codes = &Mutex::new(Vec::new());
    let tries = transact(&mut client, &Retry::new(), |tx, this| {
        Work::new(async move {
            tx.batch_execute(level).await?;
            let theirs = read(tx, 2).await?;
            if this.number() == 1 {
                let mut rival = rival.lock().await;
                let other = rival.transaction().await?;
                other.batch_execute(level).await?;
                let mine = read(&other, 1).await?;
                other
                    .execute("UPDATE counters SET count = $1 WHERE id = 2", &[mine.value()])
                    .await?;
                other.commit().await?;
            }
            let wrote =
                tx.execute("UPDATE counters SET count = $1 WHERE id = 1", &[theirs.value()]).await;
            codes.lock().await.extend(wrote.as_ref().err().and_then(|error| error.code().cloned()));
            wrote?;
            Ok(this.number())
        })
    })
    .await;
    assert_eq!(tries.expect("the second"), 2);
    // Refused at the write, or at the commit.
    let codes = codes.lock().await;
    assert!(codes.iter().all(|code| code.code() == "40001"), "{codes:?}");
    assert_eq!((count(&client, 1).await, count(&client, 2).await), (10, 10));
}

/// Two that lock two rows in opposite orders: one of them is refused with 40P01.
#[tokio::test]
async fn a_deadlock_is_tried_again() {
    let (url, client) = database("opt_dead").await;
    let both = [connect(&url).await, connect(&url).await];
    let meeting = Arc::new((Barrier::new(2), Notify::new()));
    let mut running = Vec::new();
    for (mut own, order) in both.into_iter().zip([[1_i64, 2], [2, 1]]) {
        let meeting = meeting.clone();
        running.push(tokio::spawn(async move {
            let (have_one_each, is_through) = &*meeting;
            let tries = transact(&mut own, &Retry::new(), |tx, this| {
                Work::new(async move {
                    let add = "UPDATE counters SET count = count + 1 WHERE id = $1";
                    // Else it may lock its first row before the other has it, and refuse that one in turn.
                    if this.number() == 2 {
                        is_through.notified().await;
                    }
                    tx.execute(add, &[&order[0]]).await?;
                    if this.number() == 1 {
                        have_one_each.wait().await;
                    }
                    tx.execute(add, &[&order[1]]).await?;
                    Ok(this.number())
                })
            })
            .await;
            is_through.notify_one();
            tries
        }));
    }
    let mut tries = Vec::new();
    for one in running {
        tries.push(one.await.expect("no panic").expect("in the end"));
    }
    tries.sort_unstable();
    assert_eq!(tries, [1, 2], "one of them was refused, once");
    assert_eq!((count(&client, 1).await, count(&client, 2).await), (12, 22));
}

#[tokio::test]
async fn tries_and_errors_end() {
    let (_, mut client) = database("opt_end").await;
    let changed = Conflict::Changed { current: version(2) };
    let hurried = Retry::new().attempts(3).backoff(Duration::ZERO, Duration::ZERO);
    let gave_up = transact(&mut client, &hurried, |tx, _| {
        Work::new(async move {
            tx.execute("UPDATE counters SET count = 0", &[]).await?;
            Err::<(), _>(changed.into())
        })
    });
    let gave_up = gave_up.await.expect_err("always a conflict");
    assert_eq!((gave_up.why(), gave_up.tries()), (Why::Attempts, 3));
    assert!(matches!(gave_up.last(), Failure::Conflict(Conflict::Changed { .. })));
    let own = transact(&mut client, &hurried, |_, _| {
        Work::new(async move { Err::<(), _>(Failure::other("no money")) })
    });
    let own = own.await.expect_err("an error");
    assert_eq!((own.why(), own.tries(), own.to_string()), (Why::Final, 1, "no money".into()));
    let wrong = transact(&mut client, &hurried, |tx, _| {
        Work::new(async move { Ok(tx.execute("SELECT 1 FROM nowhere", &[]).await?) })
    });
    assert_eq!(wrong.await.expect_err("no such table").why(), Why::Final);
    assert_eq!(count(&client, 1).await, 10);
}

#[tokio::test]
async fn tasks_that_count_together_lose_nothing() {
    let (url, client) = database("opt_count").await;
    let mut running = Vec::new();
    for _ in 0..6 {
        let mut own = connect(&url).await;
        running.push(tokio::spawn(async move {
            let retry = Retry::new().attempts(1_000).budget(Duration::from_secs(60));
            for _ in 0..20 {
                let add = transact(&mut own, &retry, |tx, _| {
                    Work::new(async move {
                        let counter = read(tx, 1).await?;
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
    assert_eq!(read(&client, 1).await.expect("it"), Versioned::new(130, version(121)));
}

#[tokio::test]
async fn what_is_prepared_does_the_same() {
    let (_, mut client) = database("opt_prepared").await;
    let counters =
        Prepared::new(&client, &COUNTERS, "count", "count = $3").await.expect("prepared");
    let counters = &counters;
    let retry = Retry::new();
    let done = transact(&mut client, &retry, |tx, _| {
        Work::new(async move {
            let read = counters.load(tx, &1_i64, |row| row.try_get::<_, i64>(0)).await?;
            let read = read.expect("a row");
            let new = read.value() + 1;
            let saved = counters.save(tx, &1_i64, &read, &[&new]).await?;
            let late = counters.save(tx, &1_i64, &read, &[&new]).await;
            Ok((saved, conflict(late)))
        })
    });
    let current = version(2);
    assert_eq!(done.await.expect("done"), (current, Conflict::Changed { current }));
    assert_eq!(count(&client, 1).await, 11);
}
