//! The audit file: what takes, keeps and ends leases, or works on jobs, is written down.

use std::{collections::BTreeSet, fs, process::Command};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Place, Ran, Running, signal};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn audited(place: &Place, arguments: &[&str]) -> Command {
    let mut tool = place.tool(arguments);
    tool.env("LEASEWARD_AUDIT", "audit.jsonl");
    tool.env("TRACEPARENT", format!("00-{TRACE}-00f067aa0ba902b7-01"));
    tool
}

/// Runs the tool, and answers with the lines it wrote down.
fn lines_of(place: &Place, arguments: &[&str]) -> Vec<Value> {
    let ran = Ran::from(audited(place, arguments).output().expect("the tool starts"));
    assert_eq!(ran.code, 0, "{arguments:?}: {}", ran.err);
    written(place)
}

/// The lines since the last look.
fn written(place: &Place) -> Vec<Value> {
    let text = fs::read_to_string(place.path("audit.jsonl")).unwrap_or_default();
    let _ = fs::remove_file(place.path("audit.jsonl"));
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn kinds(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["kind"].as_str().expect("a kind")).collect()
}

#[test]
fn every_verb_writes_down_what_it_did() {
    let place = Place::new();
    let cases: [(&[&str], &[&str]); 7] = [
        (&["run", "x", "--", "true"], &["acquired", "released"]),
        (&["run", "a", "b", "--", "true"], &["acquired", "acquired", "released", "released"]),
        (&["elect", "x", "--", "true"], &["acquired", "released"]),
        (&["acquire", "x", "--handle", "h"], &["acquired"]),
        (&["renew", "--handle", "h"], &["renewed"]),
        (&["break", "x", "--now", "--yes"], &["broken"]),
        (&["acquire", "y", "--handle", "i"], &["acquired"]),
    ];
    for (arguments, expected) in cases {
        let lines = lines_of(&place, arguments);
        assert_eq!(kinds(&lines), expected, "{arguments:?}");
        let processes: BTreeSet<_> = lines.iter().map(|line| line["process"].as_str()).collect();
        assert!(processes.len() == 1 && !processes.contains(&None), "{lines:?}");
        for line in &lines {
            assert_eq!((&line["trace_id"], &line["holder"]), (&TRACE.into(), &line["process"]));
            assert!(line["by"].as_str().is_some_and(|by| by.contains("uid ")), "{line}");
        }
    }
    assert_eq!(kinds(&lines_of(&place, &["release", "--handle", "i"])), ["renewed", "released"]);
}

#[test]
fn a_run_that_is_busy_or_ended_by_a_signal_is_written_down() {
    let place = Place::new();
    let mut run = audited(&place, &["run", "x", "--", "sh", "-c", "echo up; exec sleep 600"]);
    let mut running = Running::start(&mut run);
    assert_eq!(running.line(), "up");
    let busy = audited(&place, &["run", "--no-wait", "x", "--", "true"]).output();
    assert_eq!(Ran::from(busy.expect("the tool starts")).code, 75);
    signal(running.wrapper(), Signal::TERM);
    assert_eq!(running.end().code, 143);
    assert_eq!(kinds(&written(&place)), ["acquired", "refused", "released"]);
}

#[test]
fn jobs_are_written_down() {
    let place = Place::new();
    let added = audited(&place, &["queue", "add", "1"]).output().expect("the tool starts");
    assert_eq!(Ran::from(added).code, 0);
    let lines = lines_of(&place, &["queue", "work", "--until-empty", "--", "true"]);
    assert_eq!(kinds(&lines), ["started", "done"]);
    assert!(lines.iter().all(|line| line["job"].is_string() && line["process"].is_string()));
}

#[test]
fn what_cannot_be_written_down_is_not_done_and_looking_is_always_fine() {
    let place = Place::with_a_store();
    for (arguments, code) in [
        (&["run", "x", "--", "touch", "done"][..], 2),
        (&["acquire", "x"], 2),
        (&["elect", "x", "--", "touch", "done"], 2),
        (&["queue", "work", "--until-empty", "--", "touch", "done"], 2),
        (&["ls"], 0),
        (&["doctor"], 0),
    ] {
        let output = place.tool(arguments).env("LEASEWARD_AUDIT", "no/such/folder/a").output();
        let ran = Ran::from(output.expect("the tool starts"));
        assert_eq!(ran.code, code, "{arguments:?}: {}", ran.err);
        assert_eq!(ran.err.contains("audit"), code == 2, "{arguments:?}: {}", ran.err);
    }
    assert!(!place.path("done").exists());
}
