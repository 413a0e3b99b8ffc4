//! A Redis Cluster.

use std::{ops::RangeInclusive, time::Duration};

use crate::{
    redis::{RedisBuilder, RedisServer, cli, said},
    wait::{PATIENCE, eventually},
};

const PRIMARIES: usize = 3;

/// A failover takes 3 to 5 s with this node time-out; a vote that failed is repeated after a few more.
const NODE_TIMEOUT_MS: &str = "2000";
const FAILOVER_PATIENCE: Duration = Duration::from_secs(30);

/// Three primaries, each with a replica or without. Killed when dropped.
///
/// Nodes are named by their address, and are ordinary servers: kill, pause and restart them through
/// [`node`](Self::node).
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<RedisServer>,
}

/// A line of `CLUSTER NODES`.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    id: String,
    address: String,
    /// Suspected, or known to be gone.
    failed: bool,
    /// The id of the primary that it follows.
    follows: Option<String>,
    slots: Vec<RangeInclusive<u16>>,
}

impl Entry {
    fn owns(&self, slot: u16) -> bool {
        self.slots.iter().any(|slots| slots.contains(&slot))
    }
}

impl Cluster {
    /// Three primaries and a replica for each.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(1, &RedisServer::builder())
    }

    /// Three primaries alone: starts faster, and what is on a lost node is lost.
    #[must_use]
    pub fn start_without_replicas() -> Self {
        Self::start_with(0, &RedisServer::builder())
    }

    /// With that many replicas for each primary, and options for all nodes.
    #[must_use]
    pub fn start_with(replicas: usize, options: &RedisBuilder) -> Self {
        let options = options
            .clone()
            .arg("cluster-enabled", "yes")
            .arg("cluster-node-timeout", NODE_TIMEOUT_MS)
            // A replica stays with its primary, so that tests know who follows whom.
            .arg("cluster-allow-replica-migration", "no");
        let nodes: Vec<_> =
            (0..PRIMARIES * (1 + replicas)).map(|_| options.clone().start()).collect();
        let mut create = cli();
        if let Some(password) = options.password() {
            create.env("REDISCLI_AUTH", password);
        }
        create.args(["--cluster", "create"]).args(nodes.iter().map(RedisServer::address));
        create.args(["--cluster-replicas", &replicas.to_string(), "--cluster-yes"]);
        said(&mut create).unwrap_or_else(|why| panic!("the cluster cannot be made: {why}"));
        let this = Self { nodes };
        this.wait_until_whole();
        this
    }

    /// Waits until every node that is awake sees a working cluster and all see the same one, in which each of them has a
    /// part, and every replica is linked: a primary that is killed before is never replaced.
    ///
    /// # Panics
    /// If that takes longer than a failover.
    pub fn wait_until_whole(&self) {
        eventually("the cluster is whole", FAILOVER_PATIENCE, || {
            let mut views = self.awake().map(|node| self.view(node));
            let first = views.next()??;
            views.all(|view| view.as_ref() == Some(&first)).then_some(())
        });
    }

    /// Who does what, as a node sees it; nothing if it is not content.
    fn view(&self, node: &RedisServer) -> Option<Vec<Entry>> {
        let linked = node.info("replication").get("master_link_status").is_none_or(|is| is == "up");
        let works = node.cli(&["cluster", "info"]).contains("cluster_state:ok");
        let mut entries = entries(node);
        let knows_all = entries.len() == self.nodes.len();
        // The dead may be remembered as anything.
        entries.retain(|entry| self.node(&entry.address).is_awake());
        let has_part = |entry: &Entry| {
            let idle = entry.slots.is_empty() && entry.follows.is_none();
            !idle && !entry.failed
        };
        entries.sort_by(|a, b| a.id.cmp(&b.id));
        (linked && works && knows_all && entries.iter().all(has_part)).then_some(entries)
    }

    fn awake(&self) -> impl Iterator<Item = &RedisServer> {
        self.nodes.iter().filter(|node| node.is_awake())
    }

    fn entries(&self) -> Vec<Entry> {
        entries(self.awake().next().expect("a node is awake"))
    }

    /// `127.0.0.1:PORT` of each node.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        self.nodes.iter().map(RedisServer::address).collect()
    }

    /// All nodes.
    #[must_use]
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// The node with this address.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn node(&self, address: &str) -> &RedisServer {
        let node = self.nodes.iter().find(|node| node.address() == address);
        node.unwrap_or_else(|| panic!("no node at {address}"))
    }

    /// The slot of a key.
    #[must_use]
    pub fn slot_of(&self, key: &str) -> u16 {
        let node = self.awake().next().expect("a node is awake");
        node.cli(&["cluster", "keyslot", key]).parse().expect("a slot is a number")
    }

    /// The node that has a key, according to the first node that is awake.
    #[must_use]
    pub fn primary_of(&self, key: &str) -> &RedisServer {
        self.owner(self.slot_of(key))
    }

    fn owner(&self, slot: u16) -> &RedisServer {
        let entries = self.entries();
        let owner = entries.iter().find(|entry| entry.owns(slot));
        self.node(&owner.unwrap_or_else(|| panic!("nobody has slot {slot}")).address)
    }

    /// The nodes that have slots.
    #[must_use]
    pub fn primaries(&self) -> Vec<&RedisServer> {
        let entries = self.entries();
        let primaries = entries.iter().filter(|entry| !entry.slots.is_empty());
        primaries.map(|entry| self.node(&entry.address)).collect()
    }

    /// The replicas of a node.
    #[must_use]
    pub fn replicas_of(&self, address: &str) -> Vec<&RedisServer> {
        let (entries, id) = (self.entries(), self.id(address));
        let replicas = entries.iter().filter(|entry| entry.follows.as_ref() == Some(&id));
        replicas.map(|entry| self.node(&entry.address)).collect()
    }

    /// Cuts a node's replicas off, so that what it takes from now on reaches none. They are to
    /// [resume](RedisServer::resume) soon after it is killed: only they can take its place.
    #[must_use]
    pub fn isolate_replicas_of(&self, address: &str) -> Vec<&RedisServer> {
        let replicas = self.replicas_of(address);
        self.node(address).isolate_from(&replicas);
        replicas
    }

    fn id(&self, address: &str) -> String {
        let entry = self.entries().into_iter().find(|entry| entry.address == address);
        entry.unwrap_or_else(|| panic!("no node at {address}")).id
    }

    /// Waits until all nodes that are awake agree on another owner of a key than this one, and are content.
    ///
    /// # Panics
    /// If that takes longer than a failover.
    pub fn wait_for_new_primary_of(&self, key: &str, old: &str) -> &RedisServer {
        let slot = self.slot_of(key);
        eventually("the slot has another owner", FAILOVER_PATIENCE, || {
            let moved =
                |node| entries(node).iter().any(|entry| entry.owns(slot) && entry.address != old);
            self.awake().all(moved).then_some(())
        });
        self.wait_until_whole();
        self.owner(slot)
    }

    /// Begins to move a slot to another node: from now on the old owner answers `ASK` for keys it does not have.
    #[must_use = "a migration that is not finished stays open"]
    pub fn begin_migration(&self, slot: u16, to: &str) -> Migration<'_> {
        let from = self.owner(slot);
        let migration = Migration { cluster: self, slot, from, to: self.node(to) };
        migration.set_slot(migration.to, "importing", &from.address());
        migration.set_slot(from, "migrating", to);
        migration
    }

    /// Moves a slot with its keys to another node.
    pub fn migrate_slot(&self, slot: u16, to: &str) {
        let migration = self.begin_migration(slot, to);
        migration.move_keys();
        migration.finish();
    }

    /// A node without keys leaves the cluster, and its slots go to another. It stays up, and knows of nobody any more.
    pub fn leave(&self, address: &str, to: &str) {
        let entry = self.entries().into_iter().find(|entry| entry.address == address);
        let entry = entry.unwrap_or_else(|| panic!("no node at {address}"));
        let others = || self.awake().filter(|node| node.address() != address);
        for node in others() {
            node.cli(&["cluster", "forget", &entry.id]);
        }
        self.node(address).cli(&["cluster", "reset", "soft"]);
        for slots in &entry.slots {
            let (first, last) = (slots.start().to_string(), slots.end().to_string());
            self.node(to).cli(&["cluster", "addslotsrange", &first, &last]);
        }
        eventually("the others know who has its slots", FAILOVER_PATIENCE, || {
            let knows = |node| {
                let has =
                    |known: &Entry| known.address == to && known.owns(*entry.slots[0].start());
                entries(node).iter().any(has)
            };
            others().all(knows).then_some(())
        });
    }
}

