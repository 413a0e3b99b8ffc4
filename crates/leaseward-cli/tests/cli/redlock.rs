//! The tool on five Redis servers that decide by majority: what it does there, and what it says when it cannot.

use leaseward_testkit::{Fsync, PATIENCE, RedisServer, eventually};
use serde_json::{Value, json};

use crate::support::{Place, Ran, Running};

fn object(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {:?}", ran.out))
}

/// Five servers that forget nothing, and their URL.
fn nodes() -> (Vec<RedisServer>, String) {
    start(|| RedisServer::builder().appendonly(Fsync::Always).start())
}

fn start(one: impl Fn() -> RedisServer) -> (Vec<RedisServer>, String) {
    let nodes: Vec<_> = (0..5).map(|_| one()).collect();
    let addresses: Vec<_> = nodes.iter().map(RedisServer::address).collect();
    // Far longer than a node needs: this machine may be busy.
    let url = format!("redlock://{}?timeout=5s", addresses.join(","));
    (nodes, url)
}

/// Runs the tool on a store.
fn on(url: &str, arguments: &[&str]) -> Ran {
    Place::new().run([&["--store", url], arguments].concat())
}

#[test]
fn run_try_ls_show_and_break_work_as_on_every_store() {
    let (_nodes, url) = nodes();
    let place = Place::new();
    let script = "echo $LEASEWARD_FENCE; exec sleep 600";
    let run = ["run", "deploy", "--ttl", "2s", "--store", &url, "--", "sh", "-c", script];
    let mut held = Running::start(&mut place.tool(run));
    let fence: u64 = held.line().parse().expect("a fence");
    let listed = object(&on(&url, &["ls", "--json"]));
    assert_eq!((&listed[0]["name"], listed.as_array().map(Vec::len)), (&json!("deploy"), Some(1)));
    let shown = object(&on(&url, &["show", "deploy", "--json"]));
    assert_eq!(shown["holders"][0]["fence"], json!(fence), "{shown}");
    let busy = on(&url, &["run", "deploy", "--no-wait", "--", "true"]);
    assert_eq!(busy.code, 75, "{}", busy.err);
    let acquired = place.run(["acquire", "other", "--handle", "h", "--store", &url]);
    assert_eq!(acquired.code, 0, "{}", acquired.err);
    let released = place.run(["release", "--handle", "h", "--store", &url]);
    assert_eq!(released.code, 0, "{}", released.err);
    let broken = on(&url, &["break", "deploy", "--now", "--yes"]);
    assert_eq!(broken.code, 0, "{}", broken.err);
    assert_eq!(held.end().code, 76, "its lease was broken");
    let next = on(&url, &["run", "deploy", "--no-wait", "--", "sh", "-c", "echo $LEASEWARD_FENCE"]);
    assert!(next.out.trim().parse::<u64>().is_ok_and(|next| next > fence), "{}", next.out);
}

#[test]
fn the_next_leader_follows_the_first() {
    let (_nodes, url) = nodes();
    let place = Place::new();
    let lead = |value| {
        let script = "echo leads; read line";
        let elect = ["elect", "boss", "--value", value, "--store", &url, "--", "sh", "-c", script];
        Running::start(&mut place.tool(elect))
    };
    let mut first = lead("first");
    assert_eq!(first.line(), "leads");
    let mut second = lead("second");
    let leader = || object(&on(&url, &["show", "boss", "--json"]))["holders"][0]["value"].clone();
    assert_eq!(leader(), "first");
    first.tell("enough");
    assert_eq!(second.line(), "leads");
    assert_eq!(leader(), "second");
    drop(first.end());
    second.tell("enough");
}

#[test]
fn without_a_majority_it_ends_with_69_and_names_the_nodes() {
    let (nodes, url) = nodes();
    nodes[0].kill();
    nodes[3].kill();
    let two_gone = on(&url, &["run", "x", "--", "echo", "goes on"]);
    assert_eq!((two_gone.code, two_gone.out.as_str()), (0, "goes on\n"), "{}", two_gone.err);
    nodes[4].kill();
    for command in [
        &["run", "x", "--", "true"][..],
        &["acquire", "x"],
        &["ls"],
        &["show", "x"],
        &["break", "x", "--now", "--yes"],
        &["doctor"],
    ] {
        let ran = on(&url, command);
        assert_eq!(ran.code, 69, "{command:?}: {}", ran.err);
        assert!(ran.err.contains("error: too few of the 5 nodes answered"), "{}", ran.err);
        assert!(ran.err.contains("\nhint: "), "{}", ran.err);
        for (at, node) in nodes.iter().enumerate() {
            let times = usize::from([0, 3, 4].contains(&at));
            assert_eq!(ran.err.matches(&node.address()).count(), times, "{command:?}: {}", ran.err);
        }
    }
    nodes[4].restart();
    assert_eq!(on(&url, &["run", "x", "--no-wait", "--", "true"]).code, 0, "they are back");
}

