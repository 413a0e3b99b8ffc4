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
fn doctor_ends_with_1_where_memory_is_used_up() {
    let server = RedisServer::builder().appendonly(Fsync::Always).start();
    server.cli(&["config", "set", "maxmemory", "1"]);
    let ran = on(&server.url(), &["doctor"]);
    assert_eq!((ran.code, ran.err.as_str()), (1, ""), "{}", ran.out);
    assert!(ran.out.contains("danger: `maxmemory` is used up"), "{}", ran.out);
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
fn what_is_not_known_of_a_lock_is_not_zero() {
    let server = RedisServer::start();
    let (place, url) = (Place::new(), server.url());
    server.cli(&["set", "lock:deploy", "another-librarys-token"]);
    server.cli(&["set", "lock:other", "another-librarys-token", "px", "3600000"]);
    let listed = object(&on(&url, &["ls", "--json"]));
    for (at, name) in ["deploy", "other"].into_iter().enumerate() {
        let shown = object(&on(&url, &["show", name, "--json"]));
        for row in [&listed[at], &shown["holders"][0]] {
            assert_eq!(row["name"], name, "{row}");
            for unknown in ["fence", "ttl_ms", "held_ms"] {
                assert_eq!(row.get(unknown), Some(&Value::Null), "{unknown}: {row}");
            }
            assert_eq!(row["remaining_ms"].is_u64(), name == "other", "{row}");
        }
        let shown = on(&url, &["show", name]).out;
        let row = shown.lines().find(|line| line.contains("another library")).expect("a holder");
        assert_eq!(row.matches(" - ").count() + usize::from(row.trim_end().ends_with(" -")), 4);
        assert!(!row.contains("0ms"), "{row}");
    }
    let happened = on(&url, &["events", "--json"]).out;
    assert_eq!(happened.matches(r#""fence":null"#).count(), 2, "{happened}");
    assert!(!on(&url, &["events"]).out.contains("fence 0"));

    let busy = on(&url, &["run", "deploy", "--no-wait", "--", "true"]);
    assert!(
        busy.err.contains("held by a client of another library, no known expiry\n"),
        "{}",
        busy.err
    );
    let waited = on(&url, &["run", "deploy", "--wait", "2s", "--", "true"]);
    assert!(waited.err.contains("held by a client of another library\n"), "{}", waited.err);
    let told =
        "error: `deploy` was not ours within 2s: `deploy` is held by a client of another library";
    assert!(waited.err.contains(told), "{}", waited.err);

    let breaking = ["break", "deploy", "--now", "--yes", "--store", &url];
    let broken = place.tool(breaking).env("LEASEWARD_AUDIT", "audit.jsonl").output();
    assert_eq!(Ran::from(broken.expect("starts")).code, 0);
    let line = std::fs::read_to_string(place.path("audit.jsonl")).expect("written");
    assert!(line.contains("another library; freed at once"), "{line}");
    assert!(!line.contains("fence") && !line.contains("hold_us"), "neither is known: {line}");
}

#[test]
fn a_name_that_cannot_be_read_is_one_line_of_many() {
    let server = RedisServer::start();
    server.cli(&["set", "lock:a", "token", "px", "3600000"]);
    server.cli(&["zadd", "leaseward:q:lock:b", "1", "x"]);
    let ran = on(&server.url(), &["ls"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    let rows: Vec<_> = ran.out.lines().skip(1).collect();
    assert!(rows[0].starts_with('a') && rows[0].contains("another library"), "{}", ran.out);
    assert!(rows[1].starts_with('b') && rows[1].contains("unreadable"), "{}", ran.out);
    let ran = on(&server.url(), &["show", "b"]);
    assert_eq!(ran.code, 69, "{}", ran.out);
    assert!(ran.err.contains("`b` cannot be read") && ran.err.contains("hint: "), "{}", ran.err);
}

/// Starts `run` with a lease of three seconds on a command that does not end by itself.
fn held_at(place: &Place, url: &str) -> Running {
    let script = ["sh", "-c", "echo up; exec sleep 600"];
    let run = ["run", "deploy", "--ttl", "3s", "--store", url, "--"];
    let mut held = Running::start(&mut place.tool([&run[..], &script].concat()));
    assert_eq!(held.line(), "up");
    held
}

#[test]
fn a_lease_that_a_dead_server_cannot_renew_is_lost() {
    let (server, place) = (RedisServer::start(), Place::new());
    let held = held_at(&place, &server.url());
    server.kill();
    let ran = held.end();
    assert_eq!(ran.code, 76, "{}", ran.err);
    assert!(ran.err.starts_with("error: the lease on `deploy` was lost"), "{}", ran.err);
    assert!(ran.err.contains("\nhint: a longer `--ttl`"), "{}", ran.err);
    assert_eq!(ran.err.lines().count(), 2, "said once: {}", ran.err);
}

#[test]
fn a_lease_that_a_server_forgot_is_a_matter_for_doctor() {
    let (server, place) = (RedisServer::start(), Place::new());
    let held = held_at(&place, &server.url());
    server.kill();
    server.restart();
    let ran = held.end();
    assert_eq!(ran.code, 76, "{}", ran.err);
    assert!(ran.err.contains("the store says it is no longer ours"), "{}", ran.err);
    assert!(ran.err.contains("\nhint: ") && ran.err.contains("`leaseward doctor`"), "{}", ran.err);
}

/// Whether anybody has a connection to a port, as the kernel sees it.
fn is_connected(port: u16) -> bool {
    const ESTABLISHED: &str = "01";
    let port = format!(":{port:04X}");
    let table = std::fs::read_to_string("/proc/net/tcp").expect("linux tells");
    table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).any(|line| {
        line.get(2).is_some_and(|there| there.ends_with(&port)) && line[3] == ESTABLISHED
    })
}

#[test]
fn a_loss_is_said_before_the_store_is_waited_for() {
    let (server, place) = (RedisServer::start(), Place::new());
    let mut held = held_at(&place, &format!("{}?timeout=1m", server.url()));
    // It answers nothing, and nobody can tell it from one that is about to answer.
    server.pause();
    assert!(held.err_line().starts_with("error: the lease on `deploy` was lost"));
    assert!(is_connected(server.port()), "it waited for an answer, gave up, and then said so");
    server.resume();
    assert_eq!(held.end().code, 76);
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
