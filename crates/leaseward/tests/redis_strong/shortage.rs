//! Replicas that are there but do not acknowledge.

use std::time::Duration;

use leaseward::{Attempt, ErrorKind, LostReason};

use crate::help::{
    acquire_in_time, blocking, connect, granted, is_held_at, primary_with, strong_url,
    wait_for_waiters,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_nobody_acknowledged_is_given_back_until_replicas_return() {
    let (primary, replicas) = blocking(|| primary_with(1));
    let locks = connect(&strong_url(&primary, 1)).await;
    blocking(|| replicas[0].pause());
    let refusal = locks.lock("job").try_acquire().await.expect_err("nobody has it");
    assert_eq!(refusal.kind(), ErrorKind::Unavailable);
    assert_eq!(refusal.message(), "only 0 of 1 replicas acknowledged the lease; it was given back");
    assert!(refusal.hint_text().is_some_and(|hint| hint.contains("1 connected")), "{refusal:?}");
    assert!(!blocking(|| is_held_at(&primary, "job")));
    blocking(|| replicas[0].resume());
    assert!(acquire_in_time(&locks, "job").await.is_held());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unacknowledged_renewal_does_not_move_the_deadline() {
    let (primary, replicas) = blocking(|| primary_with(1));
    let locks = connect(&strong_url(&primary, 1)).await;
    // The next renewal of the engine is a second away when the replica is paused.
    let lock = locks.lock("job").ttl(Duration::from_secs(3));
    let guard = lock.acquire().await.expect("it is free");
    let begun = guard.deadline();
    guard.renew().await.expect("it is acknowledged");
    assert!(guard.deadline() > begun, "an acknowledged one does move it");

    blocking(|| replicas[0].pause());
    let deadline = guard.deadline();
    let refusal = guard.renew().await.expect_err("nobody acknowledges");
    assert_eq!(refusal.kind(), ErrorKind::Indeterminate);
    assert!(refusal.message().starts_with("only 0 of 1"), "{refusal}");
    assert_eq!(guard.deadline(), deadline);
    assert_eq!(guard.lost().await, LostReason::Expired);
    assert_eq!(guard.deadline(), deadline);
    assert!(locks.clock().now() >= deadline);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handover_that_is_not_acknowledged_does_not_start() {
    let (primary, replicas) = blocking(|| primary_with(1));
    let (holder, waiter) = (connect(&primary.url()).await, connect(&strong_url(&primary, 1)).await);
    let held = holder.lock("job").acquire().await.expect("it is free");
    let (hasty, patient) = (waiter.lock("job").wait(Duration::from_secs(2)), waiter.lock("job"));
    let hasty = tokio::spawn(async move { hasty.acquire().await });
    wait_for_waiters(&holder, "job", 1).await;
    let patient = tokio::spawn(async move { patient.acquire().await });
    blocking(|| replicas[0].pause());
    held.release().await.expect("the primary answers");
    let refusal = hasty.await.expect("no panic").expect_err("it must not start");
    assert_eq!(refusal.kind(), ErrorKind::Unavailable);
    assert!(refusal.message().contains("only 0 of 1"), "{refusal}");
    assert!(!patient.is_finished(), "it has no limit");
    blocking(|| replicas[0].resume());
    assert!(patient.await.expect("no panic").expect("it is acknowledged now").is_held());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handover_starts_once_it_is_acknowledged() {
    let (primary, _replicas) = blocking(|| primary_with(1));
    let (holder, waiter) = (connect(&primary.url()).await, connect(&strong_url(&primary, 1)).await);
    let held = holder.lock("job").acquire().await.expect("it is free");
    let fence = held.fence();
    let waiting = waiter.lock("job");
    let waiting = tokio::spawn(async move { waiting.acquire().await });
    wait_for_waiters(&holder, "job", 1).await;
    blocking(|| primary.cli(&["config", "resetstat"]));
    held.release().await.expect("the primary answers");
    let guard = waiting.await.expect("no panic").expect("it is its turn");
    assert!(guard.is_held() && guard.fence() > fence);
    let stats = blocking(|| primary.info("commandstats"));
    assert!(stats.contains_key("cmdstat_wait"), "it was waited for: {stats:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_told_that_it_is_busy_needs_no_replica() {
    let (primary, replicas) = blocking(|| primary_with(1));
    let url = strong_url(&primary, 1);
    let (holder, other) = (connect(&url).await, connect(&url).await);
    let _held = granted(holder.lock("job").ttl(Duration::from_secs(60)).try_acquire().await);
    blocking(|| replicas[0].pause());
    let attempt = other.lock("job").try_acquire().await.expect("it is busy, whoever has it");
    assert!(matches!(attempt, Attempt::Busy(_)), "{attempt:?}");
}
