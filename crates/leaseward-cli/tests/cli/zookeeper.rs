//! The tool on ZooKeeper: what it does there, and what it says when it cannot.

use leaseward_testkit::ZooKeeper;
use serde_json::{Value, json};

use crate::support::{Place, Ran, Running};

fn object(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {:?}", ran.out))
}

/// Runs the tool on a store.
fn on(url: &str, arguments: &[&str]) -> Ran {
    Place::new().run([&["--store", url], arguments].concat())
}

#[test]
fn run_ls_show_and_break_work_as_on_every_store() {
    let server = ZooKeeper::start();
    let (place, url) = (Place::new(), server.url("locks"));
    let script = "echo $LEASEWARD_FENCE; exec sleep 600";
    let run = ["run", "deploy", "--ttl", "2s", "--store", &url, "--", "sh", "-c", script];
    let mut held = Running::start(&mut place.tool(run));
    let fence: u64 = held.line().parse().expect("a fence");
    let listed = object(&on(&url, &["ls", "--json"]));
    assert_eq!((&listed[0]["name"], listed.as_array().map(Vec::len)), (&json!("deploy"), Some(1)));
    let shown = object(&on(&url, &["show", "deploy", "--json"]));
    assert_eq!(shown["holders"][0]["fence"], json!(fence), "{shown}");
    assert_eq!(on(&url, &["run", "deploy", "--no-wait", "--", "true"]).code, 75);
    let broken = on(&url, &["break", "deploy", "--now", "--yes"]);
    assert_eq!(broken.code, 0, "{}", broken.err);
    assert_eq!(held.end().code, 76, "its lease was broken");
    assert_eq!(on(&url, &["run", "deploy", "--no-wait", "--", "true"]).code, 0);
}

/// The lease outlives the process that took it, and another one gives it back.
#[test]
fn a_lease_is_acquired_by_one_process_and_broken_by_another() {
    let server = ZooKeeper::start();
    let url = server.url("locks");
    assert_eq!(on(&url, &["acquire", "kept", "--ttl", "1m"]).code, 0);
    let listed = on(&url, &["ls"]);
    assert!(listed.out.contains("kept"), "{}", listed.out);
    assert_eq!(on(&url, &["run", "--no-wait", "kept", "--", "true"]).code, 75);
    assert_eq!(on(&url, &["break", "kept", "--now", "--yes"]).code, 0);
    assert_eq!(on(&url, &["run", "--no-wait", "kept", "--", "true"]).code, 0);
}

#[test]
fn elect_leads_and_steps_down() {
    let server = ZooKeeper::start();
    let (place, url) = (Place::new(), server.url("locks"));
    let elect =
        ["elect", "leader", "--store", &url, "--", "sh", "-c", "echo leads; exec sleep 600"];
    let mut first = Running::start(&mut place.tool(elect));
    assert_eq!(first.line(), "leads");
    let shown = object(&on(&url, &["show", "leader", "--json"]));
    assert_eq!(shown["holders"].as_array().map(Vec::len), Some(1), "{shown}");
}

#[test]
fn doctor_says_what_it_is_and_what_is_missing() {
    let server = ZooKeeper::start();
    let ran = on(&server.url("locks"), &["doctor"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    for says in ["exclusion    holds", "every machine that reaches the store", "is alone"] {
        assert!(ran.out.contains(says), "{says}: {}", ran.out);
    }
    let url = server.url("locks");
    server.kill(0);
    let ran = on(&url, &["doctor"]);
    assert_ne!(ran.code, 0, "{}", ran.out);
}

#[test]
fn what_it_cannot_keep_is_refused_with_the_reason() {
    let server = ZooKeeper::start();
    let url = server.url("locks");
    let ran = on(&url, &["run", "x", "--min-hold", "1m", "--", "true"]);
    assert_ne!(ran.code, 0, "{}", ran.out);
    assert!(ran.err.contains("end with the session"), "{}", ran.err);
    let ran = on(&format!("{url}?prefix=x"), &["ls"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
}
