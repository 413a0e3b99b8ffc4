//! Replicas: too few, too slow, and what depends on them.

use leaseward::store::{Level, Severity};
use leaseward_testkit::{Fsync, PATIENCE, RedisServer, eventually};

use crate::help::{connect, dangers, find, findings};

fn pair() -> (RedisServer, RedisServer) {
    let primary = RedisServer::builder().appendonly(Fsync::Always).start();
    let replica = RedisServer::builder().replica_of(&primary).start();
    replica.wait_for_link();
    eventually("the primary counts its replica", PATIENCE, || {
        primary.info("replication").get("slave0")?.contains("state=online").then_some(())
    });
    (primary, replica)
}

#[tokio::test]
async fn fewer_replicas_than_asked_for_is_a_danger() {
    let (primary, _replica) = pair();
    let url = primary.url();
    assert_eq!(dangers(&findings(&format!("{url}?replicas=1")).await), [""; 0]);
    let found = findings(&format!("{url}?replicas=2")).await;
    let danger = find(&found, "`replicas` in the URL is 2");
    assert_eq!(danger.severity, Severity::Danger);
    assert!(danger.what.contains("has 1 connected"), "{danger:?}");
}

#[tokio::test]
async fn a_server_that_refuses_writes_without_replicas_is_a_danger() {
    let server =
        RedisServer::builder().appendonly(Fsync::Always).arg("min-replicas-to-write", "1").start();
    let found = findings(&server.url()).await;
    assert_eq!(find(&found, "`min-replicas-to-write` is 1").severity, Severity::Danger);
}

#[tokio::test]
async fn replicas_that_nobody_waits_for_are_told() {
    let (primary, _replica) = pair();
    let found = findings(&primary.url()).await;
    assert_eq!(find(&found, "there are replicas").severity, Severity::Note);
    assert!(dangers(&found).is_empty(), "{found:#?}");
    let strong = findings(&format!("{}?replicas=1", primary.url())).await;
    assert!(strong.iter().all(|finding| !finding.what.contains("there are replicas")));
}

#[tokio::test]
async fn a_replica_that_does_not_keep_up_is_told() {
    let (primary, replica) = pair();
    let locks = connect(&primary.url()).await;
    replica.pause();
    // More than a healthy one is ever behind.
    let large = "x".repeat(60_000);
    for _ in 0..40 {
        primary.cli(&["set", "data", &large]);
    }
    let found = locks.diagnose().await.expect("it answers");
    let warning = find(&found, &format!("the replica at {}", replica.address()));
    assert_eq!(warning.severity, Severity::Warning);
    assert!(warning.what.contains("bytes behind"), "{warning:?}");
    replica.resume();
}

#[tokio::test]
async fn strong_mode_on_a_primary_that_keeps_nothing_is_a_danger() {
    let primary = RedisServer::start();
    let replica = RedisServer::builder().replica_of(&primary).start();
    replica.wait_for_link();
    let found = findings(&format!("{}?replicas=1", primary.url())).await;
    let danger = find(&found, "nothing is kept on disk, and `replicas` is set");
    assert_eq!(danger.severity, Severity::Danger);
    let plain = findings(&primary.url()).await;
    assert!(dangers(&plain).is_empty(), "{plain:#?}");
}

#[tokio::test]
async fn a_replica_that_joins_later_changes_the_promise() {
    let (primary, _replica) = pair();
    let locks = connect(&format!("{}?replicas=1", primary.url())).await;
    assert_eq!(locks.guarantee().exclusion, Level::WithinBounds);
    let late = RedisServer::builder().replica_of(&primary).start();
    late.wait_for_link();
    eventually("the primary counts it", PATIENCE, || {
        primary.info("replication").get("slave1")?.contains("state=online").then_some(())
    });
    assert!(locks.health().await.is_good());
    assert_eq!(locks.guarantee().exclusion, Level::MayBreak);
}

#[tokio::test]
async fn the_promise_follows_the_replicas() {
    let (primary, _replica) = pair();
    let levels = [("", Level::MayBreak), ("?replicas=1", Level::WithinBounds)];
    for (settings, level) in levels {
        let promised = connect(&format!("{}{settings}", primary.url())).await.guarantee();
        assert_eq!(promised.exclusion, level, "{settings}: {promised:?}");
        assert_eq!(promised.fences, Level::WithinBounds);
    }
}
