//! etcd's leases that carry ours: shared by a class, lost as a whole, given back at the end.

use std::time::Duration;

use leaseward::LostReason;
use leaseward_testkit::Etcd;

use crate::help::{LONG, asking, connect, granted, queue_of, take, until, view};

fn leases(etcd: &Etcd) -> Vec<String> {
    let said = etcd.cli(&["lease", "list"]);
    said.lines().skip(1).map(str::to_owned).collect()
}

#[tokio::test]
async fn one_lease_carries_all_of_a_class() {
    let etcd = Etcd::start();
    let locks = connect(&etcd.url()).await;
    let mut guards = Vec::new();
    for at in 0..20 {
        guards.push(take(locks.lock(format!("n{at}")).ttl(Duration::from_secs(30))).await);
    }
    assert_eq!(leases(&etcd).len(), 1);
    guards.push(take(locks.lock("other").ttl(LONG)).await);
    assert_eq!(leases(&etcd).len(), 2);
    for guard in guards {
        guard.release().await.expect("given back");
    }
    locks.shutdown().await;
    assert_eq!(leases(&etcd).len(), 0, "nothing is left behind");
}

#[tokio::test]
async fn a_revoked_lease_loses_what_it_carried_and_nothing_else() {
    let etcd = Etcd::start();
    let locks = connect(&etcd.url()).await;
    let kept = take(locks.lock("kept").ttl(LONG)).await;
    let before = leases(&etcd);
    let lost = take(locks.lock("lost").ttl(Duration::from_secs(5))).await;
    let new = leases(&etcd).into_iter().find(|lease| !before.contains(lease)).expect("its own");
    etcd.cli(&["lease", "revoke", &new]);
    let reason = lost.lost().await;
    assert!(matches!(reason, LostReason::SessionEnded | LostReason::NotOurs), "{reason}");
    assert!(kept.is_held());
    let again = take(locks.lock("lost").ttl(Duration::from_secs(5))).await;
    assert!(again.fence() > lost.fence());
}

/// etcd issue 11456: the lease of a waiter ends, its key goes, then the holder's. That is no grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_ends_while_waiting_is_no_grant() {
    let etcd = Etcd::start();
    let (holder, waiter, other) =
        (connect(&etcd.url()).await, connect(&etcd.url()).await, connect(&etcd.url()).await);
    let held = take(holder.lock("x").ttl(LONG)).await;
    let before = leases(&etcd);
    let waiting = asking(waiter.lock("x").ttl(Duration::from_secs(5)));
    queue_of(&holder, "x", 1).await;
    let second = asking(other.lock("x").ttl(LONG));
    queue_of(&holder, "x", 2).await;
    let of_waiter = leases(&etcd).into_iter().find(|lease| !before.contains(lease));
    // The other one's lease is of the class of the holder's, but of its own process: three in all.
    assert_eq!(leases(&etcd).len(), 3);
    etcd.cli(&["lease", "revoke", &of_waiter.expect("its own")]);
    held.release().await.expect("given back");
    let first = granted(second).await;
    // Whoever lost its place has one behind, under a new token.
    assert!(!waiting.is_finished(), "two hold it");
    let fence = first.fence();
    first.release().await.expect("given back");
    assert!(granted(waiting).await.fence() > fence);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_deleted_by_hand_is_taken_again() {
    let etcd = Etcd::start();
    let (one, other) = (connect(&etcd.url()).await, connect(&etcd.url()).await);
    let held = take(one.lock("x").ttl(LONG)).await;
    let waiting = asking(other.lock("x").ttl(Duration::from_secs(6)));
    queue_of(&one, "x", 1).await;
    let keys = etcd.cli(&["get", "--prefix", "leaseward/x/", "--keys-only", "--sort-by=CREATE"]);
    let own = keys.lines().rfind(|line| !line.is_empty()).expect("its key");
    etcd.cli(&["del", own]);
    queue_of(&one, "x", 1).await;
    held.release().await.expect("given back");
    assert!(granted(waiting).await.is_held());
}

#[tokio::test]
async fn a_short_ttl_is_raised_and_said_to_be() {
    let etcd = Etcd::start();
    let locks = connect(&etcd.url()).await;
    let guard = take(locks.lock("x").ttl(Duration::from_millis(300))).await;
    assert_eq!(guard.ttl(), Duration::from_secs(2));
    assert!(guard.remaining() <= Duration::from_secs(2));
}

/// The watch's revision is compacted away while the connection is gone: a look tells what happened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compaction_loses_nobody() {
    let etcd = Etcd::start();
    let (one, other) = (connect(&etcd.url()).await, connect(&etcd.url()).await);
    let held = take(one.lock("x").ttl(LONG)).await;
    let waiting = asking(other.lock("x").ttl(LONG));
    queue_of(&one, "x", 1).await;
    for at in 0..50 {
        etcd.cli(&["put", "filler", &at.to_string()]);
    }
    let said = etcd.cli(&["get", "filler", "-w", "json"]);
    let said: serde_json::Value = serde_json::from_str(&said).expect("readable");
    etcd.cli(&["compact", &said["header"]["revision"].to_string()]);
    etcd.restart_all();
    until("one can release", || async { view(&one, "x").await.holders.pop() }).await;
    held.release().await.expect("given back");
    assert!(granted(waiting).await.is_held());
}
