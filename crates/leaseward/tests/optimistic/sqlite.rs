//! SQLite.

use std::{path::Path, thread, time::Duration};

use leaseward::optimistic::{
    Conflict, Failure, Once, Retry, SaveError, Versioned, Why,
    sqlite::{Change, create_table, load, save, save_many, transact, transact_once},
};
use rusqlite::{Connection, Error, ErrorCode, Transaction, params};

use crate::help::{COUNTERS, TABLE, version};

fn database() -> Connection {
    let database = Connection::open_in_memory().expect("a database");
    database.execute_batch(TABLE).expect("a table");
    database
}

fn open(path: &Path) -> Connection {
    let connection = Connection::open(path).expect("a file");
    connection.busy_timeout(Duration::from_secs(30)).expect("a setting");
    connection
}

fn read(connection: &Connection, id: i64) -> Result<Versioned<i64>, Error> {
    let found = load(connection, &COUNTERS, id, "count", |row| row.get(0))?;
    Ok(found.expect("a row"))
}

fn conflict(outcome: Result<impl std::fmt::Debug, SaveError<Error>>) -> Conflict {
    outcome.expect_err("a conflict").conflict().expect("a conflict")
}

#[test]
fn saves_what_is_still_as_it_was_read_and_nothing_else() {
    let database = database();
    let (mut mine, theirs) = (read(&database, 1).expect("it"), read(&database, 1).expect("it"));
    assert_eq!((*mine.value(), mine.version()), (10, version(1)));
    let saved = save(&database, &COUNTERS, 1, &mine, "count = ?3", params![11]).expect("saved");
    assert_eq!(saved, version(2));
    mine.saved_as(saved);
    let late = save(&database, &COUNTERS, 1, &theirs, "count = ?3", params![99]);
    assert_eq!(conflict(late), Conflict::Changed { current: version(2) });
    save(&database, &COUNTERS, 1, &mine, "", &[]).expect("only its version changes");
    assert_eq!(read(&database, 1).expect("it"), Versioned::new(11, version(3)));
    database.execute("DELETE FROM counters WHERE id = 1", []).expect("deleted");
    let late = save(&database, &COUNTERS, 1, &mine, "count = ?3", params![99]);
    assert_eq!(conflict(late), Conflict::Gone);
    assert!(
        load(&database, &COUNTERS, 1, "count", |row| row.get::<_, i64>(0)).expect("ok").is_none()
    );
}

#[test]
fn a_batch_tells_the_outcome_of_each_row() {
    let database = database();
    let change = |id: &'static i64, seen| Change { id, seen: version(seen), parameters: &[&7] };
    let changes = [change(&1, 1), change(&2, 9), change(&8, 1), change(&3, 1)];
    let outcomes = save_many(&database, &COUNTERS, "count = ?3", &changes).expect("answers");
    let expected = [
        Ok(version(2)),
        Err(Conflict::Changed { current: version(1) }),
        Err(Conflict::Gone),
        Ok(version(2)),
    ];
    assert_eq!(outcomes, expected);
    assert_eq!(*read(&database, 2).expect("it").value(), 20);
}

/// Reads beside another writer and then wants to write: `SQLITE_BUSY_SNAPSHOT`, and the whole of it again.
#[test]
fn a_read_that_was_overtaken_is_done_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    let mut connection = open(&path);
    connection.pragma_update(None, "journal_mode", "wal").expect("a setting");
    connection.execute_batch(TABLE).expect("a table");
    let rival = open(&path);
    let mut codes = Vec::new();
    let seen = transact(&mut connection, &Retry::new(), |tx, this| {
        let counter = read(tx, 1)?;
        if this.number() <= 2 {
            rival.execute("UPDATE counters SET count = count + 100 WHERE id = 2", [])?;
        }
        let saved = save(tx, &COUNTERS, 1, &counter, "count = ?3", params![counter.value() + 1]);
        if let Err(SaveError::Driver(Error::SqliteFailure(error, _))) = &saved {
            codes.push((error.code, error.extended_code));
        }
        saved?;
        Ok(this.number())
    });
    assert_eq!(seen.expect("the third"), 3);
    assert_eq!(codes, [(ErrorCode::DatabaseBusy, rusqlite::ffi::SQLITE_BUSY_SNAPSHOT); 2]);
    assert_eq!(*read(&connection, 1).expect("it").value(), 11);
}

#[test]
fn threads_that_count_together_lose_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    let first = open(&path);
    first.pragma_update(None, "journal_mode", "wal").expect("a setting");
    first.execute_batch(TABLE).expect("a table");
    let retry = Retry::new().attempts(1_000).budget(Duration::from_secs(60));
    let count = || {
        let mut connection = open(&path);
        for _ in 0..25 {
            let add = |tx: &Transaction<'_>, _: &_| {
                let counter = read(tx, 1)?;
                save(tx, &COUNTERS, 1, &counter, "count = ?3", params![counter.value() + 1])?;
                Ok(())
            };
            transact(&mut connection, &retry, add).expect("in the end");
        }
    };
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(count);
        }
    });
    assert_eq!(read(&first, 1).expect("it"), Versioned::new(110, version(101)));
}

#[test]
fn an_error_of_ones_own_rolls_back_and_ends_it() {
    let mut database = database();
    let gave_up = transact(&mut database, &Retry::new(), |tx, _| {
        tx.execute("UPDATE counters SET count = 0", [])?;
        Err::<(), _>(Failure::other("no money"))
    });
    let gave_up = gave_up.expect_err("an error");
    assert_eq!((gave_up.why(), gave_up.tries()), (Why::Final, 1));
    assert_eq!(gave_up.to_string(), "no money");
    assert_eq!(*read(&database, 1).expect("it").value(), 10);
}

#[test]
fn a_key_is_used_once() {
    let mut database = database();
    create_table(&database).expect("a table");
    let mut add = |key| {
        transact_once(&mut database, &Retry::new(), key, |tx, _| {
            Ok(tx.execute("UPDATE counters SET count = count + 1 WHERE id = 1", [])?)
        })
        .expect("done")
    };
    assert_eq!(add("a"), Once::Now(1));
    assert_eq!(add("a"), Once::Before);
    assert_eq!(add("b"), Once::Now(1));
    let failed = transact_once(&mut database, &Retry::new(), "c", |_, _| {
        Err::<(), _>(Failure::other("no money"))
    });
    assert!(failed.is_err());
    let again = transact_once(&mut database, &Retry::new(), "c", |_, _| Ok("now"));
    assert_eq!(again.expect("done"), Once::Now("now"), "what was rolled back was not done");
    assert_eq!(*read(&database, 1).expect("it").value(), 12);
}
