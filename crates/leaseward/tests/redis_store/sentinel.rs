//! Behind Sentinel: the primary changes, or is lost with what only it knew.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::TcpStream,
    thread::JoinHandle,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use leaseward::{Attempt, ErrorKind, Locks, store::Level};
use leaseward_testkit::{PATIENCE, RedisServer, Sentinels, eventually};

use crate::help::{Monitor, connect, take, take_in_time, try_open, until};

/// Longer than a failover takes.
const TTL: Duration = Duration::from_secs(30);

/// What a failover takes at most, with a second attempt of Sentinel.
const FAILOVER: Duration = Duration::from_secs(30);

fn url(set: &Sentinels) -> String {
    format!("redis+sentinel://{}/{}", set.sentinel_addresses().join(","), set.master_name())
}

/// When a Sentinel says that the primary has changed, in seconds since the epoch.
fn switch_told_by(sentinel: &RedisServer) -> JoinHandle<f64> {
    let mut stream = TcpStream::connect(sentinel.address()).expect("it accepts");
    stream.write_all(b"SUBSCRIBE +switch-master\r\n").expect("it is open");
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    assert!(lines.any(|line| line == ":1"), "it is subscribed");
    std::thread::spawn(move || {
        assert!(lines.any(|line| line.starts_with("main ")), "the Sentinel told nothing");
        SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64()
    })
}

/// How many calls of the script a server carried out after a moment.
fn calls_after(heard: &[String], moment: f64) -> usize {
    let when = |line: &str| line.trim_start_matches('+').split(' ').next()?.parse::<f64>().ok();
    let is_call = |line: &&String| line.contains("\"EVALSHA\"") || line.contains("\"EVAL\"");
    heard.iter().filter(is_call).filter(|line| when(line).is_some_and(|at| at > moment)).count()
}

/// Waits for a name in another task, and until that has a place in the queue.
async fn queue(locks: &Locks, what: &str) -> tokio::task::JoinHandle<leaseward::Guard> {
    let lock = locks.lock(what).ttl(TTL);
    let waiter = tokio::spawn(async move { lock.acquire().await.expect("served") });
    let query = || leaseward::store::Query::Name(leaseward::Name::new(what).expect("a name"));
    until("it waits", PATIENCE, || async {
        let views = locks.inspect(query()).await.expect("answered");
        views.first().filter(|view| !view.waiters.is_empty()).map(|_| ())
    })
    .await;
    waiter
}

