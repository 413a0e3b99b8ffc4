//! A cluster: which node has which slot.
//!
//! The map is learnt from any node, and again when a node says that a slot has moved or when one is lost.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::RwLock;
use redis::{RedisError, Value};

use super::{
    config::Address,
    connection::Connection,
    keys::Slot,
    node::{Node, Wiring},
    probe,
};
use crate::{Error, ErrorKind};

/// How long to wait between attempts to learn the map while something is missing, at most.
const RETRY: Duration = Duration::from_millis(250);

/// How many slots a cluster has.
const SLOTS: usize = 16_384;

pub(super) struct Cluster {
    wiring: Arc<Wiring>,
    seeds: Vec<Address>,
    map: RwLock<Map>,
    /// Somebody learns the map already.
    is_learning: AtomicBool,
}

#[derive(Default)]
struct Map {
    /// By slot.
    primaries: Vec<Option<Address>>,
    nodes: HashMap<Address, Arc<Node>>,
}

/// Where a node sent us.
pub(super) struct Redirect {
    pub(super) node: Arc<Node>,
    /// The slot is on its way there: the node takes the request only if it is announced.
    pub(super) asking: bool,
}

impl Cluster {
    /// Learns the map from the first seed that answers, and connects to all primaries.
    pub(super) async fn open(wiring: Arc<Wiring>, seeds: Vec<Address>) -> Result<Arc<Self>, Error> {
        let this = Arc::new(Self {
            wiring,
            seeds,
            map: RwLock::default(),
            is_learning: AtomicBool::new(false),
        });
        this.learn().await?;
        for node in this.primaries() {
            if let Err(why) = node.open().await {
                tracing::warn!(error = %why, "a node of the redis cluster was not reached");
                node.reconnect();
            }
        }
        Ok(this)
    }

    /// The node that has a slot.
    pub(super) fn node_of(&self, slot: Slot) -> Result<Arc<Node>, Error> {
        let map = self.map.read();
        let address = map.primaries.get(usize::from(slot.0)).and_then(Option::as_ref);
        address.and_then(|address| map.nodes.get(address)).cloned().ok_or_else(|| {
            Error::new(
                ErrorKind::Unavailable,
                format!("no node of the redis cluster has slot {}", slot.0),
            )
            .hint("`redis-cli --cluster check` shows what is missing")
        })
    }

    /// All nodes that have slots.
    pub(super) fn primaries(&self) -> Vec<Arc<Node>> {
        let map = self.map.read();
        let mut addresses: Vec<_> = map.primaries.iter().flatten().collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses.into_iter().filter_map(|address| map.nodes.get(address)).cloned().collect()
    }

    /// Follows `MOVED` and `ASK`.
    pub(super) async fn redirect(self: &Arc<Self>, error: &RedisError) -> Option<Redirect> {
        let (host, port) = split(error.redirect_node()?.0)?;
        let asking = error.code() == Some("ASK");
        if !asking {
            self.learn_soon();
        }
        let node = self.node_at(Address::Tcp(host, port));
        node.open().await.ok()?;
        Some(Redirect { node, asking })
    }

    fn node_at(&self, address: Address) -> Arc<Node> {
        let mut map = self.map.write();
        let wiring = &self.wiring;
        map.nodes
            .entry(address)
            .or_insert_with_key(|address| Node::at(wiring.clone(), address.clone()))
            .clone()
    }

    /// Learns the map in the background, until every slot has a node that is connected.
    pub(super) fn learn_soon(self: &Arc<Self>) {
        if !self.is_learning.swap(true, Ordering::SeqCst) {
            self.wiring.runtime.spawn(keep_learning(Arc::downgrade(self)));
        }
    }

    /// From a connected node if there is one, else from any that the URL names, whatever has become of it. Whoever knows a
    /// node for every slot is believed; one that left the cluster knows none, and one that is cut off from the others says
    /// that it is down: then the others are asked.
    async fn learn(&self) -> Result<(), Error> {
        let (mut why, mut best) = (None, Slots::default());
        for node in self.teachers() {
            // Whoever is not connected has nothing to add to a map of all slots, and may take long to say so.
            if best.is_best() || best.are_all() && node.link().is_err() {
                break;
            }
            match taught_by(&node).await {
                Ok(slots) => best = best.or_better(slots),
                Err(error) => why = Some(error),
            }
        }
        for seed in &self.seeds {
            if best.count > 0 {
                break;
            }
            // Not as a node: it may be a replica by now, which knows the map and takes no writes.
            if let Ok(connection) = self.wiring.dialler.dial(seed, Box::new(drop)).await
                && let Ok(slots) = slots_by(&connection, seed).await
            {
                best = best.or_better(slots);
            }
        }
        match (best.count, why) {
            (0, Some(why)) => Err(why),
            _ => {
                self.take(best);
                Ok(())
            }
        }
    }

    /// Whom to ask for the map: connected nodes first, then those named in the URL.
    fn teachers(&self) -> Vec<Arc<Node>> {
        let mut teachers: Vec<_> = self.map.read().nodes.values().cloned().collect();
        teachers.sort_by_key(|node| node.link().is_err());
        let seeds = self.seeds.iter().map(|seed| self.node_at(seed.clone()));
        teachers.extend(seeds);
        teachers
    }

