//! Users who may not do everything.

use std::time::Duration;

use leaseward::{ErrorKind, store::Severity};
use leaseward_testkit::{Cluster, Fsync, RedisServer};

use crate::help::{connect, dangers, find, findings};

/// The line of docs/stores/redis.md.
const LINE: &str = include_str!("../../../../docs/stores/redis.md");

/// What stands in the documentation between the marks.
fn documented() -> String {
    let line = LINE.lines().find(|line| line.trim_start().starts_with("user locker on "));
    line.expect("the page has the line").trim().strip_prefix("user ").expect("seen").to_owned()
}

fn server(user: &str) -> RedisServer {
    RedisServer::builder().appendonly(Fsync::Always).acl(user).start()
}

fn url(server: &RedisServer) -> String {
    format!("redis://locker:secret@{}", server.address())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_line_is_enough_for_everything() {
    let server = server(&documented());
    let found = findings(&format!("{}?replicas=1", url(&server))).await;
    assert_eq!(dangers(&found).len(), 1, "only the missing replica: {found:#?}");
    assert!(!found.iter().any(|finding| finding.what.contains("may not")), "{found:#?}");

    let (one, other) = (connect(&url(&server)).await, connect(&url(&server)).await);
    let guard = one.lock("x").acquire().await.expect("permitted");
    let waiting = {
        let other = other.clone();
        tokio::spawn(async move { other.lock("x").wait(Duration::from_secs(30)).acquire().await })
    };
    leaseward_testkit::eventually("the other waits", leaseward_testkit::PATIENCE, || {
        (server.cli(&["llen", "leaseward:q:lock:x"]) == "2").then_some(())
    });
    let seen = one.inspect(leaseward::store::Query::all()).await.expect("permitted");
    assert_eq!((seen.len(), seen[0].waiters.len()), (1, 1), "{seen:?}");
    guard.release().await.expect("permitted");
    let guard = waiting.await.expect("ended").expect("handed over");
    one.break_lease("x", true).await.expect("permitted");
    drop(guard);
    let read = one.lock("r").shared().acquire().await.expect("permitted");
    read.release().await.expect("permitted");
}

#[tokio::test]
async fn the_documented_line_is_enough_on_a_cluster() {
    let cluster = Cluster::start_with(0, &RedisServer::builder().acl(&documented()));
    let url = format!("redis+cluster://locker:secret@{}", cluster.addresses().join(","));
    let locks = connect(&url).await;
    let guard = locks.lock("x").acquire().await.expect("permitted");
    guard.release().await.expect("permitted");
    let found = locks.diagnose().await.expect("permitted");
    assert!(!found.iter().any(|finding| finding.what.contains("may not")), "{found:#?}");
}

#[tokio::test]
async fn what_is_forbidden_is_named_with_what_it_is_needed_for() {
    let all = "locker on >secret ~* &* +@all";
    let table = [
        ("-rpush -publish", "`rpush`, `publish`", Severity::Danger),
        ("-subscribe", "`subscribe`", Severity::Warning),
        ("-client|tracking", "`client|tracking`", Severity::Warning),
        ("-client|kill", "`client|kill`", Severity::Warning),
        ("-scan", "`scan`", Severity::Warning),
        ("-config -role", "`role`, `config|get`", Severity::Note),
    ];
    for (rule, named, severity) in table {
        let server = server(&format!("{all} {rule}"));
        let found = findings(&url(&server)).await;
        let missing = find(&found, "this user may not");
        assert!(missing.what.contains(named), "{rule}: {missing:?}");
        assert_eq!(missing.severity, severity, "{rule}");
    }
}

#[tokio::test]
async fn keys_and_channels_out_of_reach_are_found() {
    for rule in ["~lock:* &*", "~leaseward:* &*", "~* &other:*"] {
        let server = server(&format!("locker on >secret {rule} +@all"));
        let found = findings(&url(&server)).await;
        assert!(!dangers(&found).is_empty(), "{rule}: {found:#?}");
    }
}

#[tokio::test]
async fn wait_is_needed_for_replicas_only() {
    let server = server("locker on >secret ~* &* +@all -wait");
    assert!(dangers(&findings(&url(&server)).await).is_empty());
    let strong = format!("{}?replicas=1", url(&server));
    let error = leaseward::connect(&strong).await.expect_err("nothing could be acknowledged");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    assert!(error.message().contains("`WAIT`"), "{error}");
}

/// A managed server that tells nothing still keeps locks; what is not known counts as the worst.
#[tokio::test]
async fn a_server_that_tells_nothing_is_used_all_the_same() {
    let server = server("locker on >secret ~* &* +@all -info -config -role -command");
    let locks = connect(&url(&server)).await;
    let guard = locks.lock("x").acquire().await.expect("it is free");
    guard.release().await.expect("released");
    assert_eq!(locks.guarantee().exclusion, leaseward::store::Level::MayBreak);
    let found = locks.diagnose().await.expect("it answers");
    assert!(find(&found, "not checked").what.contains("eviction, persistence, replicas"));
    find(&found, "does not say its version");
    assert!(dangers(&found).is_empty(), "{found:#?}");
}

#[tokio::test]
async fn who_may_not_run_scripts_is_told_at_once() {
    let server = server("locker on >secret ~* &* +@all -@scripting");
    let error = leaseward::connect(&url(&server)).await.expect_err("it cannot work");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    assert!(error.hint_text().is_some_and(|hint| hint.contains("ACL")), "{error:?}");
}
