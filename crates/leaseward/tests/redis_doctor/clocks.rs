//! Clocks that are wrong.

use leaseward::store::Severity;
use leaseward_testkit::{Fsync, RedisServer, Skew};

use crate::help::{dangers, find, findings};

#[tokio::test]
async fn a_server_whose_clock_is_wrong_is_told() {
    let skew = Skew::new();
    let server = RedisServer::builder().appendonly(Fsync::Always).skew(&skew).start();
    let about_clocks = |text: &str| text.contains("clock");
    let right = findings(&server.url()).await;
    assert!(!right.iter().any(|finding| about_clocks(&finding.what)), "{right:#?}");
    for (ms, way) in [(5_000, "ahead of this machine"), (-5_000, "behind this machine")] {
        skew.set_ms(ms);
        let found = findings(&server.url()).await;
        let warning = find(&found, way);
        assert_eq!(warning.severity, Severity::Warning);
        assert!(warning.what.contains("clock is 4.9 s") || warning.what.contains("clock is 5.0 s"));
        assert!(dangers(&found).is_empty(), "{found:#?}");
    }
}

#[tokio::test]
async fn a_replica_whose_clock_is_ahead_is_a_danger_to_what_it_acknowledged() {
    let skew = Skew::new();
    let primary = RedisServer::builder().appendonly(Fsync::Always).start();
    let replica = RedisServer::builder().replica_of(&primary).skew(&skew).start();
    replica.wait_for_link();
    skew.set_ms(3_000);
    let ahead = format!("the clock of the replica at {}", replica.address());
    let found = findings(&primary.url()).await;
    assert_eq!(find(&found, &ahead).severity, Severity::Warning);
    let found = findings(&format!("{}?replicas=1", primary.url())).await;
    let danger = find(&found, &ahead);
    assert_eq!(danger.severity, Severity::Danger);
    assert!(danger.meaning.contains("too early"), "{danger:?}");
    skew.set_ms(-3_000);
    let found = findings(&format!("{}?replicas=1", primary.url())).await;
    let warning = find(&found, &ahead);
    assert_eq!(warning.severity, Severity::Warning);
    assert!(warning.meaning.contains("fences"), "{warning:?}");
}
