//! The tool on a Redis server: what it does there, and what it says when it cannot.

use leaseward_testkit::{Fsync, PATIENCE, RedisServer, Sentinels, eventually};
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
fn doctor_ends_with_1_where_locks_may_be_evicted() {
    let server = RedisServer::builder().maxmemory(64 << 20, "allkeys-lru").start();
    let ran = on(&server.url(), &["doctor"]);
    assert_eq!((ran.code, ran.err.as_str()), (1, ""), "{}", ran.out);
    assert!(ran.out.contains("danger: `maxmemory-policy` is `allkeys-lru`"), "{}", ran.out);
    assert!(ran.out.contains("\n1 danger found"), "{}", ran.out);

    let ran = on(&server.url(), &["doctor", "--json"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    let found = object(&ran);
    assert_eq!((&found["dangers"], &found["error"]), (&json!(1), &Value::Null), "{found}");
    let worst = &found["findings"][0];
    assert_eq!(worst["severity"], "danger", "{found}");
    assert!(worst["what"].as_str().is_some_and(|what| what.contains("allkeys-lru")), "{found}");
    let promised = &found["guarantee"];
    assert_eq!(
        (&promised["exclusion"], &promised["reach"]),
        (&json!("within_bounds"), &json!("network"))
    );
    assert_eq!(found["fence_lead_ms"], json!(0), "{found}");
}

#[test]
fn doctor_ends_with_0_on_a_server_made_for_locks() {
    let server = RedisServer::builder().appendonly(Fsync::Always).start();
    let ran = on(&server.url(), &["doctor"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    for says in ["exclusion    holds", "every machine that reaches the store", "note: it is Redis"]
    {
        assert!(ran.out.contains(says), "{says}: {}", ran.out);
    }
    assert!(ran.out.ends_with("\nno danger found, 1 note\n"), "{}", ran.out);
}

#[test]
fn run_ls_show_and_break_work_as_on_every_store() {
    let server = RedisServer::start();
    let (place, url) = (Place::new(), server.url());
    let run = [
        "run",
        "deploy",
        "--ttl",
        "2s",
        "--store",
        &url,
        "--",
        "sh",
        "-c",
        "echo $LEASEWARD_FENCE; exec sleep 600",
    ];
    let mut held = Running::start(&mut place.tool(run));
    let fence: u64 = held.line().parse().expect("a fence");
    let listed = object(&on(&url, &["ls", "--json"]));
    assert_eq!((&listed[0]["name"], listed.as_array().map(Vec::len)), (&json!("deploy"), Some(1)));
    let shown = object(&on(&url, &["show", "deploy", "--json"]));
    assert_eq!(shown["holders"][0]["fence"], json!(fence), "{shown}");
    let busy = on(&url, &["run", "deploy", "--no-wait", "--", "true"]);
    assert_eq!(busy.code, 75, "{}", busy.err);
    let broken = on(&url, &["break", "deploy", "--now", "--yes"]);
    assert_eq!(broken.code, 0, "{}", broken.err);
    assert_eq!(held.end().code, 76, "its lease was broken");
    assert_eq!(on(&url, &["run", "deploy", "--no-wait", "--", "true"]).code, 0);
}

#[test]
fn a_lock_of_another_library_is_shown_and_waited_for() {
    let server = RedisServer::start();
    let (place, url) = (Place::new(), server.url());
    server.cli(&["set", "lock:deploy", "another-librarys-token"]);
    let listed = on(&url, &["ls"]);
    assert!(listed.out.contains("another library"), "{}", listed.out);
    // Nobody knows since when, and it has no fence.
    let row = listed.out.lines().last().unwrap_or_default().trim_end();
    assert!(row.ends_with('-') && !row.contains("0ms"), "{row}");
    assert!(!listed.out.contains("another-librarys-token"), "a token is a secret: {}", listed.out);
    let mut waiting =
        Running::start(&mut place.tool(["run", "deploy", "--store", &url, "--", "echo", "mine"]));
    eventually("it waits", PATIENCE, || {
        (server.cli(&["llen", "leaseward:q:lock:deploy"]) == "2").then_some(())
    });
    server.cli(&["del", "lock:deploy"]);
    assert_eq!(waiting.line(), "mine");
    assert_eq!(waiting.end().code, 0);
}

#[test]
fn what_cannot_be_used_is_said_with_what_to_do() {
    let server = RedisServer::builder().requirepass("hunter2").start();
    let sentinels = Sentinels::start(1);
    let (address, url) = (server.address(), server.url());
    let sentinel = sentinels.sentinel_addresses()[0].clone();
    let replica = sentinels.replicas()[0].url();
    let table = [
        (format!("redis://:wrong@{address}"), 69, "refused user and password"),
        (format!("redis://{address}"), 69, "asks for a password"),
        (format!("{url}/99"), 69, "no database 99"),
        (format!("{url}?prefx=a"), 2, "no setting `prefx`"),
        (format!("redis://{sentinel}"), 69, "is a Sentinel"),
        (replica, 69, "is a replica"),
    ];
    for (url, code, says) in table {
        let ran = on(&url, &["run", "x", "--", "true"]);
        assert_eq!(ran.code, code, "{says}: {}", ran.err);
        assert!(ran.err.starts_with("error: ") && ran.err.contains(says), "{says}: {}", ran.err);
        assert!(ran.err.contains("\nhint: ") && ran.out.is_empty(), "{says}: {}", ran.err);
        assert!(!ran.err.contains("hunter2") && !ran.err.contains("wrong"), "{}", ran.err);
    }
    server.kill();
    let ran = on(&url, &["run", "x", "--", "true"]);
    assert_eq!(ran.code, 69, "{}", ran.err);
    assert!(ran.err.contains("was not reached") && ran.err.contains("\nhint: "), "{}", ran.err);
    assert_eq!(ran.err.matches(&address).count(), 1, "said once: {}", ran.err);
}
