//! PostgreSQL with `tokio-postgres`: both styles, in the caller's transaction.

use leaseward::fenced::{
    FenceColumn, FencedError,
    postgres::{check, claim, create_table, update},
};
use leaseward_testkit::PATIENCE;
use tokio_postgres::{Client, Error, error::SqlState};

use crate::help::{SERVER, assert_stale, connect, fence};

const ROWS: FenceColumn = FenceColumn::new("notes");

/// A database of one's own, and two clients of it.
async fn database(name: &str) -> (Client, Client) {
    let url = SERVER.database(name);
    let client = connect(&url).await;
    create_table(&client).await.expect("a table");
    create_table(&client).await.expect("harmless a second time");
    let notes =
        "CREATE TABLE notes (id bigint PRIMARY KEY, text text, fence bigint NOT NULL DEFAULT 0);
        INSERT INTO notes (id, text) VALUES (1, 'begin'), (2, 'begin')";
    client.batch_execute(notes).await.expect("a table");
    (client, connect(&url).await)
}

async fn text(client: &Client, id: i64) -> String {
    client.query_one("SELECT text FROM notes WHERE id = $1", &[&id]).await.expect("it").get(0)
}

async fn write(client: &mut Client, number: u64, text: &str) -> Result<(), FencedError<Error>> {
    let tx = client.transaction().await?;
    update(&tx, &ROWS, &1_i64, fence(number), "text = $3", &[&text]).await?;
    tx.commit().await.map_err(FencedError::Driver)
}

async fn write_beside(
    client: &mut Client,
    resource: &str,
    number: u64,
) -> Result<(), FencedError<Error>> {
    let tx = client.transaction().await?;
    check(&tx, resource, fence(number)).await?;
    tx.execute("UPDATE notes SET text = $1", &[&number.to_string()]).await?;
    tx.commit().await.map_err(FencedError::Driver)
}

#[tokio::test]
async fn a_column_refuses_who_comes_late() {
    let (mut client, _) = database("pg_column").await;
    for (number, text) in [(5, "five"), (5, "five again"), (8, "eight")] {
        write(&mut client, number, text).await.expect("not smaller");
    }
    assert_stale(write(&mut client, 7, "seven").await, 7, 8);
    assert_eq!(text(&client, 1).await, "eight");
    let tx = client.transaction().await.expect("a transaction");
    let outcome = update(&tx, &ROWS, &9_i64, fence(1), "text = 'x'", &[]).await;
    assert!(matches!(outcome, Err(FencedError::Missing)), "{outcome:?}");
}

#[tokio::test]
async fn the_table_beside_refuses_who_comes_late() {
    let (mut client, _) = database("pg_side").await;
    for (resource, number) in [("a", 5), ("a", 5), ("a", 8), ("b", 3)] {
        write_beside(&mut client, resource, number).await.expect("not smaller");
    }
    assert_stale(write_beside(&mut client, "a", 7).await, 7, 8);
    assert_eq!(text(&client, 1).await, "3");
}

#[tokio::test]
async fn a_stale_transaction_changes_nothing_even_if_it_is_committed() {
    let (mut client, _) = database("pg_poison").await;
    write(&mut client, 8, "eight").await.expect("the first");
    let tx = client.transaction().await.expect("a transaction");
    check(&tx, "a", fence(8)).await.expect("the first");
    tx.commit().await.expect("a commit");
    for style in ["column", "side"] {
        let tx = client.transaction().await.expect("a transaction");
        tx.execute("UPDATE notes SET text = 'early' WHERE id = 2", &[]).await.expect("a write");
        let outcome = match style {
            "column" => update(&tx, &ROWS, &1_i64, fence(7), "text = 'seven'", &[]).await,
            _ => check(&tx, "a", fence(7)).await,
        };
        assert_stale(outcome, 7, 8);
        // A program that does not look: its next write is refused, its commit does nothing.
        let refused = tx.execute("UPDATE notes SET text = 'late' WHERE id = 2", &[]).await;
        let code = refused.expect_err("the transaction has failed").code().cloned();
        assert_eq!(code, Some(SqlState::IN_FAILED_SQL_TRANSACTION));
        let _ = tx.commit().await;
        assert_eq!(
            (text(&client, 1).await, text(&client, 2).await),
            ("eight".into(), "begin".into())
        );
    }
}

/// The earlier holder has checked and not yet committed: the later one waits for it, then writes over it.
#[tokio::test]
async fn a_later_holder_waits_for_the_commit_in_flight() {
    let (mut early, mut late) = database("pg_wait").await;
    let tx = early.transaction().await.expect("a transaction");
    check(&tx, "a", fence(1)).await.expect("the first");
    let late = tokio::spawn(async move { write_beside(&mut late, "a", 2).await });
    tokio::task::spawn_blocking(|| {
        leaseward_testkit::eventually("the later one waits", PATIENCE, || {
            let waits = "SELECT count(*) FROM pg_stat_activity
                WHERE datname = 'pg_wait' AND wait_event = 'transactionid'";
            (SERVER.sql(waits) != "0").then_some(())
        });
    })
    .await
    .expect("it waits");
    tx.execute("UPDATE notes SET text = 'early'", &[]).await.expect("nobody is in between");
    tx.commit().await.expect("a commit");
    late.await.expect("no panic").expect("larger");
    assert_eq!(text(&early, 1).await, "2");
    assert_stale(write_beside(&mut early, "a", 1).await, 1, 2);
}

#[tokio::test]
async fn who_reads_under_a_fence_is_not_overwritten_by_the_holder_before() {
    let (mut client, _) = database("pg_claim").await;
    let tx = client.transaction().await.expect("a transaction");
    claim(&tx, &ROWS, &1_i64, fence(8)).await.expect("the first");
    tx.commit().await.expect("a commit");
    assert_eq!(text(&client, 1).await, "begin");
    assert_stale(write(&mut client, 7, "seven").await, 7, 8);
}
