//! The tool on etcd: what it does there, and what it says when it cannot.

use leaseward_testkit::Etcd;
use rustix::process::Signal;

use crate::support::{Place, Ran, Running, signal, until};

/// Runs the tool on a store.
fn on(url: &str, arguments: &[&str]) -> Ran {
    Place::new().run([&["--store", url], arguments].concat())
}

#[test]
fn run_ls_show_and_break_work_as_on_every_store() {
    let server = Etcd::start();
    let url = &server.url();
    let ran = on(url, &["run", "deploy", "--", "sh", "-c", "echo $LEASEWARD_FENCE"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    assert!(ran.out.trim().parse::<u64>().is_ok_and(|fence| fence > 0), "{}", ran.out);
    assert_eq!(on(url, &["acquire", "kept", "--ttl", "1m"]).code, 0);
    let ran = on(url, &["ls"]);
    assert!(ran.out.contains("kept") && !ran.out.contains("deploy"), "{}", ran.out);
    let ran = on(url, &["show", "kept", "--json"]);
    assert!(ran.out.contains("\"ttl_ms\":60000"), "{}", ran.out);
    let ran = on(url, &["run", "--no-wait", "kept", "--", "true"]);
    assert_eq!(ran.code, 75, "{}", ran.err);
    assert_eq!(on(url, &["break", "kept", "--now", "--yes"]).code, 0);
    assert_eq!(on(url, &["run", "--no-wait", "kept", "--", "true"]).code, 0);
}

/// Both say the same, and the whole store is listed where names have no prefix.
#[test]
fn a_lock_of_etcdctl_has_no_known_expiry() {
    let server = Etcd::start();
    let url = &format!("{}?prefix=", server.url());
    let mut theirs = server.spawn_cli(&["lock", "deploy"]);
    let listed = || on(url, &["ls", "--json"]).out;
    until("etcdctl has it", || listed().contains("another program"));
    let listed = listed();
    for unknown in ["\"ttl_ms\":null", "\"remaining_ms\":null", "\"held_ms\":null"] {
        assert!(listed.contains(unknown), "{listed}");
    }
    let ran = on(url, &["run", "--no-wait", "deploy", "--", "true"]);
    assert_eq!(ran.code, 75, "{}", ran.err);
    assert!(
        ran.err.contains("another program") && ran.err.contains("no known expiry"),
        "{}",
        ran.err
    );
    theirs.kill().expect("it was alive");
    theirs.wait().expect("it ends");
}

/// Each command is a process of its own, and takes the lease over from the one before.
#[test]
fn a_handle_goes_from_process_to_process() {
    let server = Etcd::start();
    let url = &server.url();
    let place = Place::new();
    let ran = place.run(["--store", url, "acquire", "x", "--ttl", "30s", "--handle", "handle"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for _ in 0..2 {
        let ran = place.run(["--store", url, "renew", "--handle", "handle"]);
        assert_eq!(ran.code, 0, "{}", ran.err);
    }
    assert_eq!(on(url, &["run", "--no-wait", "x", "--", "true"]).code, 75);
    let ran = place.run(["--store", url, "release", "--handle", "handle"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(on(url, &["run", "--no-wait", "x", "--", "true"]).code, 0);
}

#[test]
fn a_dead_leader_is_followed() {
    let server = Etcd::start();
    let (place, url) = (Place::new(), server.url());
    let arguments = [
        "--store",
        &url,
        "elect",
        "boss",
        "--ttl",
        "2s",
        "--",
        "sh",
        "-c",
        "echo $$; exec sleep 1000",
    ];
    let mut first = Running::start(&mut place.tool(arguments));
    let _command: i32 = first.line().parse().expect("a process number");
    let mut second = Running::start(&mut place.tool(arguments));
    until("the second waits", || on(&url, &["show", "boss", "--json"]).out.contains("waited_ms"));
    signal(first.wrapper(), Signal::KILL);
    let _successor: i32 = second.line().parse().expect("a process number");
    signal(second.wrapper(), Signal::TERM);
    assert_eq!(second.end().code, 143);
}

#[test]
fn doctor_ends_with_0_on_a_good_cluster_and_with_1_on_a_full_one() {
    let server = Etcd::builder().members(3).start();
    let ran = on(&server.url(), &["doctor"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    assert!(ran.out.contains("exclusion    holds") && ran.out.contains("etcd 3."), "{}", ran.out);
    let full = Etcd::builder().arg("--quota-backend-bytes=100000").start();
    let url = full.url();
    assert_eq!(on(&url, &["acquire", "x", "--ttl", "1m"]).code, 0);
    let large = "x".repeat(40_000);
    until("it is full", || {
        let _ = std::panic::catch_unwind(|| full.cli(&["put", "large", &large]));
        full.cli(&["alarm", "list"]).contains("NOSPACE")
    });
    let ran = on(&url, &["doctor"]);
    assert_eq!(ran.code, 1, "{} {}", ran.out, ran.err);
    assert!(ran.out.contains("run out of space"), "{}", ran.out);
    let ran = on(&url, &["run", "y", "--", "true"]);
    assert_eq!(ran.code, 69, "{}", ran.err);
    assert!(ran.err.contains("etcd is full") && ran.err.contains("hint: "), "{}", ran.err);
}

#[test]
fn what_cannot_be_used_is_said_to_be_that() {
    let server = Etcd::builder().auth("hunter2").start();
    let address = &server.addresses()[0];
    let ran = on(&format!("etcd://root:wrong-secret@{address}"), &["ls"]);
    assert_eq!(ran.code, 69, "{}", ran.err);
    assert!(ran.err.contains("does not let this user in"), "{}", ran.err);
    assert!(ran.err.contains("hint: ") && !ran.err.contains("secret"), "{}", ran.err);
    let ran = on("etcd://127.0.0.1:1", &["ls"]);
    assert_eq!(ran.code, 69, "{}", ran.err);
    assert!(ran.err.contains("was not reached"), "{}", ran.err);
}
