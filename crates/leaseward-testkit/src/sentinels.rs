//! A primary, its replicas, and three Sentinels that watch them.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use crate::{
    redis::{RedisBuilder, RedisServer},
    wait::{PATIENCE, eventually},
};

const SENTINELS: usize = 3;

/// The name by which Sentinels know the set.
const NAME: &str = "main";

/// A failover takes 2 to 3 s; one that failed is tried again only after twice its time-out of 5 s.
const FAILOVER_PATIENCE: Duration = Duration::from_secs(30);

/// A primary, replicas and three Sentinels: quorum 2, a server is down after one second. Killed when dropped.
///
/// [`primary`](Self::primary) and [`replicas`](Self::replicas) are the roles that this value knows of: those at the start,
/// then those at the end of each [`wait_for_new_primary`](Self::wait_for_new_primary).
#[derive(Debug)]
pub struct Sentinels {
    servers: Vec<RedisServer>,
    sentinels: Vec<RedisServer>,
    primary: AtomicUsize,
}

impl Sentinels {
    /// Starts all; returns when every Sentinel knows the replicas and the other Sentinels, and every replica is linked.
    #[must_use]
    pub fn start(replicas: usize) -> Self {
        Self::start_with(replicas, &RedisServer::builder())
    }

    /// The same, with options for the primary and the replicas.
    #[must_use]
    pub fn start_with(replicas: usize, options: &RedisBuilder) -> Self {
        let mut servers = vec![options.clone().start()];
        for _ in 0..replicas {
            servers.push(options.clone().replica_of(&servers[0]).start());
        }
        // Sentinels ask rarely once they have seen something, so there must be all to see at their first look.
        servers[1..].iter().for_each(RedisServer::wait_for_link);
        let sentinels = (0..SENTINELS).map(|_| start_sentinel(&servers[0], options)).collect();
        let this = Self { servers, sentinels, primary: AtomicUsize::new(0) };
        // They tell each other of themselves every two seconds; for the start, that is long.
        let publish_every = |ms: &str| {
            for sentinel in &this.sentinels {
                sentinel.cli(&["sentinel", "debug", "publish-period", ms]);
            }
        };
        publish_every("100");
        this.sentinels.iter().for_each(|sentinel| this.wait_for_knowledge(sentinel));
        publish_every("2000");
        this
    }

    fn wait_for_knowledge(&self, sentinel: &RedisServer) {
        let others = (SENTINELS - 1).to_string();
        eventually("a Sentinel knows all", PATIENCE, || {
            let (primary, replicas) =
                ["master", "replicas"].map(|what| sentinel.cli(&["sentinel", what, NAME])).into();
            let primary = entries(&primary).pop()?;
            let replicas = entries(&replicas);
            let linked = replicas.iter().filter(|replica| {
                replica["flags"] == "slave" && replica["master-link-status"] == "ok"
            });
            (primary["num-other-sentinels"] == others
                && primary["flags"] == "master"
                && linked.count() == self.servers.len() - 1)
                .then_some(())
        });
    }

    /// The name that clients ask Sentinels for.
    #[must_use]
    pub fn master_name(&self) -> &str {
        NAME
    }

    /// `127.0.0.1:PORT` of each Sentinel.
    #[must_use]
    pub fn sentinel_addresses(&self) -> Vec<String> {
        self.sentinels.iter().map(RedisServer::address).collect()
    }

    /// The Sentinels themselves, to be killed or paused.
    #[must_use]
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// The primary, as far as this value knows.
    #[must_use]
    pub fn primary(&self) -> &RedisServer {
        &self.servers[self.primary.load(Ordering::Relaxed)]
    }

    /// All others, running or not.
    #[must_use]
    pub fn replicas(&self) -> Vec<&RedisServer> {
        let primary = self.primary().port();
        self.servers.iter().filter(|server| server.port() != primary).collect()
    }

    /// The server with this address.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn server(&self, address: &str) -> &RedisServer {
        &self.servers[self.position(address)]
    }

    fn position(&self, address: &str) -> usize {
        let position = self.servers.iter().position(|server| server.address() == address);
        position.unwrap_or_else(|| panic!("no server at {address}"))
    }

    /// The primary's address according to the first Sentinel that is awake.
    ///
    /// # Panics
    /// If none is.
    #[must_use]
    pub fn current_primary_address(&self) -> String {
        let awake = self.sentinels.iter().find(|sentinel| sentinel.is_awake());
        primary_address(awake.expect("a Sentinel is awake"))
    }

    /// Cuts the replicas off, so that what the primary takes from now on reaches none.
    pub fn isolate_replicas(&self) {
        self.primary().isolate_from(&self.replicas());
    }

    /// Lets them go on. Soon after [`isolate_replicas`](Self::isolate_replicas), or Sentinel counts them as down too.
    pub fn resume_replicas(&self) {
        self.replicas().iter().for_each(|replica| replica.resume());
    }

    /// SIGKILL to the primary.
    pub fn kill_primary(&self) {
        self.primary().kill();
    }

    /// Has a Sentinel make a replica the primary, without a fault. Does not wait for it.
    pub fn failover(&self) {
        self.sentinels[0].cli(&["sentinel", "failover", NAME]);
    }

    /// Waits until all Sentinels that are awake name another primary than before, and it is one.
    ///
    /// # Panics
    /// If that takes longer than two attempts of Sentinel.
    pub fn wait_for_new_primary(&self) -> &RedisServer {
        let before = self.primary().address();
        let now = eventually("Sentinel names another primary", FAILOVER_PATIENCE, || {
            let mut awake = self.sentinels.iter().filter(|sentinel| sentinel.is_awake());
            let now = primary_address(awake.next()?);
            let agreed = now != before && awake.all(|sentinel| primary_address(sentinel) == now);
            let is_primary = || self.server(&now).info("replication")["role"] == "master";
            (agreed && is_primary()).then_some(now)
        });
        self.primary.store(self.position(&now), Ordering::Relaxed);
        self.primary()
    }
}

fn start_sentinel(primary: &RedisServer, options: &RedisBuilder) -> RedisServer {
    let watch = format!("monitor {NAME} 127.0.0.1 {} 2", primary.port());
    let mut sentinel = RedisBuilder::sentinel().arg("sentinel", &watch);
    if let Some(password) = options.password() {
        sentinel = sentinel.arg("sentinel", &format!("auth-pass {NAME} {password}"));
    }
    sentinel
        .arg("sentinel", &format!("down-after-milliseconds {NAME} 1000"))
        .arg("sentinel", &format!("failover-timeout {NAME} 5000"))
        .start()
}

fn primary_address(sentinel: &RedisServer) -> String {
    sentinel.cli(&["sentinel", "get-master-addr-by-name", NAME]).replace('\n', ":")
}

/// What a Sentinel tells of servers: names and values in turn, a line each; every entry begins with its name.
fn entries(text: &str) -> Vec<HashMap<&str, &str>> {
    let lines: Vec<_> = text.lines().collect();
    let mut entries = Vec::new();
    for pair in lines.chunks_exact(2) {
        if pair[0] == "name" {
            entries.push(HashMap::new());
        }
        entries.last_mut().expect("BUG: an entry begins with its name").insert(pair[0], pair[1]);
    }
    entries
}
