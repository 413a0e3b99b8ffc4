//! The servers of a client, however they belong together.

use std::sync::Arc;

use redis::RedisError;

use super::{
    cluster::{Cluster, Redirect},
    config::{Address, Config, Topology},
    keys::Slot,
    node::{Node, Wiring},
    sentinel::{self, Sentinel},
};
use crate::{Error, ErrorKind, store::Answer};

pub(super) enum Servers {
    /// One server, or the primary that Sentinels name.
    One(Arc<Node>),
    Cluster(Arc<Cluster>),
}

impl Servers {
    pub(super) async fn open(config: &Config, wiring: Arc<Wiring>) -> Result<Self, Error> {
        let node = match &config.topology {
            Topology::Cluster { seeds } => {
                return Cluster::open(wiring, seeds.clone()).await.map(Self::Cluster);
            }
            Topology::One(address) => Node::at(wiring, address.clone()),
            Topology::Sentinel { sentinels, master } => {
                let dialler = wiring.dialler.for_sentinels(config);
                let sentinel = Sentinel::new(dialler, sentinels.clone(), master.clone());
                let runtime = wiring.runtime.clone();
                let finder = sentinel.clone();
                let node = Node::new(
                    wiring,
                    Box::new(move || {
                        let sentinel = finder.clone();
                        Box::pin(async move { sentinel.find().await })
                    }),
                );
                node.open().await?;
                runtime.spawn(sentinel::follow(sentinel, Arc::downgrade(&node)));
                return Ok(Self::One(node));
            }
        };
        let link = node.open().await?;
        if link.probe.is_cluster == Some(true) {
            return Err(Error::new(
                ErrorKind::Refused,
                format!("redis at {} is a node of a cluster", link.address),
            )
            .hint(format!("a cluster is `redis+cluster://{}`", link.address)));
        }
        Ok(Self::One(node))
    }

    /// The node that has a slot.
    pub(super) fn node_of(&self, slot: Slot) -> Result<Arc<Node>, Error> {
        match self {
            Self::One(node) => Ok(node.clone()),
            Self::Cluster(cluster) => cluster.node_of(slot),
        }
    }

    /// All servers that take writes.
    pub(super) fn primaries(&self) -> Vec<Arc<Node>> {
        match self {
            Self::One(node) => vec![node.clone()],
            Self::Cluster(cluster) => cluster.primaries(),
        }
    }

    /// Where an error sends us, if it does.
    pub(super) async fn redirect(&self, error: &RedisError) -> Option<Redirect> {
        match self {
            Self::One(_) => None,
            Self::Cluster(cluster) => cluster.redirect(error).await,
        }
    }

    /// Answers as the engine is to take them: what fails in a cluster fails at one node of several.
    pub(super) fn judge(&self, answers: Vec<Answer>) -> Vec<Answer> {
        match self {
            Self::One(_) => answers,
            Self::Cluster(_) => {
                answers.into_iter().map(|answer| answer.map_err(Error::partial)).collect()
            }
        }
    }

    /// How many servers are in use, at most.
    pub(super) fn count(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Cluster(cluster) => cluster.count(),
        }
    }

    /// Whether a server is among them.
    pub(super) fn has(&self, address: &Address) -> bool {
        match self {
            Self::One(node) => node.link().is_ok_and(|link| link.address == *address),
            Self::Cluster(cluster) => cluster.has(address),
        }
    }

    /// A connection was lost, or a node says that it does not serve: in a cluster another may have its slots by now.
    pub(super) fn lost(&self) {
        if let Self::Cluster(cluster) = self {
            cluster.learn_soon();
        }
    }

    pub(super) fn close(&self) {
        match self {
            Self::One(node) => node.close(),
            Self::Cluster(cluster) => cluster.close(),
        }
    }
}
