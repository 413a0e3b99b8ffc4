//! A lease outlives its nodes: whoever was away when it began, or has lost it, gets it at a renewal.

use std::time::Duration;

use leaseward::{
    Attempt, Mode,
    store::{Ask, IfBusy, Operation, Reply, Store},
};
use leaseward_testkit::{PATIENCE, RedisServer};

use crate::{
    help::{LONG, busy, held_at, owners, releasing, renewing, taking, until_all_vote},
    names::token,
    nodes::Nodes,
    operations::{ask, connect, granted, keys, one, open, take, until},
};

/// Renews until the lease is at every node again.
async fn mended(store: &dyn Store, nodes: &[RedisServer], what: &str, who: u128) {
    until("it is mended", PATIENCE, || async {
        let renewed = one(store, renewing(what, who)).await;
        assert!(matches!(renewed, Ok(Reply::Renewed(_))), "{renewed:?}");
        owners(nodes, what).iter().all(|owner| *owner == token(who).reveal()).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_outlives_the_restart_of_every_node_one_after_the_other() {
    // They keep nothing and vote again at once: what is shown is that the lease comes back to them.
    let nodes = Nodes::start(5, |_| RedisServer::builder());
    let url = nodes.url("amnesia=trust");
    let (store, other) = (open(&url).await, connect(&url).await);
    let grant = granted(one(&*store, taking("a", 1)).await);
    for (at, node) in nodes.iter().enumerate() {
        node.restart();
        assert!(keys(node).is_empty(), "it has forgotten everything");
        until_all_vote(&*store).await;
        mended(&*store, &nodes, "a", 1).await;
        assert!(busy(other.lock("a").try_acquire().await).holder.is_some(), "after {at}");
    }
    let shown = other.inspect(leaseward::store::Query::all()).await.expect("they answer");
    assert_eq!(shown[0].holders[0].fence, grant.fence(), "it is the same lease");
    assert!(matches!(one(&*store, releasing("a", 1)).await, Ok(Reply::Released)));
    let next = take(other.lock("a")).await;
    assert!(next.fence() > grant.fence());
}

#[tokio::test(flavor = "multi_thread")]
async fn rivals_that_were_given_the_empty_nodes_vote_do_not_hinder_it() {
    let nodes = Nodes::start(5, |_| RedisServer::builder());
    let url = nodes.url("amnesia=trust");
    let (store, rival) = (open(&url).await, open(&url).await);
    granted(one(&*store, taking("a", 1)).await);
    nodes[2].restart();
    until_all_vote(&*rival).await;
    // Node 2 grants it under a larger ballot; without a majority that is taken back.
    assert!(matches!(one(&*rival, taking("a", 2)).await, Ok(Reply::Busy(_))));
    until_all_vote(&*store).await;
    mended(&*store, &nodes, "a", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_come_back_beside_each_other() {
    let nodes = Nodes::start(5, |_| RedisServer::builder());
    let store = open(&nodes.url("amnesia=trust")).await;
    let reading =
        |who| Operation::Ask(Ask { mode: Mode::Shared, ..ask("a", who, IfBusy::Tell, LONG) });
    for who in [1, 2] {
        granted(one(&*store, reading(who)).await);
    }
    nodes[3].restart();
    until_all_vote(&*store).await;
    until("both are back", PATIENCE, || async {
        for who in [1, 2] {
            one(&*store, renewing("a", who)).await.expect("it answers");
        }
        (nodes[3].cli(&["hlen", "leaseward:r:lock:a"]) == "2").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_given_back_meanwhile_does_not_come_back() {
    let nodes = Nodes::start(5, |_| RedisServer::builder());
    let store = open(&nodes.url("amnesia=trust")).await;
    for turn in 0..50_u128 {
        let who = turn + 1;
        granted(one(&*store, taking("a", who)).await);
        crate::help::until_held_at(&nodes, "a", 5).await;
        nodes[4].cli(&["flushall"]);
        // Its mending begins here, and the release follows at once.
        one(&*store, renewing("a", who)).await.expect("it answers");
        if turn % 2 == 1 {
            tokio::time::sleep(Duration::from_micros(200 * u64::try_from(turn).expect("few")))
                .await;
        }
        assert!(matches!(one(&*store, releasing("a", who)).await, Ok(Reply::Released)));
        until("nothing is left", PATIENCE, || async { (held_at(&nodes, "a") == 0).then_some(()) })
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_minority_that_is_emptied_loses_no_lease() {
    let nodes = Nodes::keeping();
    let (locks, other) = (connect(&nodes.url("")).await, connect(&nodes.url("")).await);
    let held = take(locks.lock("a").ttl(LONG)).await;
    for node in &nodes[..2] {
        node.cli(&["flushall"]);
    }
    let attempt = other.lock("a").try_acquire().await;
    assert!(matches!(attempt, Ok(Attempt::Busy(_))), "{attempt:?}");
    until("it is put back", PATIENCE, || async {
        held.renew().await.expect("a majority has it");
        (held_at(&nodes, "a") == 5).then_some(())
    })
    .await;
    let fence = held.fence();
    held.release().await.expect("given back");
    assert!(take(other.lock("a")).await.fence() > fence);
}
