//! `break`: the holder is told, and it is written down.

use std::fs;

use serde_json::Value;

use crate::support::{Place, Ran, is_gone};

#[test]
fn a_broken_lease_ends_the_command_and_is_76() {
    let place = Place::new();
    let held = place.hold(&["--ttl", "2s", "x"], "exec sleep 1000");
    let command = held.command;
    let ran = place.run(["break", "x", "--yes"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, ""), "{}", ran.err);
    assert!(ran.err.contains("renewals") && ran.err.contains("`x` comes free"), "{}", ran.err);
    let ended = held.end();
    assert_eq!(ended.code, 76, "{}", ended.err);
    assert!(is_gone(command));
    assert!(ended.err.contains("broke"), "{}", ended.err);
}

#[test]
fn broken_at_once_the_name_is_free_and_the_danger_is_said() {
    let place = Place::new();
    let held = place.hold(&["--ttl", "2s", "x"], "exec sleep 1000");
    let ran = place.run(["break", "x", "--now", "--yes"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("only fences protect"), "{}", ran.err);
    assert_eq!(place.run(["run", "--no-wait", "x", "--", "true"]).code, 0);
    let ended = held.end();
    assert_eq!(ended.code, 76);
    assert!(ended.err.contains("`leaseward break --now`"), "{}", ended.err);
}

#[test]
fn every_break_is_written_down() {
    let place = Place::new();
    let held = place.hold(&["--ttl", "2s", "x"], "exec sleep 1000");
    let output = place.tool(["break", "x", "--yes"]).env("LEASEWARD_AUDIT", "audit.jsonl").output();
    assert_eq!(Ran::from(output.expect("starts")).code, 0);
    let text = fs::read_to_string(place.path("audit.jsonl")).expect("written");
    let line: Value = serde_json::from_str(&text).expect("one line of JSON");
    assert_eq!((&line["kind"], &line["name"]), (&"broken".into(), &"x".into()));
    assert!(line["fence"].is_u64() && line["hold_us"].is_u64(), "{line}");
    let message = line["message"].as_str().unwrap_or_default();
    let holder = format!(":{}; its renewals are refused", held.wrapper());
    assert!(message.starts_with("was held by ") && message.ends_with(&holder), "{line}");
    held.end();
}

#[test]
fn what_cannot_be_written_down_is_not_broken() {
    let place = Place::new();
    let held = place.hold(&["x"], "read line; exit 4");
    let output =
        place.tool(["break", "x", "--yes"]).env("LEASEWARD_AUDIT", "no/such/folder/a").output();
    let ran = Ran::from(output.expect("starts"));
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert_eq!(held.end().code, 4, "the holder noticed nothing");
}

#[test]
fn nothing_to_break_is_fine() {
    let ran = Place::with_a_store().run(["break", "x", "--yes"]);
    assert_eq!(ran.code, 0);
    assert!(ran.err.contains("nothing to break"), "{}", ran.err);
}
