//! `run`: codes, environment, streams, waiting, and what is left behind.

use std::{fs, process::Command};

use crate::support::{Place, Ran, Running, is_gone};

#[test]
fn the_exit_code_is_the_commands() {
    let place = Place::new();
    let table: [(&[&str], i32); 6] = [
        (&["true"], 0),
        (&["sh", "-c", "exit 7"], 7),
        (&["sh", "-c", "kill -9 $$"], 137),
        (&["sh", "-c", "kill -TERM $$"], 143),
        (&["/no/such/program"], 127),
        (&["/etc"], 126),
    ];
    for (command, code) in table {
        let ran = place.run(["run", "x", "--"].iter().chain(command));
        assert_eq!(ran.code, code, "{command:?}: {}", ran.err);
    }
}

#[test]
fn a_program_that_cannot_be_run_is_explained() {
    let ran = Place::new().run(["run", "x", "--", "no-such-program"]);
    assert!(ran.err.contains("cannot run `no-such-program`"), "{}", ran.err);
    assert!(ran.err.contains("hint: "), "{}", ran.err);
}

#[test]
fn the_command_is_told_about_its_lease() {
    let place = Place::new();
    let print = "echo $LEASEWARD_NAME; echo $LEASEWARD_FENCE; echo $LEASEWARD_STORE; echo [$LEASEWARD_FENCES]";
    let first = place.run(["run", "table:42", "--", "sh", "-c", print]);
    let second = place.run(["run", "table:42", "--", "sh", "-c", print]);
    let lines: Vec<&str> = first.out.lines().collect();
    assert_eq!((lines[0], lines[2], lines[3]), ("table:42", place.store().as_str(), "[]"));
    let fence = |ran: &Ran| ran.out.lines().nth(1).and_then(|line| line.parse::<u64>().ok());
    assert!(fence(&second) > fence(&first), "{:?} {:?}", fence(&first), fence(&second));
}

#[test]
fn several_names_come_with_a_fence_each() {
    let place = Place::new();
    let ran = place.run(["run", "b", "a", "--", "sh", "-c", "echo $LEASEWARD_FENCES"]);
    let fences: serde_json::Value = serde_json::from_str(&ran.out).expect("JSON");
    assert!(fences["a"].is_u64() && fences["b"].is_u64(), "{fences}");
    let ls = place.run(["ls", "--json"]);
    assert_eq!(ls.out, "[]\n", "both were given back");
}

#[test]
fn one_run_inside_another_tells_of_its_own_lease() {
    let place = Place::new();
    let tool = env!("CARGO_BIN_EXE_leaseward");
    let print = "echo $LEASEWARD_NAME [$LEASEWARD_FENCES]";
    let ran = place.run(["run", "a", "b", "--", tool, "run", "c", "--", "sh", "-c", print]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "c []\n"), "{}", ran.err);
    let same = ["run", "a", "--", tool, "run", "--no-wait", "a", "--", "true"];
    assert_eq!(place.run(same).code, 75, "it is the same store");
}

#[test]
fn the_streams_are_the_commands() {
    let place = Place::new();
    let mut running = Running::start(&mut place.tool(["run", "x", "--", "cat"]));
    running.tell("hello");
    assert_eq!(running.line(), "hello");
    let ran = running.end();
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "", ""));
}

#[test]
fn the_command_inherits_no_file_of_ours() {
    let place = Place::new();
    let list = ["sh", "-c", "ls /proc/self/fd | wc -l"];
    let plain = Command::new(list[0])
        .args(&list[1..])
        .stdin(std::process::Stdio::null())
        .output()
        .expect("a shell");
    let under = place.run(["run", "x", "--"].iter().chain(&list));
    assert_eq!(under.out, String::from_utf8_lossy(&plain.stdout));
}

#[test]
fn busy_is_75_or_what_was_asked_for() {
    let place = Place::new();
    let held = place.hold(&["deploy"], "read line");
    let table: [(&[&str], i32); 4] = [
        (&["--no-wait"], 75),
        (&["--wait", "50ms"], 75),
        (&["--no-wait", "--busy-code", "0"], 0),
        (&["--wait", "50ms", "--busy-code", "9"], 9),
    ];
    for (options, code) in table {
        let tail = ["deploy", "--", "touch", "never"];
        let ran = place.run(["run"].iter().chain(options).chain(&tail));
        assert_eq!(ran.code, code, "{options:?}: {}", ran.err);
        assert!(ran.err.contains("`deploy`") && ran.err.contains("hint: "), "{}", ran.err);
    }
    assert!(!place.path("never").exists());
    let shown = place.run(["show", "deploy", "--json"]).out;
    assert!(shown.contains("\"waiters\":[]"), "who gave up waits no more: {shown}");
    assert_eq!(held.end().code, 1, "`read` ends with 1 at the end of its input");
}

#[test]
fn whoever_comes_second_waits_for_the_first() {
    let place = Place::new();
    let mut first = place.hold(&["x"], "read line; echo first >> order");
    let second =
        Running::start(&mut place.tool(["run", "x", "--", "sh", "-c", "echo second >> order"]));
    crate::support::until("somebody waits", || {
        place.run(["show", "x", "--json"]).out.contains("waited_ms")
    });
    first.tell("go");
    assert_eq!((first.end().code, second.end().code), (0, 0));
    let order = fs::read_to_string(place.path("order")).expect("written");
    assert_eq!(order, "first\nsecond\n");
}

