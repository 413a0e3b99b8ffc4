//! Several independent servers, as a client of a quorum has them. Shared by the tests of Redlock.

use std::ops::Deref;

use leaseward_testkit::{Fsync, RedisBuilder, RedisServer};

/// Independent servers, in the order of the URL.
#[derive(Debug)]
pub(crate) struct Nodes(Vec<RedisServer>);

impl Nodes {
    /// So many, each made as said; all at once, because each takes its time.
    pub(crate) fn start(count: usize, make: impl Fn(usize) -> RedisBuilder + Sync) -> Self {
        std::thread::scope(|scope| {
            let make = &make;
            let starting: Vec<_> =
                (0..count).map(|at| scope.spawn(move || make(at).start())).collect();
            Self(starting.into_iter().map(|one| one.join().expect("it starts")).collect())
        })
    }

    /// Five that forget nothing.
    pub(crate) fn keeping() -> Self {
        Self::start(5, |_| RedisServer::builder().appendonly(Fsync::Always))
    }

    /// A URL of all of them, with settings. Nodes get far longer than they need: this machine may be busy.
    pub(crate) fn url(&self, settings: &str) -> String {
        let nodes: Vec<_> = self.iter().map(RedisServer::address).collect();
        format!("redlock://{}?timeout=5s&{settings}", nodes.join(",")).trim_end_matches('&').into()
    }
}

impl Deref for Nodes {
    type Target = [RedisServer];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}
