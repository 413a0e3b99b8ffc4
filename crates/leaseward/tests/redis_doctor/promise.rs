//! What is promised on one server, on a cluster and behind Sentinel; each row of the table is tested in `guarantee.rs`.

use leaseward::store::{Guarantee, Level, Reach};
use leaseward_testkit::{Cluster, Fsync, RedisServer, Sentinels};

use crate::help::connect;

#[tokio::test]
async fn one_server_that_keeps_everything_holds() {
    let server = RedisServer::builder().appendonly(Fsync::Always).start();
    let locks = connect(&server.url()).await;
    let needed = Guarantee {
        exclusion: Level::Holds,
        fences: Level::Holds,
        reach: Reach::Network,
        breaks_when: Vec::new(),
    };
    locks.require(&needed).expect("it promises that");
    // While the file is rewritten, nothing would be forced to disk.
    server.cli(&["config", "set", "no-appendfsync-on-rewrite", "yes"]);
    let refused = connect(&server.url()).await.require(&needed).expect_err("it does not any more");
    assert!(
        refused.hint_text().is_some_and(|hint| hint.contains("machine crashes")),
        "{refused:?}"
    );
}

#[tokio::test]
async fn one_server_that_keeps_nothing_holds_until_a_restart() {
    let server = RedisServer::start();
    let promised = connect(&server.url()).await.guarantee();
    assert_eq!((promised.exclusion, promised.fences), (Level::WithinBounds, Level::WithinBounds));
    assert!(promised.breaks_when.iter().any(|when| when.contains("keeps nothing")), "{promised:?}");
}

#[tokio::test]
async fn a_set_of_servers_may_break_at_a_failover() {
    let cluster = Cluster::start_with(0, &RedisServer::builder().appendonly(Fsync::Always));
    let sentinels = Sentinels::start(1);
    let (watchers, name) = (sentinels.sentinel_addresses().join(","), sentinels.master_name());
    for url in [
        format!("redis+cluster://{}", cluster.addresses().join(",")),
        format!("redis+sentinel://{watchers}/{name}"),
    ] {
        let promised = connect(&url).await.guarantee();
        assert_eq!(promised.exclusion, Level::MayBreak, "{url}");
        assert_eq!(promised.fences, Level::WithinBounds, "{url}");
    }
}
