//! `events`: what other processes do.

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Place, Running, signal};

#[test]
fn how_things_stand_is_told_first() {
    let place = Place::new();
    let held = place.hold(&["x"], "read line");
    let ran = place.run(["events", "--json"]);
    let line: Value = serde_json::from_str(&ran.out).expect("one line of JSON");
    assert_eq!((&line["what"], &line["name"]), (&"held".into(), &"x".into()));
    assert!(place.run(["events"]).out.contains("held"), "for people too");
    held.end();
}

#[test]
fn what_another_process_does_is_seen() {
    let place = Place::new();
    let witness = place.hold(&["seen-first"], "read line");
    let mut events = Running::start(&mut place.tool(["events", "--follow", "--json"]));
    assert!(events.line().contains("seen-first"));
    // Held until it was seen: where nothing is pushed, short holds fall between two snapshots.
    let held = place.hold(&["x"], "read line");
    let mut seen = |what: &str| loop {
        let line = events.line();
        let event: Value = serde_json::from_str(&line).expect("JSON");
        if event["name"] == "x" && event["what"] == what {
            return event;
        }
    };
    let granted = seen("granted");
    assert!(granted["fence"].is_u64() && granted["at_us"].is_u64(), "{granted}");
    assert!(granted["who"].as_str().is_some_and(|who| who.ends_with(&held.wrapper().to_string())));
    held.end();
    seen("released");
    signal(events.wrapper(), Signal::INT);
    assert_eq!(events.end().code, 130);
    witness.end();
}
