//! A client starts as soon as a majority is there, whatever is wrong with the others.

use std::sync::Arc;

use leaseward::{
    Error, ErrorKind, Locks,
    store::{Severity, Store},
};
use leaseward_testkit::{Fsync, PATIENCE, Proxy, RedisServer};

use crate::{
    help::{LONG, is_away, until_all_vote},
    nodes::Nodes,
    operations::{connect, take, try_open, until},
};

/// Far longer than any test: whoever waited for a stopped node would not get to its end.
const PATIENT: &str = "timeout=10m";

/// A client, unless that takes for ever.
async fn in_time(url: &str) -> Result<Locks, Error> {
    let connecting = leaseward::connect(url);
    tokio::time::timeout(PATIENCE, connecting).await.expect("nobody is waited for")
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_a_stopped_node_to_start() {
    let nodes = Nodes::keeping();
    nodes[1].pause();
    let locks = in_time(&nodes.url(PATIENT)).await.expect("four are there");
    drop(take(locks.lock("a").ttl(LONG)).await);
    let found = locks.diagnose().await.expect("they answer");
    let [away] = &found.iter().filter(|one| is_away(one)).collect::<Vec<_>>()[..] else {
        panic!("one is away: {found:?}");
    };
    assert!(away.what.contains(&nodes[1].address()), "{away:?}");
    nodes[1].resume();
    until("it is connected", PATIENCE, || async {
        let found = locks.diagnose().await.ok()?;
        (!found.iter().any(is_away)).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_nobody_waits_for_a_stopped_node_either() {
    let nodes = Nodes::keeping();
    [0, 1, 2].iter().for_each(|at| nodes[*at].kill());
    nodes[3].pause();
    let failure = in_time(&nodes.url(PATIENT)).await.expect_err("there is no majority");
    nodes[3].resume();
    assert_eq!(failure.kind(), ErrorKind::Unavailable, "{failure:?}");
    for (at, node) in nodes.iter().enumerate() {
        assert_eq!(failure.message().contains(&node.address()), at != 4, "{failure}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_password_is_told_while_others_are_silent() {
    let nodes = Nodes::start(5, |at| {
        let password = if at == 3 { "other" } else { "sesame" };
        RedisServer::builder().appendonly(Fsync::Always).requirepass(password)
    });
    [0, 1].iter().for_each(|at| nodes[*at].pause());
    let url = nodes.url(PATIENT).replace("redlock://", "redlock://:sesame@");
    let failure = in_time(&url).await.expect_err("one refuses");
    [0, 1].iter().for_each(|at| nodes[*at].resume());
    assert_eq!(failure.kind(), ErrorKind::Refused, "{failure:?}");
    assert!(failure.message().contains(&nodes[3].address()), "{failure}");
}

/// The one client that every node takes, once it has forgotten whoever looked whether it is up.
async fn first_client(nodes: &Nodes) -> Arc<dyn Store> {
    let url = nodes.url("");
    let first = until("they take one", PATIENCE, || async { try_open(&url).await.ok() }).await;
    until_all_vote(&*first).await;
    first
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_takes_no_more_clients_stops_nobody() {
    let full = |count: usize| {
        Nodes::start(3, move |at| {
            let keeping = RedisServer::builder().appendonly(Fsync::Always);
            if at < count { keeping.arg("maxclients", "1") } else { keeping }
        })
    };
    let nodes = full(1);
    let first = first_client(&nodes).await;
    let second = connect(&nodes.url("")).await;
    drop(take(second.lock("a").ttl(LONG)).await);
    let says = "redis takes no more clients";
    let found = until("it is said", PATIENCE, || async {
        let found = second.diagnose().await.ok()?;
        found.into_iter().find(|one| one.what.contains(says))
    })
    .await;
    assert!(found.what.contains(&nodes[0].address()), "{found:?}");
    drop(first);
    // With two of them it is another matter, and goes by.
    let nodes = full(2);
    let _first = first_client(&nodes).await;
    let failure = try_open(&nodes.url("")).await.expect_err("there is no majority");
    assert_eq!(failure.kind(), ErrorKind::Unavailable, "{failure:?}");
    assert_eq!(failure.message().matches(says).count(), 2, "{failure}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_under_two_names_is_refused() {
    let nodes = Nodes::start(2, |_| RedisServer::builder().appendonly(Fsync::Always));
    let again = nodes[0].address().replace("127.0.0.1", "localhost");
    let url = format!("redlock://{again},{},{}", nodes[0].address(), nodes[1].address());
    let failure = try_open(&url).await.expect_err("there are but two");
    assert_eq!(failure.kind(), ErrorKind::InvalidInput, "{failure:?}");
    let says = format!("{} is the same server as {again}", nodes[0].address());
    assert!(failure.message().contains(&says), "{failure}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_turns_up_under_a_second_name_has_one_vote() {
    let nodes = Nodes::start(2, |_| RedisServer::builder().appendonly(Fsync::Always));
    let line = Proxy::start(&nodes[0].address());
    line.refuse();
    let (one, again) = (nodes[0].address(), line.address());
    let locks =
        connect(&format!("redlock://{one},{again},{}?timeout=5s", nodes[1].address())).await;
    drop(take(locks.lock("a").ttl(LONG)).await);
    line.pass();
    let says = format!("{again}: is the same server as {one}");
    let found = until("it is found", PATIENCE, || async {
        let found = locks.diagnose().await.ok()?;
        found.into_iter().find(|finding| finding.what.contains(&says))
    })
    .await;
    assert_eq!(found.severity, Severity::Danger, "{found:?}");
    nodes[1].kill();
    let failure = until("the loss is noticed", PATIENCE, || async {
        let failure = locks.lock("b").ttl(LONG).try_acquire().await.expect_err("one has one vote");
        failure.message().contains(&nodes[1].address()).then_some(failure)
    })
    .await;
    assert!(failure.message().contains(&format!("{again} (is the same server as {one}")));
    assert_eq!(nodes[0].cli(&["exists", "lock:b"]), "0", "what failed leaves nothing");
}
