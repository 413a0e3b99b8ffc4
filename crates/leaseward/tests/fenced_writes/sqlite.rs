//! SQLite: both styles, in the caller's transaction.

use leaseward::fenced::{
    FORGET_SQL, FenceColumn, FencedError,
    sqlite::{check, claim, create_table, update},
};
use rusqlite::{Connection, params};

use crate::help::{assert_stale, fence};

const ROWS: FenceColumn = FenceColumn::new("notes");

fn database() -> Connection {
    let database = Connection::open_in_memory().expect("a database");
    create_table(&database).expect("a table");
    create_table(&database).expect("harmless a second time");
    let notes =
        "CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT, fence INTEGER NOT NULL DEFAULT 0);
        INSERT INTO notes (id, text) VALUES (1, 'begin'), (2, 'begin')";
    database.execute_batch(notes).expect("a table");
    database
}

fn text(database: &Connection, id: i64) -> String {
    database.query_row("SELECT text FROM notes WHERE id = ?1", [id], |row| row.get(0)).expect("it")
}

#[test]
fn a_column_refuses_who_comes_late() {
    let mut database = database();
    let mut write = |number, text: &str| {
        let tx = database.transaction().expect("a transaction");
        update(&tx, &ROWS, 1, fence(number), "text = ?3", params![text])?;
        tx.commit().map_err(FencedError::Driver)
    };
    for (number, text) in [(5, "five"), (5, "five again"), (8, "eight")] {
        write(number, text).expect("not smaller");
    }
    assert_stale(write(7, "seven"), 7, 8);
    assert_eq!(text(&database, 1), "eight");
}

#[test]
fn a_row_that_is_not_there_is_no_stale_fence() {
    let mut database = database();
    let tx = database.transaction().expect("a transaction");
    let outcome = update(&tx, &ROWS, 9, fence(1), "text = 'x'", &[]);
    assert!(matches!(outcome, Err(FencedError::Missing)), "{outcome:?}");
}

#[test]
fn the_table_beside_refuses_who_comes_late() {
    let mut database = database();
    let mut write = |resource, number| {
        let tx = database.transaction().expect("a transaction");
        check(&tx, resource, fence(number))?;
        tx.execute("UPDATE notes SET text = ?1", [number.to_string()])
            .map_err(FencedError::Driver)?;
        tx.commit().map_err(FencedError::Driver)
    };
    for (resource, number) in [("a", 5), ("a", 5), ("a", 8), ("b", 3)] {
        write(resource, number).expect("not smaller");
    }
    assert_stale(write("a", 7), 7, 8);
    assert_eq!(text(&database, 1), "3");
}

#[test]
fn a_stale_transaction_changes_nothing_even_if_it_is_committed() {
    let mut database = database();
    let tx = database.transaction().expect("a transaction");
    check(&tx, "a", fence(8)).expect("the first");
    update(&tx, &ROWS, 1, fence(8), "text = 'eight'", &[]).expect("the first");
    tx.commit().expect("a commit");
    type Stale = fn(&rusqlite::Transaction<'_>) -> Result<(), FencedError<rusqlite::Error>>;
    let stale: [Stale; 2] =
        [|tx| check(tx, "a", fence(7)), |tx| update(tx, &ROWS, 1, fence(7), "text = 'seven'", &[])];
    for stale in stale {
        let tx = database.transaction().expect("a transaction");
        tx.execute("UPDATE notes SET text = 'early' WHERE id = 2", []).expect("a write");
        assert_stale(stale(&tx), 7, 8);
        // A program that does not look.
        tx.commit().expect("an empty commit");
        assert_eq!((text(&database, 1), text(&database, 2)), ("eight".into(), "begin".into()));
    }
}

#[test]
fn what_is_long_past_can_be_forgotten() {
    let mut database = database();
    let tx = database.transaction().expect("a transaction");
    check(&tx, "old", fence(5)).expect("the first");
    check(&tx, "new", fence(50)).expect("the first");
    tx.commit().expect("a commit");
    assert_eq!(database.execute(FORGET_SQL, [10]).expect("a statement"), 1);
    let tx = database.transaction().expect("a transaction");
    assert_stale(check(&tx, "new", fence(49)), 49, 50);
}

#[test]
fn who_reads_under_a_fence_is_not_overwritten_by_the_holder_before() {
    let mut database = database();
    let tx = database.transaction().expect("a transaction");
    claim(&tx, &ROWS, 1, fence(8)).expect("the first");
    tx.commit().expect("a commit");
    assert_eq!(text(&database, 1), "begin");
    let tx = database.transaction().expect("a transaction");
    assert_stale(update(&tx, &ROWS, 1, fence(7), "text = 'seven'", &[]), 7, 8);
}
