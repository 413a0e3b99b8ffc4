//! What only looks makes nothing, and a store that is not there is not an empty one.

use std::fs;

use crate::support::{Place, Ran, Running};

/// An id that a job might have.
const JOB: &str = "1-8-1";

/// All that looks, or changes what is there.
const LOOKS: &[&[&str]] = &[
    &["ls"],
    &["show", "x"],
    &["events"],
    &["doctor"],
    &["break", "x"],
    &["queue", "ls"],
    &["queue", "stats"],
    &["queue", "show", JOB],
    &["queue", "top", "-n", "1"],
    &["queue", "cancel", JOB],
    &["queue", "retry", JOB],
    &["queue", "pause"],
    &["queue", "resume"],
];

#[test]
fn a_mistyped_path_is_an_error_and_makes_nothing() {
    let place = Place::new();
    let url = format!("sqlite:{}", place.path("folder/mistyped.db").display());
    for arguments in LOOKS {
        let ran = Ran::from(
            place
                .bare_tool(arguments.iter().chain(&["--store", &url]))
                .output()
                .expect("it starts"),
        );
        assert_eq!(ran.code, 69, "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains("does not exist"), "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains("hint: check the path"), "{arguments:?}: {}", ran.err);
        assert!(!place.path("folder").exists(), "{arguments:?} made something");
    }
}

#[test]
fn queues_in_a_file_of_something_else_are_not_made_by_looking() {
    let place = Place::new();
    let url = format!("sqlite:{}", place.path("app.db").display());
    let app = rusqlite::Connection::open(place.path("app.db")).expect("a file");
    app.execute_batch("CREATE TABLE users (id INTEGER)").expect("writable");
    let ran = place.run(["queue", "stats", "--store", &url]);
    assert_eq!(ran.code, 69, "{}", ran.err);
    assert!(ran.err.contains("no queues"), "{}", ran.err);
    let tables: i64 =
        app.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).expect("a count");
    assert_eq!(tables, 1);
}

#[test]
fn the_default_store_is_empty_until_it_is_made() {
    let place = Place::new();
    for arguments in LOOKS {
        let ran = Ran::from(place.bare_tool(*arguments).output().expect("it starts"));
        assert_ne!(ran.code, 69, "{arguments:?}: {}", ran.err);
        assert!(
            ran.err.contains("is new: there is nothing in it yet"),
            "{arguments:?}: {}",
            ran.err
        );
        let made: Vec<_> = fs::read_dir(place.path("")).expect("a folder").collect();
        assert!(made.is_empty(), "{arguments:?} made {made:?}");
    }
    let ran = Ran::from(place.bare_tool(["ls", "--json"]).output().expect("it starts"));
    assert_eq!((ran.code, ran.out.trim()), (0, "[]"));
}

#[test]
fn the_default_store_is_followed_from_when_it_is_made() {
    let place = Place::new();
    let mut following = Running::start(&mut place.bare_tool(["events", "--follow", "--json"]));
    let made = place.bare_tool(["run", "x", "--", "sleep", "2"]).output().expect("it starts");
    assert!(made.status.success());
    assert!(following.line().contains("\"x\""));
}

#[test]
fn a_database_in_memory_is_no_file() {
    let place = Place::new();
    for command in [&["run", "x", "--", "true"][..], &["queue", "add", "1"]] {
        let mut arguments = vec!["--store", "sqlite::memory:"];
        arguments.extend(command);
        let ran = Ran::from(place.bare_tool(arguments).output().expect("it starts"));
        assert_eq!(ran.code, 2, "{command:?}: {}", ran.err);
        assert!(ran.err.contains("hint"), "{command:?}: {}", ran.err);
    }
    assert_eq!(fs::read_dir(place.path("")).expect("a folder").count(), 0);
}

#[test]
fn few_descriptors_are_an_error_and_no_panic() {
    let place = Place::new();
    for limit in 5..24 {
        let script = format!("ulimit -n {limit}; exec \"$0\" run x -- true");
        let ran = Ran::from(
            std::process::Command::new("sh")
                .args(["-c", &script, env!("CARGO_BIN_EXE_leaseward")])
                .env("LEASEWARD_STORE", place.store())
                .env("HOME", place.path(""))
                .output()
                .expect("a shell"),
        );
        assert_ne!(ran.code, 101, "{limit}: {}", ran.err);
        assert!(ran.code == 0 || ran.err.contains("error: "), "{limit}: {} {}", ran.code, ran.err);
    }
}
