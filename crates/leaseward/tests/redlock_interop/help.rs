//! What the tests share: a client of node-redlock, and how it is asked.

use std::time::Duration;

use leaseward::{Attempt, Busy, Error, Locks};
use leaseward_testkit::{
    RedisServer,
    peers::{Library, Peer},
};
use serde_json::json;

use crate::nodes::Nodes;

/// Far more than anything here takes, even on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A time to live that does not end within a test.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Makes a test of each case with each version.
macro_rules! with_both_versions {
    ($($case:ident)*) => { $(
        mod $case {
            use leaseward_testkit::peers::Library;

            #[tokio::test(flavor = "multi_thread")]
            async fn node_redlock_5() {
                super::$case(Library::NodeRedlock).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn node_redlock_4() {
                super::$case(Library::NodeRedlock4).await;
            }
        }
    )* };
}
pub(crate) use with_both_versions;

/// Ours, with the key of a name being the name.
pub(crate) async fn ours(nodes: &Nodes) -> Locks {
    leaseward::connect(&nodes.url("prefix=")).await.expect("they are there")
}

/// For clients of node-redlock.
pub(crate) fn their_urls(nodes: &Nodes) -> String {
    nodes.iter().map(RedisServer::url).collect::<Vec<_>>().join(",")
}

/// Who is in the way.
pub(crate) fn busy(attempt: Result<Attempt, Error>) -> Busy {
    match attempt {
        Ok(Attempt::Busy(busy)) => busy,
        other => panic!("not busy: {other:?}"),
    }
}

pub(crate) async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("it does not take that long")
}

/// A client of node-redlock, that locks one key.
pub(crate) struct Theirs(Peer);

impl Theirs {
    pub(crate) async fn start(library: Library, nodes: &Nodes) -> Self {
        Self(Peer::start(library, &their_urls(nodes)).await)
    }

    /// Tries once.
    pub(crate) async fn acquire(&mut self, key: &str, ttl: Duration) -> bool {
        let order = json!({ "do": "acquire", "key": key, "ttl_ms": ttl.as_millis() });
        self.0.call(order, PATIENCE).await["ok"] == true
    }

    /// Lengthens what was acquired last.
    pub(crate) async fn extend(&mut self, ttl: Duration) -> bool {
        let order = json!({ "do": "extend", "ttl_ms": ttl.as_millis() });
        self.0.call(order, PATIENCE).await["ok"] == true
    }

    pub(crate) async fn release(&mut self) {
        assert_eq!(self.0.call(json!({ "do": "release" }), PATIENCE).await["ok"], true);
    }

    /// Ends without a word.
    pub(crate) fn crash(self) {
        self.0.kill();
    }
}