#[test]
fn a_holder_whose_majority_goes_ends_its_command() {
    let (nodes, url) = nodes();
    let place = Place::new();
    let script = "echo started; exec sleep 600";
    let run = ["run", "deploy", "--ttl", "2s", "--store", &url, "--", "sh", "-c", script];
    let mut held = Running::start(&mut place.tool(run));
    assert_eq!(held.line(), "started");
    nodes[1..4].iter().for_each(RedisServer::kill);
    let ended = held.end();
    assert_eq!(ended.code, 76, "{}", ended.err);
}

#[test]
fn doctor_tells_of_each_node() {
    let (nodes, url) = nodes();
    let ran = on(&url, &["doctor"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    for says in ["exclusion    holds within bounds", "set forward", "every machine that reaches"] {
        assert!(ran.out.contains(says), "{says}: {}", ran.out);
    }
    assert!(ran.out.ends_with("\nno danger found, 1 note\n"), "{}", ran.out);

    nodes[1].kill();
    nodes[2].cli(&["config", "set", "maxmemory", "64mb", "maxmemory-policy", "allkeys-lru"]);
    let ran = on(&url, &["doctor", "--json"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    let found = object(&ran);
    assert_eq!((&found["answers"], &found["dangers"]), (&json!(true), &json!(1)), "{found}");
    let what = |severity: &str, at: usize| {
        let start = format!("{}: ", nodes[at].address());
        let findings = found["findings"].as_array().expect("a list");
        findings.iter().any(|one| {
            one["severity"] == severity
                && one["what"].as_str().is_some_and(|what| what.starts_with(&start))
        })
    };
    assert!(what("danger", 2), "it may evict locks: {found}");
    assert!(what("warning", 1), "it is away: {found}");
}

#[test]
fn new_nodes_that_keep_nothing_are_waited_for_and_it_says_so() {
    let (nodes, url) = start(RedisServer::start);
    let waiting = format!("{url}&max_ttl=3s");
    let refused = on(&waiting, &["run", "x", "--ttl", "3s", "--no-wait", "--", "true"]);
    assert_eq!(refused.code, 69, "{}", refused.err);
    for node in &nodes {
        let says = format!("{} (may have lost its memory and does not vote for ", node.address());
        assert!(refused.err.contains(&says), "{says}: {}", refused.err);
    }
    assert!(refused.err.contains("`appendfsync always`"), "{}", refused.err);
    eventually("they vote", PATIENCE, || {
        let ran = on(&waiting, &["run", "x", "--ttl", "3s", "--no-wait", "--", "true"]);
        (ran.code == 0).then_some(())
    });
    let ran = on(&waiting, &["doctor"]);
    assert!(ran.out.contains("note: no node keeps every vote on its disk"), "{}", ran.out);
}

#[test]
fn what_cannot_be_used_is_said_with_what_to_do() {
    let (nodes, url) = start(|| RedisServer::builder().requirepass("hunter2").start());
    let with = |password: &str| url.replace("redlock://", &format!("redlock://:{password}@"));
    let one_twice = format!("redlock://{0},{0},h3", nodes[0].address());
    let table = [
        (with("wrong"), 69, "refused user and password"),
        (url.clone(), 69, "asks for a password"),
        (format!("{}&prefx=a", with("hunter2")), 2, "no setting `prefx`"),
        (format!("{}&max_ttl=5ms", with("hunter2")), 2, "out of range"),
        (one_twice, 2, "is named twice"),
    ];
    for (url, code, says) in table {
        let ran = on(&url, &["run", "x", "--", "true"]);
        assert_eq!(ran.code, code, "{says}: {}", ran.err);
        assert!(ran.err.starts_with("error: ") && ran.err.contains(says), "{says}: {}", ran.err);
        assert!(ran.err.contains("\nhint: ") && ran.out.is_empty(), "{says}: {}", ran.err);
        assert!(!ran.err.contains("hunter2") && !ran.err.contains("wrong"), "{}", ran.err);
    }
    let permits = on(&with("hunter2"), &["run", "x", "--permits", "2", "--", "true"]);
    assert_eq!(permits.code, 2, "{}", permits.err);
    assert!(permits.err.contains("there can be three holders"), "{}", permits.err);
}
