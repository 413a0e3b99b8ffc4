//! PostgreSQL with `sqlx`: both styles, in the caller's transaction.

use leaseward::fenced::{
    FenceColumn, FencedError,
    sqlx::{check, claim, create_table, update},
};
use sqlx::{Connection, Error, PgConnection};

use crate::help::{SERVER, assert_stale, fence};

const ROWS: FenceColumn = FenceColumn::new("notes");

async fn database(name: &str) -> PgConnection {
    let mut connection = PgConnection::connect(&SERVER.database(name)).await.expect("a server");
    create_table(&mut connection).await.expect("a table");
    for sql in [
        "CREATE TABLE notes (id bigint PRIMARY KEY, text text, fence bigint NOT NULL DEFAULT 0)",
        "INSERT INTO notes (id, text) VALUES (1, 'begin'), (2, 'begin')",
    ] {
        sqlx::query(sql).execute(&mut connection).await.expect("a table");
    }
    connection
}

async fn texts(connection: &mut PgConnection) -> Vec<String> {
    let all = sqlx::query_scalar("SELECT text FROM notes ORDER BY id");
    all.fetch_all(connection).await.expect("them")
}

async fn write(
    connection: &mut PgConnection,
    number: u64,
    text: &str,
) -> Result<(), FencedError<Error>> {
    let mut tx = connection.begin().await?;
    let text = text.to_owned();
    let bind = |query: leaseward::fenced::sqlx::Statement<'static>| query.bind(text);
    update(&mut tx, &ROWS, 1_i64, fence(number), "text = $3", bind).await?;
    check(&mut tx, "notes", fence(number)).await?;
    tx.commit().await.map_err(FencedError::Driver)
}

#[tokio::test]
async fn refuses_who_comes_late() {
    let mut connection = database("sqlx_both").await;
    for (number, text) in [(5, "five"), (5, "five again"), (8, "eight")] {
        write(&mut connection, number, text).await.expect("not smaller");
    }
    assert_stale(write(&mut connection, 7, "seven").await, 7, 8);
    assert_eq!(texts(&mut connection).await, ["eight", "begin"]);
    let mut tx = connection.begin().await.expect("a transaction");
    let outcome = update(&mut tx, &ROWS, 9_i64, fence(1), "text = 'x'", |query| query).await;
    assert!(matches!(outcome, Err(FencedError::Missing)), "{outcome:?}");
}

#[tokio::test]
async fn a_stale_transaction_changes_nothing_even_if_it_is_committed() {
    let mut connection = database("sqlx_poison").await;
    write(&mut connection, 8, "eight").await.expect("the first");
    for style in ["column", "side"] {
        let mut tx = connection.begin().await.expect("a transaction");
        let early = sqlx::query("UPDATE notes SET text = 'early' WHERE id = 2");
        early.execute(&mut *tx).await.expect("a write");
        let outcome = match style {
            "column" => update(&mut tx, &ROWS, 1_i64, fence(7), "text = 'x'", |query| query).await,
            _ => check(&mut tx, "notes", fence(7)).await,
        };
        assert_stale(outcome, 7, 8);
        let _ = tx.commit().await;
        assert_eq!(texts(&mut connection).await, ["eight", "begin"]);
    }
}

#[tokio::test]
async fn who_reads_under_a_fence_is_not_overwritten_by_the_holder_before() {
    let mut connection = database("sqlx_claim").await;
    let mut tx = connection.begin().await.expect("a transaction");
    claim(&mut tx, &ROWS, 1_i64, fence(8)).await.expect("the first");
    tx.commit().await.expect("a commit");
    assert_stale(write(&mut connection, 7, "seven").await, 7, 8);
    assert_eq!(texts(&mut connection).await, ["begin", "begin"]);
}

#[tokio::test]
async fn outside_of_a_transaction_nothing_is_checked_or_written() {
    let mut connection = database("sqlx_outside").await;
    let outcome = check(&mut connection, "notes", fence(8)).await;
    assert!(matches!(outcome, Err(FencedError::Driver(Error::InvalidArgument(_)))), "{outcome:?}");
    let outcome = claim(&mut connection, &ROWS, 1_i64, fence(8)).await;
    assert!(matches!(outcome, Err(FencedError::Driver(Error::InvalidArgument(_)))), "{outcome:?}");
    write(&mut connection, 7, "seven").await.expect("no fence was recorded");
}
