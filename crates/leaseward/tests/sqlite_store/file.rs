//! The file over time: fences, boots, sweeping, several clients.

use std::{sync::Arc, thread, time::Duration};

use leaseward::{
    ErrorKind, Fence, LostReason,
    clock::SystemClock,
    store::{self, Level, Reply, Store},
    stores::sqlite::{Durability, Sqlite},
};
use rusqlite::Connection;

use crate::{
    hand_clock::HandClock,
    help::{all, context, granted, one, open, open_now, release, renew, run, take},
};

#[test]
fn fences_grow_over_reopening_and_a_clock_set_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("leases.db");
    let clock = HandClock::new();
    let mut last = Fence::ZERO;
    for round in 1..20 {
        let store = open(&path, clock.clone()).expect("a good path");
        let grant = granted(one(&store, take("a", round)));
        assert!(grant.fence() > last);
        last = grant.fence();
        assert!(matches!(one(&store, release("a", round)), Ok(Reply::Released)));
        clock.set_wall_back(Duration::from_secs(5));
    }
}

#[test]
fn a_url_opens_it_with_its_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("new/er/leases.db");
    let url = format!("sqlite:{}?durability=full", path.display());
    let store = run(store::open(&url, context(Arc::new(SystemClock)))).expect("a good URL");
    granted(one(&*store, take("a", 1)));
    assert_eq!(store.location(), format!("sqlite:{}", path.display()));
    assert_eq!(store.guarantee().fences, Level::Holds);
    assert_eq!(open_now(&path).guarantee().fences, Level::WithinBounds);
    assert!(run(store.ping()).is_ok());
    assert!(run(store.diagnose()).expect("a good file").is_empty());
    assert!(store.fence_lead().is_some());
}

#[test]
fn many_open_a_fresh_file_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    for round in 0..10 {
        let path = folder.path().join(format!("{round}.db"));
        let start = std::sync::Barrier::new(8);
        thread::scope(|scope| {
            for who in 1..=8 {
                let (path, start) = (&path, &start);
                scope.spawn(move || {
                    start.wait();
                    let store = open_now(path);
                    granted(one(&store, take(&format!("n{who}"), who)));
                });
            }
        });
        assert_eq!(all(&open_now(&path)).len(), 8);
    }
}

#[test]
fn a_lease_of_another_boot_is_held_for_its_whole_ttl() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("leases.db");
    let before = HandClock::new();
    before.advance(Duration::from_secs(1_000_000));
    let store = open(&path, before).expect("a good path");
    granted(one(&store, take("a", 1)));
    drop(store);
    set(&path, "UPDATE meta SET boot = 'another'");

    let clock = HandClock::new();
    let store = open(&path, clock.clone()).expect("a good path");
    clock.advance(Duration::from_millis(29_999));
    assert!(matches!(one(&store, take("a", 2)), Ok(Reply::Busy(_))));
    // Opened again, it does not start anew.
    let again = open(&path, clock.clone()).expect("a good path");
    clock.advance(Duration::from_millis(1));
    granted(one(&again, take("a", 2)));
    assert!(matches!(one(&store, renew("a", 1)), Ok(Reply::NotYours(LostReason::NotOurs))));
}

#[test]
fn what_vanished_processes_left_is_swept() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("leases.db");
    let clock = HandClock::new();
    let store = open(&path, clock.clone()).expect("a good path");
    let batch = (0..200).map(|at| take(&format!("gone:{at:03}"), at + 1)).collect();
    run(store.carry_out(batch)).into_iter().map(granted).for_each(drop);
    drop(store);
    clock.advance(Duration::from_secs(31));
    // A turn of bounded work at each opening: as many as 200 names need.
    for _ in 0..2 {
        drop(open(&path, clock.clone()).expect("a good path"));
    }
    let rows: i64 = Connection::open(&path)
        .and_then(|conn| conn.query_row("SELECT count(*) FROM holds", [], |row| row.get(0)))
        .expect("our tables");
    assert_eq!(rows, 0);
}

#[test]
fn a_busy_file_is_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("leases.db");
    let store = open_now(&path);
    let other = Connection::open(&path).expect("a file");
    other.execute_batch("BEGIN IMMEDIATE").expect("nobody else writes");
    let answers = store.carry_out(vec![take("a", 1)]);
    other.execute_batch("COMMIT").expect("ours");
    granted(run(answers).remove(0));
}

#[test]
fn a_closed_store_changes_nothing_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open_now(&folder.path().join("leases.db"));
    granted(one(&store, take("a", 1)));
    run(store.close());
    run(store.close());
    let error = one(&store, release("a", 1)).expect_err("it is closed");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(all(&open_now(&folder.path().join("leases.db"))).len(), 1);
}

#[test]
fn full_durability_answers_alike() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("leases.db");
    let context = context(Arc::new(SystemClock));
    let store = Sqlite::open(&path, Durability::Full, &context).expect("a good path");
    granted(one(&store, take("a", 1)));
    assert!(matches!(one(&store, take("a", 2)), Ok(Reply::Busy(_))));
    assert!(matches!(one(&store, release("a", 1)), Ok(Reply::Released)));
}

fn set(path: &std::path::Path, sql: &str) {
    Connection::open(path).and_then(|conn| conn.execute_batch(sql)).expect("our tables");
}
