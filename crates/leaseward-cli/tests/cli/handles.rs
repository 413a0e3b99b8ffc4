//! Handles: a lease kept between commands.

use std::{fs, os::unix::fs::PermissionsExt};

use crate::support::{Place, Running, is_gone, until};

#[test]
fn a_handle_has_the_documented_shape() {
    let place = Place::new();
    let ran = place.run(["acquire", "deploy", "--ttl", "10m"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let handle: serde_json::Value = serde_json::from_str(&ran.out).expect("JSON");
    assert_eq!((&handle["name"], &handle["ttl_ms"]), (&"deploy".into(), &600_000.into()));
    assert!(handle["token"].is_string() && handle["fence"].is_u64(), "{handle}");
    assert_eq!(place.run(["run", "--no-wait", "deploy", "--", "true"]).code, 75, "it stays held");
}

#[test]
fn acquire_renew_release_through_a_file_only_its_owner_can_read() {
    let place = Place::new();
    let acquired = place.run(["acquire", "deploy", "--handle", "h"]);
    assert_eq!((acquired.code, acquired.out.as_str()), (0, ""), "{}", acquired.err);
    let mode = fs::metadata(place.path("h")).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    for _ in 0..2 {
        let renewed = place.run(["renew", "--handle", "h"]);
        assert_eq!((renewed.code, renewed.out.as_str()), (0, ""), "{}", renewed.err);
    }
    assert_eq!(place.run(["release", "--handle", "h"]).code, 0);
    assert!(!place.path("h").exists(), "a released handle is of no use");
    assert_eq!(place.run(["run", "--no-wait", "deploy", "--", "true"]).code, 0);
}

#[test]
fn a_handle_through_stdin() {
    let place = Place::new();
    let handle = place.run(["acquire", "deploy"]).out;
    let mut renewing = Running::start(&mut place.tool(["renew", "--handle", "-"]));
    renewing.tell(&handle);
    assert_eq!(renewing.end().code, 0);
    let mut releasing = Running::start(&mut place.tool(["release", "--handle", "-"]));
    releasing.tell(&handle);
    assert_eq!(releasing.end().code, 0);
    let mut again = Running::start(&mut place.tool(["release", "--handle", "-"]));
    again.tell(&handle);
    assert_eq!(again.end().code, 76);
}

#[test]
fn a_lease_that_ended_is_76_and_frees_nobody_elses() {
    let place = Place::new();
    let acquired = place.run(["acquire", "x", "--ttl", "100ms", "--handle", "h"]);
    assert_eq!(acquired.code, 0, "{}", acquired.err);
    let next = place.hold(&["x"], "read line");
    for verb in ["renew", "release"] {
        let late = place.run([verb, "--handle", "h"]);
        assert_eq!(late.code, 76, "{verb}: {}", late.err);
    }
    assert_eq!(place.run(["run", "--no-wait", "x", "--", "true"]).code, 75, "still the next one's");
    next.end();
}

#[test]
fn busy_leaves_no_file_behind() {
    let place = Place::new();
    let held = place.hold(&["x"], "read line");
    assert_eq!(place.run(["acquire", "x", "--no-wait", "--handle", "h"]).code, 75);
    assert!(!place.path("h").exists());
    held.end();
}

#[test]
fn a_file_with_something_in_it_is_not_overwritten() {
    let place = Place::new();
    fs::write(place.path("h"), "precious").expect("written");
    let ran = place.run(["acquire", "x", "--handle", "h"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert_eq!(fs::read_to_string(place.path("h")).expect("there"), "precious");
    assert_eq!(place.run(["ls", "--json"]).out, "[]\n");
}

#[test]
fn nobody_to_read_the_handle_means_no_lease() {
    let place = Place::new();
    let tool = env!("CARGO_BIN_EXE_leaseward");
    let ran = std::process::Command::new("sh")
        .args(["-c", &format!("{tool} acquire x > /dev/full")])
        .env("LEASEWARD_STORE", place.store())
        .output()
        .expect("a shell");
    assert_eq!(ran.status.code(), Some(1));
    assert_eq!(place.run(["ls", "--json"]).out, "[]\n");
}

#[test]
fn a_signal_while_acquire_waits_takes_nothing() {
    let place = Place::new();
    let held = place.hold(&["x"], "read line");
    let waiting = Running::start(&mut place.tool(["acquire", "x", "--handle", "h"]));
    until("somebody waits", || place.run(["show", "x", "--json"]).out.contains("waited_ms"));
    crate::support::signal(waiting.wrapper(), rustix::process::Signal::INT);
    let pid = waiting.wrapper();
    assert_eq!(waiting.end().code, 130);
    assert!(is_gone(pid) && !place.path("h").exists());
    held.end();
    assert_eq!(place.run(["ls", "--json"]).out, "[]\n");
}
