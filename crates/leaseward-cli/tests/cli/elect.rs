//! `elect`: one leader at a time, and again after a loss.

use rustix::process::Signal;

use crate::support::{Place, Running, content, is_gone, signal, until};

#[test]
fn the_command_runs_while_leading_and_its_code_is_ours() {
    let place = Place::new();
    let ran = place.run(["elect", "boss", "--", "sh", "-c", "echo $LEASEWARD_NAME; exit 3"]);
    assert_eq!((ran.code, ran.out.as_str()), (3, "boss\n"), "{}", ran.err);
    assert_eq!(place.run(["ls", "--json"]).out, "[]\n", "it resigned");
}

#[test]
fn after_a_loss_it_campaigns_again() {
    let place = Place::new();
    let script = "if [ -s first ]; then echo again; exit 5; fi; echo $$ > first; exec sleep 1000";
    let mut leading =
        Running::start(&mut place.tool(["elect", "boss", "--ttl", "1s", "--", "sh", "-c", script]));
    let first: i32 = content(&place.path("first")).trim().parse().expect("a process number");
    assert_eq!(place.run(["break", "boss", "--yes"]).code, 0);
    assert_eq!(leading.line(), "again");
    assert!(is_gone(first), "the first term was over before the second began");
    assert_eq!(leading.end().code, 5);
}

#[test]
fn once_means_once() {
    let place = Place::new();
    let script = "echo up; exec sleep 1000";
    let arguments =
        ["elect", "boss", "--once", "--ttl", "1s", "--value", "here", "--", "sh", "-c", script];
    let mut leading = Running::start(&mut place.tool(arguments));
    assert_eq!(leading.line(), "up");
    assert!(place.run(["show", "boss", "--json"]).out.contains("\"value\":\"here\""));
    assert_eq!(place.run(["break", "boss", "--yes"]).code, 0);
    assert_eq!(leading.end().code, 76);
}

#[test]
fn a_dead_leader_is_followed() {
    let place = Place::new();
    let arguments = ["elect", "boss", "--ttl", "1s", "--", "sh", "-c", "echo $$; exec sleep 1000"];
    let mut first = Running::start(&mut place.tool(arguments));
    let command: i32 = first.line().parse().expect("a process number");
    let mut second = Running::start(&mut place.tool(arguments));
    until("the second waits", || place.run(["show", "boss", "--json"]).out.contains("waited_ms"));
    signal(first.wrapper(), Signal::KILL);
    let successor: i32 = second.line().parse().expect("a process number");
    assert!(is_gone(command) && !is_gone(successor));
    signal(second.wrapper(), Signal::TERM);
    assert_eq!(second.end().code, 143);
}

#[test]
fn a_signal_that_comes_while_leadership_is_lost_ends_it() {
    let place = Place::new();
    let script =
        "trap 'echo asked; [ $n ] && exit; n=1' TERM; echo up; while :; do sleep 0.05; done";
    let arguments = ["elect", "boss", "--ttl", "20s", "--grace", "9s", "--", "sh", "-c", script];
    let mut leading = Running::start(&mut place.tool(arguments));
    assert_eq!(leading.line(), "up");
    assert_eq!(place.run(["break", "boss", "--yes"]).code, 0);
    assert_eq!(leading.line(), "asked", "leadership is lost");
    signal(leading.wrapper(), Signal::TERM);
    let ran = leading.end();
    assert_eq!(ran.code, 143, "{}", ran.err);
    assert!(!ran.out.contains("up"), "it campaigned again");
}
