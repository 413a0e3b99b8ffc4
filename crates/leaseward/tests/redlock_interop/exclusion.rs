//! They keep us out, and we keep them out.

use std::time::Duration;

use leaseward::{ErrorKind, LostReason, Release};
use leaseward_testkit::{PATIENCE as SOON, RedisServer, eventually, peers::Library};

use crate::{
    help::{LONG, Theirs, busy, in_time, ours, with_both_versions},
    nodes::Nodes,
};

const STRANGER: &str = "a client of another library";

/// Long enough for a slow machine to lengthen it in time.
const SHORT: Duration = Duration::from_millis(1_500);

with_both_versions! {
    theirs_keeps_ours_out
    ours_keeps_theirs_out
    what_a_majority_has_keeps_out_who_finds_the_others_free
    renewals_keep_the_other_out
    nobody_touches_what_another_took_meanwhile
    a_crash_ends_with_its_ttl
}

fn values(nodes: &[RedisServer], key: &str) -> Vec<String> {
    nodes.iter().map(|node| node.cli(&["get", key])).collect()
}

async fn theirs_keeps_ours_out(library: Library) {
    let nodes = Nodes::keeping();
    let (mut theirs, locks) = (Theirs::start(library, &nodes).await, ours(&nodes).await);
    assert!(theirs.acquire("a", LONG).await);
    let before = values(&nodes, "a");
    for lock in [locks.lock("a"), locks.lock("a").shared()] {
        let holder = busy(lock.try_acquire().await).holder.expect("somebody has it");
        assert_eq!(&*holder.who, STRANGER);
        assert!(holder.remaining.is_some_and(|left| left <= LONG), "{holder:?}");
    }
    let several = locks.all(["a", "b"]).try_acquire().await.expect("they answer");
    assert!(format!("{several:?}").contains(STRANGER), "{several:?}");
    assert_eq!(values(&nodes, "a"), before, "nothing of theirs is touched");
    assert!(values(&nodes, "b").iter().all(String::is_empty), "all or none");
    theirs.release().await;
    let guard = in_time(locks.lock("a").acquire()).await.expect("it is free");
    assert_eq!(guard.release().await.expect("they answer"), Release::Released);
}

async fn ours_keeps_theirs_out(library: Library) {
    let nodes = Nodes::keeping();
    let (mut theirs, locks) = (Theirs::start(library, &nodes).await, ours(&nodes).await);
    for lock in [locks.lock("a"), locks.lock("a").shared()] {
        let guard = lock.ttl(LONG).acquire().await.expect("it is free");
        assert!(!theirs.acquire("a", LONG).await);
        guard.renew().await.expect("it is ours");
        assert!(!theirs.acquire("a", LONG).await);
        guard.release().await.expect("they answer");
        eventually("it is free everywhere", SOON, || {
            values(&nodes, "a").iter().all(String::is_empty).then_some(())
        });
        assert!(theirs.acquire("a", LONG).await);
        theirs.release().await;
    }
}

async fn what_a_majority_has_keeps_out_who_finds_the_others_free(library: Library) {
    let nodes = Nodes::keeping();
    let (mut theirs, locks) = (Theirs::start(library, &nodes).await, ours(&nodes).await);
    // Not the first: it is the one that they are started with.
    let away = [2, 4];
    away.iter().for_each(|at| nodes[*at].kill());
    let lock = locks.lock("a").ttl(LONG).no_renewal();
    let guard = in_time(lock.acquire()).await.expect("three are enough");
    away.iter().for_each(|at| nodes[*at].restart());
    assert!(!theirs.acquire("a", LONG).await, "two are not");
    guard.release().await.expect("they answer");
    let taken = async {
        while !theirs.acquire("a", LONG).await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    in_time(taken).await;
    away.iter().for_each(|at| nodes[*at].kill());
    assert!(busy(locks.lock("a").try_acquire().await).holder.is_some());
}

async fn renewals_keep_the_other_out(library: Library) {
    let nodes = Nodes::keeping();
    let (mut theirs, locks) = (Theirs::start(library, &nodes).await, ours(&nodes).await);
    // Ours renews by itself: held for more than its TTL.
    let guard = locks.lock("a").ttl(SHORT).acquire().await.expect("it is free");
    let begun = std::time::Instant::now();
    while begun.elapsed() <= 2 * SHORT {
        assert!(!theirs.acquire("a", LONG).await);
        tokio::time::sleep(SHORT / 5).await;
    }
    assert!(guard.is_held());
    guard.release().await.expect("they answer");
    // Theirs is lengthened by hand.
    let taken = async {
        while !theirs.acquire("a", SHORT).await {
            tokio::time::sleep(SHORT / 10).await;
        }
    };
    in_time(taken).await;
    let begun = std::time::Instant::now();
    while begun.elapsed() <= 2 * SHORT {
        assert!(theirs.extend(SHORT).await);
        let holder = busy(locks.lock("a").try_acquire().await).holder;
        assert_eq!(holder.as_ref().map(|holder| &*holder.who), Some(STRANGER));
        tokio::time::sleep(SHORT / 5).await;
    }
    theirs.release().await;
}

async fn nobody_touches_what_another_took_meanwhile(library: Library) {
    let nodes = Nodes::keeping();
    let (mut theirs, locks) = (Theirs::start(library, &nodes).await, ours(&nodes).await);
    let guard = locks.lock("a").ttl(LONG).no_renewal().acquire().await.expect("it is free");
    eventually("all have it", SOON, || {
        values(&nodes, "a").iter().all(|value| !value.is_empty()).then_some(())
    });
    nodes.iter().for_each(|node| drop(node.cli(&["del", "a"])));
    assert!(theirs.acquire("a", LONG).await);
    let before = values(&nodes, "a");
    assert_eq!(guard.renew().await.expect_err("it is theirs").kind(), ErrorKind::Lost);
    assert_eq!(guard.lost().await, LostReason::NotOurs);
    assert_eq!(guard.release().await.expect("an answer"), Release::AlreadyExpired);
    assert_eq!(values(&nodes, "a"), before);
}

async fn a_crash_ends_with_its_ttl(library: Library) {
    let nodes = Nodes::keeping();
    let (mut theirs, locks) = (Theirs::start(library, &nodes).await, ours(&nodes).await);
    assert!(theirs.acquire("a", SHORT).await);
    theirs.crash();
    let guard = in_time(locks.lock("a").acquire()).await.expect("its time ends");
    assert!(guard.is_held());
}
