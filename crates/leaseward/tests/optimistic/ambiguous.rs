//! A commit whose answer never comes.
//!
//! The server waits for a standby that does not exist, after it has committed; then its process is ended. So the
//! transaction is committed and nobody is told, every time.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use leaseward::optimistic::{
    Once, Retry, Why, Work,
    postgres::{create_table, transact, transact_once},
};
use leaseward_testkit::{PATIENCE, Postgres, eventually};
use tokio_postgres::{Client, Error, Transaction};

use crate::help::{TABLE, connect, count};

async fn server() -> (Arc<Postgres>, Client) {
    let server = Postgres::builder()
        .conf("synchronous_standby_names", "nobody")
        .conf("synchronous_commit", "local")
        .start();
    let client = connect(&server.url()).await;
    client.batch_execute(TABLE).await.expect("a table");
    (Arc::new(server), client)
}

/// Ends whoever waits for the standby; answers when it has.
fn end_the_waiting(server: &Arc<Postgres>) -> tokio::task::JoinHandle<()> {
    let server = server.clone();
    tokio::task::spawn_blocking(move || {
        eventually("a commit waits", PATIENCE, || {
            let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
            (server.sql(end) == "t").then_some(())
        });
    })
}

/// Adds one, in a commit that waits for the standby.
async fn add_and_wait(tx: &Transaction<'_>) -> Result<(), Error> {
    tx.batch_execute("SET LOCAL synchronous_commit = 'on'").await?;
    tx.execute("UPDATE counters SET count = count + 1 WHERE id = 1", &[]).await.map(drop)
}

#[tokio::test]
async fn without_a_key_it_is_told_and_not_tried_again() {
    let (retry, (server, client)) = (Retry::new(), server().await);
    let mut own = connect(&server.url()).await;
    let ending = end_the_waiting(&server);
    let lost =
        transact(&mut own, &retry, |tx, _| Work::new(async move { Ok(add_and_wait(tx).await?) }))
            .await;
    ending.await.expect("it was ended");
    let lost = lost.expect_err("no answer");
    assert_eq!((lost.why(), lost.tries()), (Why::Ambiguous, 1), "{lost}");
    assert_eq!(count(&client, 1).await, 11, "trying again would have counted twice");
}

#[tokio::test]
async fn with_a_key_it_is_tried_again_and_happens_once() {
    let (retry, (server, client)) = (Retry::new(), server().await);
    create_table(&client).await.expect("a table");
    let url = server.url();
    let ending = end_the_waiting(&server);
    let connect = async || Ok::<_, Error>(Box::new(connect(&url).await));
    let tries = &AtomicU32::new(0);
    let done = transact_once(connect, &retry, "add:1", |tx, _| {
        Work::new(async move {
            tries.fetch_add(1, Ordering::Relaxed);
            Ok(add_and_wait(tx).await?)
        })
    });
    assert_eq!(done.await.expect("known in the end"), Once::Before);
    ending.await.expect("it was ended");
    assert_eq!((tries.load(Ordering::Relaxed), count(&client, 1).await), (1, 11));
}

/// A connection lost before the commit leaves no doubt: with a key it is simply tried again.
#[tokio::test]
async fn a_connection_lost_before_the_commit_is_tried_again_with_a_key() {
    let (retry, (server, client)) = (Retry::new(), server().await);
    create_table(&client).await.expect("a table");
    let url = server.url();
    let connect = async || Ok::<_, Error>(Box::new(connect(&url).await));
    let done = transact_once(connect, &retry, "add:1", |tx, this| {
        Work::new(async move {
            tx.execute("UPDATE counters SET count = count + 1 WHERE id = 1", &[]).await?;
            if this.number() == 1 {
                tx.execute("SELECT pg_terminate_backend(pg_backend_pid())", &[]).await?;
            }
            Ok(this.number())
        })
    });
    assert_eq!(done.await.expect("the second"), Once::Now(2));
    assert_eq!(count(&client, 1).await, 11);
    let mut own = crate::help::connect(&url).await;
    let lost = transact(&mut own, &retry, |tx, _| {
        Work::new(async move {
            Ok(tx.execute("SELECT pg_terminate_backend(pg_backend_pid())", &[]).await?)
        })
    });
    assert_eq!(lost.await.expect_err("the connection is gone").why(), Why::Final);
}