/// Waits until the replica has lease and queue: a replica that has just joined is sent nothing before its first
/// acknowledgement, up to a second later.
fn wait_for_copy(set: &Sentinels) {
    let replica = set.replicas()[0];
    eventually("the replica has it all", PATIENCE, || {
        (replica.cli(&["exists", "lock:a", "leaseward:q:lock:a"]) == "2").then_some(())
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_the_primary_is_followed_at_once() {
    let set = Sentinels::start(1);
    let (locks, other) = (connect(&url(&set)).await, connect(&url(&set)).await);
    let held = take(locks.lock("a").ttl(TTL)).await;
    let waiter = queue(&other, "a").await;
    wait_for_copy(&set);
    let old = set.primary();
    let switches: Vec<_> = set.sentinels().iter().map(switch_told_by).collect();
    let monitor = Monitor::start(old);
    // Somebody is always about to write.
    let busy = locks.clone();
    let load = tokio::spawn(async move {
        loop {
            if let Ok(Attempt::Granted(guard)) = busy.lock("b").ttl(TTL).try_acquire().await {
                let _ = guard.release().await;
            }
        }
    });
    set.failover();
    let told = switches.into_iter().map(|told| told.join().expect("it is told"));
    let told = told.fold(f64::INFINITY, f64::min);
    let new = set.wait_for_new_primary();
    until("the lease is kept at the new primary", PATIENCE, || async { held.renew().await.ok() })
        .await;
    assert!(held.is_held());
    assert_eq!(new.cli(&["exists", "lock:a"]), "1");
    let fence = held.fence();
    held.release().await.expect("given back");
    let next = tokio::time::timeout(PATIENCE, waiter).await.expect("served soon");
    assert!(next.expect("no panic").fence() > fence);
    load.abort();
    // What was under way at that moment may have come; a client that does not listen goes on for seconds.
    let heard = monitor.heard(old);
    assert!(calls_after(&heard, 0.0) > 0, "nobody wrote to it");
    let late = calls_after(&heard, told + 0.3);
    assert_eq!(late, 0, "calls reached the old primary long after Sentinel had said so");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_primary_is_replaced_and_waiters_are_served() {
    let set = Sentinels::start(1);
    let (locks, other) = (connect(&url(&set)).await, connect(&url(&set)).await);
    assert_eq!(locks.guarantee().exclusion, Level::MayBreak, "without `replicas`");
    let held = take(locks.lock("a").ttl(TTL)).await;
    let waiter = queue(&other, "a").await;
    wait_for_copy(&set);
    set.kill_primary();
    set.wait_for_new_primary();
    until("the lease is kept", FAILOVER, || async { held.renew().await.ok() }).await;
    assert!(held.is_held());
    let fence = held.fence();
    held.release().await.expect("given back");
    let next = tokio::time::timeout(PATIENCE, waiter).await.expect("served soon");
    assert!(next.expect("no panic").fence() > fence);
}

/// The double grant that the table of guarantees speaks of.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_no_replica_has_is_given_twice() {
    let set = Sentinels::start(1);
    let (locks, other) = (connect(&url(&set)).await, connect(&url(&set)).await);
    set.isolate_replicas();
    let first = take(locks.lock("a").ttl(TTL)).await;
    set.kill_primary();
    set.resume_replicas();
    set.wait_for_new_primary();
    let second = take_in_time(other.lock("a").ttl(TTL), FAILOVER).await;
    assert!(second.is_held());
    assert!(second.fence() > first.fence(), "the resource refuses the first one's writes");
    // The first believes until it hears otherwise, and hears it with its next renewal at the latest.
    let lost = tokio::time::timeout(TTL, first.lost()).await.expect("it is told");
    assert_eq!(lost, leaseward::LostReason::NotOurs);
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_that_are_dead_shy_or_strangers() {
    let set = Sentinels::start(1);
    let addresses = set.sentinel_addresses();
    let stranger = format!("redis+sentinel://{}/nobody", addresses.join(","));
    let failure = try_open(&stranger).await.expect_err("no such primary");
    assert_eq!(failure.kind(), ErrorKind::Unavailable);
    assert!(failure.message().contains("`nobody`"), "{failure}");

    set.sentinels()[0].kill();
    let locks = connect(&url(&set)).await;
    take(locks.lock("a")).await.release().await.expect("given back");

    for sentinel in &set.sentinels()[1..] {
        sentinel.cli(&["acl", "setuser", "default", "resetpass", ">sesame"]);
    }
    let (last, name) = (addresses[1..].join(","), set.master_name());
    let shy = format!("redis+sentinel://{last}/{name}");
    for (url, says) in [
        (shy.clone(), "asks for a password"),
        (format!("{shy}?sentinel_password=wrong"), "refused user and password"),
    ] {
        let failure = try_open(&url).await.expect_err(says);
        assert_eq!(failure.kind(), ErrorKind::Refused, "{failure}");
        let message = failure.message();
        assert!(message.starts_with("Sentinel at ") && message.ends_with(says), "{failure}");
        let hint = failure.hint_text().unwrap_or_default();
        assert!(hint.contains("sentinel_password") && hint.contains("sentinel_user"), "{hint}");
    }
    let locks = connect(&format!("{shy}?sentinel_password=sesame")).await;
    take(locks.lock("a")).await.release().await.expect("given back");

    set.sentinels()[1..].iter().for_each(RedisServer::kill);
    let failure = try_open(&url(&set)).await.expect_err("all are dead");
    assert!(failure.message().starts_with("Sentinel at "), "{failure}");
    assert!(failure.message().ends_with("was not reached"), "{failure}");
}

/// What the hint names is enough.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_of_a_sentinel_with_too_few_rights_is_told_which() {
    let set = Sentinels::start(1);
    let addresses = set.sentinel_addresses();
    let sentinel = &set.sentinels()[0];
    let login = "?sentinel_user=finder&sentinel_password=sesame";
    let url = format!("redis+sentinel://{}/{}{login}", addresses[0], set.master_name());
    sentinel.cli(&["acl", "setuser", "finder", "on", ">sesame", "+hello", "+auth"]);
    let failure = try_open(&url).await.expect_err("it may not ask");
    assert_eq!(failure.kind(), ErrorKind::Refused, "{failure}");
    let hint = failure.hint_text().unwrap_or_default().to_owned();
    let rights = hint.split('`').nth(1).expect("the rights");
    let grant: Vec<_> = ["acl", "setuser", "finder"].into_iter().chain(rights.split(' ')).collect();
    sentinel.cli(&grant);
    let locks = connect(&url).await;
    take(locks.lock("a")).await.release().await.expect("given back");
    eventually("it listens", PATIENCE, || {
        sentinel
            .client_list()
            .iter()
            .any(|client| client["user"] == "finder" && client["sub"] == "1")
            .then_some(())
    });
}
