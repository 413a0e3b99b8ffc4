//! The child never outlives the lease: also when the wrapper is killed or frozen.

use rustix::process::Signal;

use crate::support::{Place, Running, gone_test, is_gone, signal, signal_group, state, until};

/// Does not listen to SIGTERM, and neither does what it starts: only SIGKILL ends it.
const STUBBORN: &str = "trap '' TERM; sleep 1000 & echo $!; wait";

/// Starts somebody who waits for the name and, having it, says whether these processes were gone by then.
fn successor(place: &Place, gone: &[i32]) -> Running {
    let test: Vec<String> = gone.iter().map(|pid| gone_test(*pid)).collect();
    let script = format!("if {}; then echo gone; else echo alive; fi", test.join(" && "));
    let tool = Running::start(&mut place.tool(["run", "x", "--", "sh", "-c", &script]));
    until("the successor waits", || place.run(["show", "x", "--json"]).out.contains("waited_ms"));
    tool
}

#[test]
fn a_killed_wrapper_leaves_no_command_behind_when_the_lease_ends() {
    let place = Place::new();
    let mut held = place.hold(&["--ttl", "2s", "x"], STUBBORN);
    let grandchild: i32 = held.line().parse().expect("a process number");
    let command = held.command;
    let mut next = successor(&place, &[command, grandchild]);
    signal(held.wrapper(), Signal::KILL);
    assert_eq!(next.line(), "gone", "nothing of the old holder ran when the next one started");
    assert_eq!(next.end().code, 0);
    assert_eq!(held.end().code, -1);
}

#[test]
fn a_killed_wrapper_lets_the_command_clean_up() {
    let place = Place::new();
    let script = "trap 'echo cleaned > cleaned; exit' TERM; echo up; while :; do read l; done";
    let mut held = place.hold(&["--ttl", "1m", "x"], script);
    assert_eq!(held.line(), "up");
    let command = held.command;
    signal(held.wrapper(), Signal::KILL);
    until("the command is gone", || is_gone(command));
    assert!(place.path("cleaned").exists(), "it got SIGTERM, long before its lease ended");
}

#[test]
fn a_frozen_wrapper_cannot_keep_the_command_alive() {
    let place = Place::new();
    let mut held = place.hold(&["--ttl", "2s", "x"], STUBBORN);
    let grandchild: i32 = held.line().parse().expect("a process number");
    let mut next = successor(&place, &[held.command, grandchild]);
    signal(held.wrapper(), Signal::STOP);
    assert_eq!(next.line(), "gone", "nothing of the old holder ran when the next one started");
    assert_eq!(next.end().code, 0);
    signal(held.wrapper(), Signal::CONT);
    let ran = held.end();
    assert_eq!(ran.code, 76, "{}", ran.err);
    assert!(ran.err.contains("lease on `x` was lost"), "{}", ran.err);
}

#[test]
fn a_killed_watchdog_is_replaced() {
    let place = Place::new();
    let mut held = place.hold(&["--ttl", "2s", "x"], "read line; exit 5");
    let first = held.watchdog().expect("there is one");
    signal(first, Signal::KILL);
    until("there is another one", || held.watchdog().is_some_and(|next| next != first));
    held.tell("go");
    assert_eq!(held.end().code, 5);
}

#[test]
fn signals_to_the_commands_group_do_not_reach_the_watchdog() {
    let place = Place::new();
    let mut held = place.hold(&["x"], "trap '' TERM INT HUP; echo up; read line; exit 5");
    assert_eq!(held.line(), "up");
    let watchdog = held.watchdog().expect("there is one");
    for sent in [Signal::TERM, Signal::INT, Signal::HUP] {
        signal_group(held.command, sent);
        signal(watchdog, sent);
    }
    assert!(!is_gone(watchdog));
    assert_eq!(held.end().code, 5);
    assert!(is_gone(watchdog), "it ends with the command");
}

#[test]
fn a_killed_group_is_137_and_the_name_is_free_at_once() {
    let place = Place::new();
    let held = place.hold(&["--ttl", "1h", "x"], "sleep 1000 & wait");
    signal_group(held.command, Signal::KILL);
    assert_eq!(held.end().code, 137);
    assert_eq!(place.run(["run", "--no-wait", "x", "--", "true"]).code, 0);
}

#[test]
fn a_stopped_command_is_still_ended_with_its_lease() {
    let place = Place::new();
    let held = place.hold(&["--ttl", "1s", "x"], "kill -STOP $$; echo resumed");
    until("the command has stopped", || state(held.command) == Some('T'));
    let command = held.command;
    signal(held.wrapper(), Signal::KILL);
    until("the command is gone", || is_gone(command));
}

#[test]
fn a_lease_that_was_handed_over_is_long_enough_before_the_command_starts() {
    let place = Place::new();
    let first = place.hold(&["--ttl", "1h", "x"], "read line");
    let script = "sleep 0.3; exit 6";
    let arguments = ["run", "--ttl", "1h", "x", "--", "sh", "-c", script];
    let second = Running::start(&mut place.tool(arguments));
    until("somebody waits", || place.run(["show", "x", "--json"]).out.contains("waited_ms"));
    first.end();
    let ran = second.end();
    assert_eq!(ran.code, 6, "{}", ran.err);
}

#[test]
fn a_renewed_lease_lets_the_command_run_longer_than_its_ttl() {
    let place = Place::new();
    let script = "i=0; while [ $i -lt 25 ]; do sleep 0.1; i=$((i+1)); done; exit 6";
    let ran = place.hold(&["--ttl", "1s", "x"], script).end();
    assert_eq!(ran.code, 6, "{}", ran.err);
}
