//! Servers that can be taken away: stopped, or frozen with all connections open.

use leaseward_testkit::{Etcd, Fsync, Postgres, RedisServer, ZooKeeper};

/// How a server is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Away {
    /// Its process has ended; connections are refused until it is started again, with what it had on its disk.
    Stopped,
    /// Its process stands still; connections stay, and nothing is answered.
    Frozen,
}

/// What the tool is told to use.
pub(super) struct Store {
    pub(super) url: String,
    /// Whether a lease carries a value, which a leader needs, and outlives its process.
    pub(super) elects: bool,
    pub(super) keeps_jobs: bool,
}

pub(super) enum Server {
    Redis(RedisServer),
    Redlock(Vec<RedisServer>),
    Postgres(Postgres),
    Etcd(Etcd),
    ZooKeeper(ZooKeeper),
}

/// One that has everything on its disk, so that a restart changes nothing.
fn redis() -> RedisServer {
    RedisServer::builder().appendonly(Fsync::Always).start()
}

impl Server {
    pub(super) fn redis() -> Self {
        Self::Redis(redis())
    }

    pub(super) fn redlock() -> Self {
        Self::Redlock((0..3).map(|_| redis()).collect())
    }

    pub(super) fn postgres() -> Self {
        Self::Postgres(Postgres::builder().in_memory().start())
    }

    pub(super) fn etcd() -> Self {
        Self::Etcd(Etcd::start())
    }

    pub(super) fn zookeeper() -> Self {
        Self::ZooKeeper(ZooKeeper::start())
    }

    /// The stores that are there: PostgreSQL has two.
    pub(super) fn stores(&self) -> Vec<Store> {
        let store = |url| Store { url, elects: true, keeps_jobs: false };
        match self {
            Self::Redis(server) => vec![store(server.url())],
            Self::Redlock(nodes) => {
                let addresses: Vec<_> = nodes.iter().map(RedisServer::address).collect();
                vec![store(format!("redlock://{}", addresses.join(",")))]
            }
            Self::Postgres(server) => {
                let advisory = server.url().replacen("postgres", "postgres+advisory", 1);
                let rows = Store { keeps_jobs: true, ..store(server.url()) };
                vec![rows, Store { elects: false, ..store(advisory) }]
            }
            Self::Etcd(server) => vec![store(server.url())],
            Self::ZooKeeper(server) => vec![store(server.url("locks"))],
        }
    }

    pub(super) fn goes(&self, away: Away) {
        match (away, self) {
            (Away::Stopped, Self::Redis(server)) => server.kill(),
            (Away::Stopped, Self::Redlock(nodes)) => nodes.iter().for_each(RedisServer::kill),
            (Away::Stopped, Self::Postgres(server)) => server.kill(),
            (Away::Stopped, Self::Etcd(server)) => server.kill(0),
            (Away::Stopped, Self::ZooKeeper(server)) => server.kill(0),
            (Away::Frozen, Self::Redis(server)) => server.pause(),
            (Away::Frozen, Self::Redlock(nodes)) => nodes.iter().for_each(RedisServer::pause),
            (Away::Frozen, Self::Postgres(server)) => server.pause(),
            (Away::Frozen, Self::Etcd(server)) => server.pause(0),
            (Away::Frozen, Self::ZooKeeper(server)) => server.pause(0),
        }
    }

    pub(super) fn comes_back(&self, away: Away) {
        match (away, self) {
            (Away::Stopped, Self::Redis(server)) => server.restart(),
            (Away::Stopped, Self::Redlock(nodes)) => nodes.iter().for_each(RedisServer::restart),
            (Away::Stopped, Self::Postgres(server)) => server.restart(),
            (Away::Stopped, Self::Etcd(server)) => server.restart(0),
            (Away::Stopped, Self::ZooKeeper(server)) => server.restart(0),
            (Away::Frozen, Self::Redis(server)) => server.resume(),
            (Away::Frozen, Self::Redlock(nodes)) => nodes.iter().for_each(RedisServer::resume),
            (Away::Frozen, Self::Postgres(server)) => server.resume(),
            (Away::Frozen, Self::Etcd(server)) => server.resume(0),
            (Away::Frozen, Self::ZooKeeper(server)) => server.resume(0),
        }
    }
}