/// A slot on its way from one node to another.
#[derive(Debug)]
pub struct Migration<'a> {
    cluster: &'a Cluster,
    slot: u16,
    from: &'a RedisServer,
    to: &'a RedisServer,
}

impl Migration<'_> {
    fn set_slot(&self, at: &RedisServer, what: &str, node: &str) {
        let (slot, id) = (self.slot.to_string(), self.cluster.id(node));
        at.cli(&["cluster", "setslot", &slot, what, &id]);
    }

    /// Moves the keys that the old owner has, which then answers `ASK` for them.
    pub fn move_keys(&self) {
        let (slot, port) = (self.slot.to_string(), self.to.port().to_string());
        loop {
            let keys = self.from.cli(&["cluster", "getkeysinslot", &slot, "100"]);
            let keys: Vec<_> = keys.lines().collect();
            if keys.is_empty() {
                return;
            }
            let mut migrate = vec!["migrate", "127.0.0.1", &port, "", "0", "5000"];
            if let Some(password) = self.to.password() {
                migrate.extend(["auth", password]);
            }
            migrate.push("keys");
            self.from.cli(&[migrate, keys].concat());
        }
    }

    /// Gives the slot to its new owner; the others answer `MOVED`.
    pub fn finish(self) {
        let to = self.to.address();
        // The new owner first: between the two, no node may believe that nobody has it.
        self.set_slot(self.to, "node", &to);
        self.set_slot(self.from, "node", &to);
        eventually("all nodes know the slot's new owner", PATIENCE, || {
            let knows = |node| {
                entries(node).iter().any(|entry| entry.owns(self.slot) && entry.address == to)
            };
            self.cluster.awake().all(knows).then_some(())
        });
    }
}

fn entries(node: &RedisServer) -> Vec<Entry> {
    node.cli(&["cluster", "nodes"]).lines().filter_map(parse).collect()
}

/// `id address@bus[,host] flags primary ping pong epoch link slot …`, where a slot is `1`, `1-3` or, moving, `[1->-id]`.
fn parse(line: &str) -> Option<Entry> {
    let words: Vec<_> = line.split_whitespace().collect();
    let [id, address, flags, follows, _, _, _, _, slots @ ..] = words.as_slice() else {
        return None;
    };
    let range = |slots: &&str| {
        let (first, last) = slots.split_once('-').unwrap_or((slots, slots));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    Some(Entry {
        id: (*id).to_owned(),
        address: address.split('@').next()?.to_owned(),
        failed: flags.contains("fail"),
        follows: (*follows != "-").then(|| (*follows).to_owned()),
        slots: slots.iter().filter_map(range).collect(),
    })
}
