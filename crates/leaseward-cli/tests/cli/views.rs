//! `ls`, `show`, completions, manual: what people and programs read.

use serde_json::Value;

use crate::support::{Place, Running, until};

#[test]
fn ls_json_is_an_array_of_the_documented_objects() {
    let place = Place::with_a_store();
    assert_eq!(place.run(["ls", "--json"]).out, "[]\n");
    let held = place.hold(&["--ttl", "1m", "deploy"], "read line");
    let out = place.run(["ls", "--json"]).out;
    let rows: Value = serde_json::from_str(&out).expect("JSON");
    let row = &rows[0];
    assert_eq!((&row["name"], &row["mode"]), (&"deploy".into(), &"exclusive".into()));
    assert_eq!((&row["ttl_ms"], &row["waiters"]), (&60_000.into(), &0.into()));
    assert!(row["holder"].as_str().is_some_and(|who| who.ends_with(&held.wrapper().to_string())));
    assert!(row["fence"].is_u64() && row["held_ms"].is_u64() && row["remaining_ms"].is_u64());
    held.end();
}

#[test]
fn ls_for_people_has_columns_and_no_colour_off_a_terminal() {
    let place = Place::new();
    let held = place.hold(&["table:1"], "read line");
    let ran = place.run(["ls", "--prefix", "table:"]);
    assert!(ran.out.starts_with("NAME") && ran.out.contains("table:1"), "{}", ran.out);
    assert!(!ran.out.contains('\x1b'), "{:?}", ran.out);
    let none = place.run(["ls", "--prefix", "other:"]);
    assert_eq!((none.code, none.out.as_str()), (0, ""));
    assert!(none.err.contains("nothing that begins with `other:`"), "{}", none.err);
    held.end();
}

#[test]
fn show_lists_waiters_in_order() {
    let place = Place::with_a_store();
    assert_eq!(place.run(["show", "x"]).out, "x is free\n");
    let held = place.hold(&["x"], "read line");
    let shown = || -> Value {
        serde_json::from_str(&place.run(["show", "x", "--json"]).out).expect("JSON")
    };
    let mut waiting = Vec::new();
    for many in 1..=2 {
        waiting.push(Running::start(&mut place.tool(["run", "x", "--", "true"])));
        until("one more waits", || shown()["waiters"].as_array().map(Vec::len) == Some(many));
    }
    let view = shown();
    for (at, waiter) in waiting.iter().enumerate() {
        let who = view["waiters"][at]["who"].as_str().unwrap_or_default().to_owned();
        assert!(who.ends_with(&waiter.wrapper().to_string()), "{view}");
    }
    let people = place.run(["show", "x"]).out;
    assert!(people.contains("x is held by") && people.contains("2 waiting"), "{people}");
    held.end();
    assert!(waiting.into_iter().all(|waiter| waiter.end().code == 0));
}

#[test]
fn completions_and_manual_are_there() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let ran = place.run(["completions", shell]);
        assert!(ran.code == 0 && ran.out.contains("leaseward"), "{shell}");
        assert!(!ran.out.contains("__watch"), "hidden parts stay hidden");
    }
    assert!(place.run(["man"]).out.starts_with(".ie"), "a page");
    assert_eq!(place.run(["man", "--dir", "pages"]).code, 0);
    assert!(place.path("pages/leaseward-run.1").exists());
}

#[test]
fn every_command_has_help_with_examples() {
    let place = Place::new();
    for verb in [
        "run",
        "acquire",
        "renew",
        "release",
        "ls",
        "show",
        "events",
        "elect",
        "break",
        "doctor",
        "demo",
        "completions",
        "man",
    ] {
        let ran = place.run([verb, "--help"]);
        assert!(ran.code == 0 && ran.out.contains("Examples:"), "{verb}: {}", ran.out);
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let place = Place::new();
    let tool = env!("CARGO_BIN_EXE_leaseward");
    let output = std::process::Command::new("sh")
        .args(["-c", &format!("{tool} completions bash | true")])
        .env("LEASEWARD_STORE", place.store())
        .output()
        .expect("a shell");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
