//! Signals: passed on to the whole group, obeyed while waiting, left ignored where they were.

use std::{fs, process::Stdio};

use rustix::process::Signal;

use crate::support::{Place, Ran, Running, is_gone, signal, until};

#[test]
fn a_signal_reaches_the_whole_group_and_the_command_decides() {
    let place = Place::new();
    let grandchild = "(trap 'echo got > grandchild; exit' TERM; echo ready > ready; while :; do read l < fifo; done) &";
    let script = format!(
        "mkfifo fifo; trap 'wait; exit 9' TERM; {grandchild} while ! [ -s ready ]; do :; done; echo up; wait"
    );
    let mut running = place.hold(&["x"], &script);
    assert_eq!(running.line(), "up");
    signal(running.wrapper(), Signal::TERM);
    let ran = running.end();
    assert_eq!(ran.code, 9, "{}", ran.err);
    assert_eq!(fs::read_to_string(place.path("grandchild")).expect("it heard"), "got\n");
    assert_eq!(place.run(["ls", "--json"]).out, "[]\n", "the name was given back");
}

#[test]
fn a_command_ended_by_the_signal_is_128_and_its_number() {
    let place = Place::new();
    for (sent, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let running = place.hold(&["x"], "exec sleep 1000");
        let command = running.command;
        signal(running.wrapper(), sent);
        assert_eq!(running.end().code, code);
        assert!(is_gone(command));
    }
    assert_eq!(place.run(["run", "--no-wait", "x", "--", "true"]).code, 0);
}

#[test]
fn user_signals_are_passed_on() {
    let place = Place::new();
    let script =
        "trap 'echo usr1' USR1; trap 'echo usr2; exit 4' USR2; echo up; while :; do read l; done";
    let mut running = place.hold(&["x"], script);
    assert_eq!(running.line(), "up");
    signal(running.wrapper(), Signal::USR1);
    assert_eq!(running.line(), "usr1");
    signal(running.wrapper(), Signal::USR2);
    assert_eq!(running.line(), "usr2");
    assert_eq!(running.end().code, 4);
}

#[test]
fn a_signal_while_waiting_leaves_the_queue() {
    let place = Place::new();
    let held = place.hold(&["x"], "read line");
    let waiting = Running::start(&mut place.tool(["run", "x", "--", "touch", "never"]));
    let queue = || place.run(["show", "x", "--json"]).out;
    until("somebody waits", || queue().contains("waited_ms"));
    signal(waiting.wrapper(), Signal::TERM);
    assert_eq!(waiting.end().code, 143);
    assert!(!queue().contains("waited_ms"), "{}", queue());
    held.end();
    assert!(!place.path("never").exists());
}

#[test]
fn what_was_ignored_stays_ignored_for_the_command() {
    let place = Place::new();
    let tool = env!("CARGO_BIN_EXE_leaseward");
    let script = format!("trap '' HUP; exec {tool} run x -- sh -c 'kill -HUP $$; echo alive'");
    let output = std::process::Command::new("sh")
        .args(["-c", &script])
        .env("LEASEWARD_STORE", place.store())
        .stdin(Stdio::null())
        .output();
    let ran = Ran::from(output.expect("a shell"));
    assert_eq!((ran.code, ran.out.as_str()), (0, "alive\n"), "{}", ran.err);
}
