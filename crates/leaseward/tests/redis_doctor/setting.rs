//! Memory and disk.

use leaseward::store::Severity;
use leaseward_testkit::{Cluster, Fsync, RedisServer};

use crate::help::{connect, dangers, find, findings};

const LIMIT: u64 = 64 << 20;

#[tokio::test]
async fn a_server_made_for_locks_has_nothing_but_a_note_of_its_version() {
    let server = RedisServer::builder().appendonly(Fsync::Always).start();
    let found = findings(&server.url()).await;
    let [only] = found.as_slice() else { panic!("one note, not {found:#?}") };
    assert_eq!(only.severity, Severity::Note);
    let version = server.info("server")["redis_version"].clone();
    assert!(only.what.contains(&format!("Redis {version}")), "{only:?}");
    assert!(only.meaning.contains("WAIT") && only.meaning.contains("lacks"), "{only:?}");
}

#[tokio::test]
async fn eviction_is_a_danger_whatever_it_takes_first() {
    for policy in ["allkeys-lru", "volatile-ttl", "volatile-lfu"] {
        let server = RedisServer::builder().maxmemory(LIMIT, policy).start();
        let found = findings(&server.url()).await;
        assert_eq!(dangers(&found).len(), 1, "{found:#?}");
        let danger = find(&found, policy);
        assert_eq!(danger.severity, Severity::Danger);
        assert!(danger.what.contains("64 MiB"), "{danger:?}");
        assert!(danger.advice.contains("noeviction"), "{danger:?}");
    }
}

#[tokio::test]
async fn without_a_limit_nothing_is_evicted_yet() {
    let server = RedisServer::builder().maxmemory(0, "allkeys-lru").start();
    let found = findings(&server.url()).await;
    assert_eq!(find(&found, "allkeys-lru").severity, Severity::Note);
    assert!(dangers(&found).is_empty(), "{found:#?}");
}

#[tokio::test]
async fn memory_that_is_nearly_used_up_is_told() {
    let server = RedisServer::builder().maxmemory(LIMIT, "noeviction").start();
    assert!(findings(&server.url()).await.iter().all(|finding| !finding.what.contains('%')));
    let used: u64 = server.info("memory")["used_memory"].parse().expect("a number");
    // What connecting takes must still fit.
    server.cli(&["config", "set", "maxmemory", &(used + used / 20).to_string()]);
    let found = findings(&server.url()).await;
    assert_eq!(find(&found, "% of `maxmemory`").severity, Severity::Warning);
}

#[tokio::test]
async fn memory_that_is_used_up_is_a_danger() {
    let server = RedisServer::start();
    let locks = connect(&server.url()).await;
    for limit in ["1", "4kb", "1mb"] {
        server.cli(&["config", "set", "maxmemory", limit]);
        locks.lock("a").try_acquire().await.expect_err("there is no memory");
        let found = locks.diagnose().await.expect("it answers");
        let [danger] = dangers(&found)[..] else { panic!("one danger, not {found:#?}") };
        let limit = ["1 B", "4 KiB", "1 MiB"].into_iter().find(|size| danger.ends_with(size));
        assert!(danger.starts_with("`maxmemory` is used up: ") && limit.is_some(), "{danger}");
        let finding = find(&found, danger);
        assert!(finding.meaning.contains("no lease can be taken"), "{finding:?}");
    }
}

#[tokio::test]
async fn what_a_restart_loses_is_told() {
    let table = [
        (RedisServer::builder(), "nothing is kept", Severity::Warning),
        (RedisServer::builder().arg("save", "3600 1"), "only snapshots", Severity::Warning),
        (RedisServer::builder().appendonly(Fsync::EverySec), "not forced to disk", Severity::Note),
    ];
    for (server, text, severity) in table {
        let server = server.start();
        let found = findings(&server.url()).await;
        assert_eq!(find(&found, text).severity, severity);
        assert!(dangers(&found).is_empty(), "a plain server is no danger: {found:#?}");
    }
}

#[tokio::test]
async fn a_disk_that_takes_nothing_is_a_danger() {
    let server = RedisServer::builder().arg("save", "3600 1").start();
    let locks = connect(&server.url()).await;
    // A folder in the place of the file: saving fails.
    std::fs::create_dir(server.folder().join("dump.rdb")).expect("a folder");
    server.cli(&["bgsave"]);
    leaseward_testkit::eventually("the snapshot failed", leaseward_testkit::PATIENCE, || {
        (server.info("persistence")["rdb_last_bgsave_status"] == "err").then_some(())
    });
    let found = locks.diagnose().await.expect("it answers");
    assert_eq!(find(&found, "its last snapshot").severity, Severity::Danger);
}

#[tokio::test]
async fn a_cluster_is_looked_at_node_by_node() {
    let cluster = Cluster::start_without_replicas();
    let ill = cluster.primaries()[1];
    ill.cli(&["config", "set", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lfu"]);
    let found = findings(&format!("redis+cluster://{}", cluster.addresses().join(","))).await;
    let [danger] = dangers(&found)[..] else { panic!("one danger, not {found:#?}") };
    assert!(danger.starts_with(&ill.address()) && danger.contains("allkeys-lfu"), "{danger}");
    for node in cluster.primaries() {
        let named = |text: &str| found.iter().any(|finding| finding.what.starts_with(text));
        assert!(named(&format!("{}: it is Redis", node.address())), "{found:#?}");
    }
}
