//! What the tests share: lines to the nodes that can be broken, short forms of operations.

use std::time::Duration;

use leaseward::{
    Attempt, Busy, Error, Guard, Locks,
    store::{Finding, IfBusy, Operation, Release, Renew, Store},
};
use leaseward_testkit::{PATIENCE, Proxy, RedisServer};

use crate::{
    names::{name, token},
    nodes::Nodes,
    operations::{ask, until},
};

/// Longer than any test, and no longer than leases may be here.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// How a client reaches the nodes, each over a line of its own.
#[derive(Debug)]
pub(crate) struct Lines(pub(crate) Vec<Proxy>);

impl Lines {
    pub(crate) fn to(nodes: &Nodes) -> Self {
        Self(nodes.iter().map(|node| Proxy::start(&node.address())).collect())
    }

    pub(crate) fn url(&self, settings: &str) -> String {
        let nodes: Vec<_> = self.0.iter().map(Proxy::address).collect();
        format!("redlock://{}?timeout=5s&{settings}", nodes.join(",")).trim_end_matches('&').into()
    }

    /// Breaks some of them for good.
    pub(crate) fn cut(&self, which: &[usize]) {
        for at in which {
            self.0[*at].refuse();
            self.0[*at].cut();
        }
    }

    pub(crate) fn mend(&self) {
        self.0.iter().for_each(Proxy::pass);
    }
}

pub(crate) fn taking(what: &str, who: u128) -> Operation {
    Operation::Ask(ask(what, who, IfBusy::Tell, LONG))
}

pub(crate) fn renewing(what: &str, who: u128) -> Operation {
    Operation::Renew(Renew { name: name(what), token: token(who), ttl: LONG })
}

pub(crate) fn releasing(what: &str, who: u128) -> Operation {
    let keep = Duration::ZERO;
    Operation::Release(Release { name: name(what), token: token(who), keep })
}

/// Who is in the way.
pub(crate) fn busy(attempt: Result<Attempt, Error>) -> Busy {
    match attempt {
        Ok(Attempt::Busy(busy)) => busy,
        other => panic!("not busy: {other:?}"),
    }
}

/// Whose token a name has at each node.
pub(crate) fn owners(nodes: &[RedisServer], what: &str) -> Vec<String> {
    nodes.iter().map(|node| node.cli(&["get", &format!("lock:{what}")])).collect()
}

/// At how many nodes a name is held.
pub(crate) fn held_at(nodes: &[RedisServer], what: &str) -> usize {
    owners(nodes, what).iter().filter(|owner| !owner.is_empty()).count()
}

/// Waits until a name is held at so many nodes: those who decide do not wait for the others.
pub(crate) async fn until_held_at(nodes: &[RedisServer], what: &str, count: usize) {
    until("it is held at so many nodes", PATIENCE, || async {
        (held_at(nodes, what) == count).then_some(())
    })
    .await;
}

/// A lease, as soon as a majority gives it.
pub(crate) async fn take_in_time(locks: &Locks, what: &str) -> Guard {
    until("it is granted", PATIENCE, || async {
        match locks.lock(what).ttl(LONG).try_acquire().await {
            Ok(Attempt::Granted(guard)) => Some(guard),
            Ok(Attempt::Busy(_)) | Err(_) => None,
        }
    })
    .await
}

/// Whether a finding says that a node is not there, or does not vote.
pub(crate) fn is_away(finding: &Finding) -> bool {
    ["the others decide without it", "there is no majority"]
        .iter()
        .any(|says| finding.meaning.contains(says))
}

/// Waits until a client is connected to all of its nodes, and they vote: nothing is wrong with any.
pub(crate) async fn until_all_vote(store: &dyn Store) {
    until("all nodes vote", PATIENCE, || async {
        let found = store.diagnose().await.expect("it can be asked");
        (!found.iter().any(is_away)).then_some(())
    })
    .await;
}

/// How often the script was called at a node.
pub(crate) fn calls(node: &RedisServer) -> u64 {
    node.calls().get("evalsha").copied().unwrap_or(0)
}