    fn take(&self, slots: Slots) {
        let mut map = self.map.write();
        for address in slots.primaries.iter().flatten() {
            let wiring = &self.wiring;
            map.nodes
                .entry(address.clone())
                .or_insert_with(|| Node::at(wiring.clone(), address.clone()));
        }
        if slots.are_all() {
            // Whoever has none any more is forgotten: what is under way there goes on, and then its connection ends.
            let used: HashSet<_> = slots.primaries.iter().flatten().collect();
            map.nodes.retain(|address, _| used.contains(address));
        }
        map.primaries = slots.primaries;
    }

    /// How many nodes are in use, and perhaps some that were.
    pub(super) fn count(&self) -> usize {
        self.map.read().nodes.len()
    }

    pub(super) fn has(&self, address: &Address) -> bool {
        self.map.read().nodes.contains_key(address)
    }

    pub(super) fn close(&self) {
        for node in self.map.read().nodes.values() {
            node.close();
        }
    }

    /// Whether every slot has a node, and all of them are connected.
    fn is_whole(&self) -> bool {
        let all_slots = self.map.read().primaries.iter().all(Option::is_some);
        all_slots && self.primaries().iter().all(|node| node.link().is_ok())
    }
}

async fn keep_learning(cluster: Weak<Cluster>) {
    loop {
        let Some(this) = cluster.upgrade() else { return };
        if this.learn().await.is_ok() {
            for node in this.primaries() {
                node.reconnect();
            }
        }
        if this.is_whole() {
            this.is_learning.store(false, Ordering::SeqCst);
            // Somebody may have found this task at work a moment ago and left it to that.
            if this.is_whole() || this.is_learning.swap(true, Ordering::SeqCst) {
                return;
            }
        }
        drop(this);
        tokio::time::sleep(RETRY.mul_f64(rand::random())).await;
    }
}

/// Which node has which slot, as some node says.
#[derive(Default)]
struct Slots {
    primaries: Vec<Option<Address>>,
    /// How many have one.
    count: usize,
    /// It says that it is cut off from the others, or that slots are missing.
    is_down: bool,
}

impl Slots {
    fn or_better(self, other: Self) -> Self {
        let rank = |slots: &Self| (slots.count > 0 && !slots.is_down, slots.count);
        if rank(&other) > rank(&self) { other } else { self }
    }

    fn are_all(&self) -> bool {
        self.count == SLOTS
    }

    fn is_best(&self) -> bool {
        self.are_all() && !self.is_down
    }
}

async fn taught_by(node: &Arc<Node>) -> Result<Slots, Error> {
    let link = node.open().await?;
    if link.probe.is_cluster == Some(false) {
        return Err(no_cluster(&link.address));
    }
    slots_by(&link.connection, &link.address).await
}

async fn slots_by(connection: &Connection, at: &Address) -> Result<Slots, Error> {
    let failed = |error: RedisError| super::error::of_call(&error, &at.to_string());
    let mut questions = redis::pipe();
    questions.cmd("CLUSTER").arg("SLOTS").cmd("CLUSTER").arg("INFO");
    let answers = connection.pipeline(&questions).await.map_err(failed)?;
    if let Value::ServerError(refusal) = &answers[0] {
        return Err(failed(refusal.clone().into()));
    }
    let primaries = read_slots(&answers[0], at);
    // Who may not ask takes it to be up.
    let is_down = probe::text(&answers[1]).is_some_and(|info| info.contains("cluster_state:fail"));
    Ok(Slots { count: primaries.iter().flatten().count(), primaries, is_down })
}

/// Reads CLUSTER SLOTS: first slot, last slot, the primary, replicas.
fn read_slots(answer: &Value, asked: &Address) -> Vec<Option<Address>> {
    let mut primaries = vec![None; SLOTS];
    let Value::Array(ranges) = answer else { return primaries };
    for range in ranges {
        let Value::Array(parts) = range else { continue };
        let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = parts.as_slice()
        else {
            continue;
        };
        let [host, Value::Int(port), ..] = primary.as_slice() else { continue };
        let Ok(port) = u16::try_from(*port) else { continue };
        // A node that does not know its own address is the one we asked.
        let host = probe::text(host).filter(|host| !host.is_empty());
        let address = match (host, asked) {
            (Some(host), _) => Address::Tcp(host, port),
            (None, Address::Tcp(host, _)) => Address::Tcp(host.clone(), port),
            (None, unix) => unix.clone(),
        };
        let first = usize::try_from(*first).unwrap_or(0);
        let last = usize::try_from(*last).unwrap_or(0).min(primaries.len() - 1);
        primaries[first.min(last)..=last].fill(Some(address));
    }
    primaries
}

fn no_cluster(at: &Address) -> Error {
    Error::new(ErrorKind::Refused, format!("redis at {at} is no node of a cluster"))
        .hint(format!("a single server is `redis://{at}`"))
}

fn split(address: &str) -> Option<(String, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    Some((host.trim_matches(['[', ']']).to_owned(), port.parse().ok()?))
}