#[test]
fn readers_share_and_permits_are_counted() {
    let place = Place::new();
    let readers =
        [place.hold(&["--shared", "doc"], "read l"), place.hold(&["--shared", "doc"], "read l")];
    assert_eq!(place.run(["run", "--no-wait", "doc", "--", "true"]).code, 75);
    let permits = [
        place.hold(&["--permits", "2", "gpu"], "read l"),
        place.hold(&["--permits", "2", "gpu"], "read l"),
    ];
    assert_eq!(place.run(["run", "--no-wait", "--permits", "2", "gpu", "--", "true"]).code, 75);
    let other = place.run(["run", "--no-wait", "--permits", "3", "gpu", "--", "true"]);
    assert!(other.err.contains("2 permits"), "{}", other.err);
    for running in readers.into_iter().chain(permits) {
        running.end();
    }
    assert_eq!(place.run(["run", "--no-wait", "doc", "--", "true"]).code, 0);
}

#[test]
fn a_minimum_hold_outlasts_the_command() {
    let place = Place::new();
    assert_eq!(place.run(["run", "--min-hold", "1h", "nightly", "--", "true"]).code, 0);
    assert_eq!(place.run(["run", "--no-wait", "nightly", "--", "true"]).code, 75);
}

#[test]
fn what_the_command_left_in_its_group_is_ended_before_the_name_is_free() {
    let place = Place::new();
    // The background process keeps stdout open: `output()` returns only once it is gone.
    let ran = place.run(["run", "x", "--", "sh", "-c", "sleep 1000 & echo $!; exit 3"]);
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(is_gone(ran.out.trim().parse().expect("a process number")));
}

#[test]
fn what_is_left_is_asked_to_end_before_it_is_killed() {
    let place = Place::new();
    let left = "trap 'echo cleaned > cleaned; exit' TERM; echo ready > ready; while :; do read l < fifo; done";
    let script = format!("mkfifo fifo; ({left}) & while ! [ -s ready ]; do :; done");
    let ran = place.run(["run", "x", "--", "sh", "-c", &script]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(fs::read_to_string(place.path("cleaned")).expect("it cleaned up"), "cleaned\n");
}

#[test]
fn what_will_not_end_is_killed() {
    let place = Place::new();
    let script = "(trap '' TERM; echo ready > ready; exec sleep 1000) & echo $!; while ! [ -s ready ]; do :; done";
    let ran = place.run(["run", "--ttl", "2s", "x", "--", "sh", "-c", script]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(is_gone(ran.out.trim().parse().expect("a process number")));
}

#[test]
fn a_damaged_store_is_69() {
    let place = Place::new();
    fs::write(place.path("locks.db"), vec![7; 8192]).expect("written");
    let ran = place.run(["run", "x", "--", "touch", "never"]);
    assert_eq!(ran.code, 69, "{}", ran.err);
    assert!(ran.err.starts_with("error: "), "{}", ran.err);
    assert!(!place.path("never").exists());
}

#[test]
fn without_configuration_it_works_in_the_users_state_folder() {
    let place = Place::new();
    let ran = Ran::from(
        place.bare_tool(["run", "hello", "--", "echo", "one at a time"]).output().expect("starts"),
    );
    assert_eq!((ran.code, ran.out.as_str()), (0, "one at a time\n"), "{}", ran.err);
    assert!(place.path(".local/state/leaseward/leases.db").exists());
}

#[test]
fn a_command_that_would_wait_for_its_own_end_is_refused() {
    let place = Place::new();
    let tool = env!("CARGO_BIN_EXE_leaseward");
    let refused: &[(&[&str], &[&str])] = &[
        (&["run", "x"], &["run", "x"]),
        (&["run", "x"], &["run", "--wait", "1h", "x"]),
        (&["run", "x"], &["run", "--shared", "x"]),
        (&["run", "--shared", "x"], &["run", "x"]),
        (&["run", "--permits", "1", "x"], &["run", "--permits", "1", "x"]),
        (&["run", "w", "x"], &["run", "x", "y"]),
        (&["run", "x"], &["acquire", "x"]),
        (&["elect", "x"], &["run", "x"]),
    ];
    let nested = |outer: &[&str], inner: &[&str]| {
        let command: &[&str] = if inner[0] == "run" { &["--", "echo", "ran"] } else { &[] };
        place.run([outer, &["--", tool], inner, command].concat())
    };
    for (outer, inner) in refused {
        let ran = nested(outer, inner);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{outer:?} {inner:?}: {}", ran.err);
        assert!(ran.err.contains("would wait for itself"), "{outer:?} {inner:?}: {}", ran.err);
        assert!(ran.err.contains("hint: "), "{}", ran.err);
    }
    let possible: &[(&[&str], &[&str])] = &[
        (&["run", "x"], &["run", "y"]),
        (&["run", "--shared", "x"], &["run", "--shared", "x"]),
        (&["run", "--permits", "2", "x"], &["run", "--permits", "2", "x"]),
    ];
    for (outer, inner) in possible {
        let ran = nested(outer, inner);
        assert_eq!(ran.out, "ran\n", "{outer:?} {inner:?}: {}", ran.err);
    }
    let ran = nested(&["run", "x"], &["run", "--no-wait", "--busy-code", "9", "x"]);
    assert_eq!(ran.code, 9, "who does not wait is told that it is busy: {}", ran.err);
    // What the environment says of a lease that is over refuses nothing.
    let mut tool = place.tool(["run", "x", "--", "true"]);
    let ran = Ran::from(
        tool.env("LEASEWARD_NAME", "x").env("LEASEWARD_FENCE", "7").output().expect("it starts"),
    );
    assert_eq!(ran.code, 0, "{}", ran.err);
}
