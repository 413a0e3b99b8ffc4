//! What the stories and the simulation found, told step by step so that it stays found.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use leaseward::{
    Attempt, ErrorKind, Locks, LostReason, Name, clock::VirtualClock, store::Push,
    stores::memory::Memory,
};

use crate::gated::{Gate, Gated};

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Two processes on one store; the gate is the first one's.
fn two() -> (Locks, Locks, Arc<Gate>) {
    let clock = Arc::new(VirtualClock::new());
    let memory = Memory::new(clock.clone());
    let (gated, gate) = Gated::new(memory.another());
    let over = |seed, store| {
        Locks::builder().clock(clock.clone()).seed(seed).over(store).expect("a client")
    };
    (over(1, gated), over(2, Arc::new(memory)), gate)
}

async fn is_busy(locks: &Locks, name: &str) -> bool {
    matches!(locks.lock(name).try_acquire().await.expect("asks"), Attempt::Busy(_))
}

#[tokio::test(start_paused = true)]
async fn an_extension_outlasts_the_renewals_after_it() {
    let (ours, others, gate) = two();
    let guard = ours.lock("x").ttl(secs(1)).acquire().await.expect("free");
    guard.extend(secs(60)).await.expect("ours");
    tokio::time::sleep(secs(3)).await;
    gate.refuse();
    tokio::time::sleep(secs(10)).await;
    assert!(guard.is_held());
    assert!(is_busy(&others, "x").await, "two holders");
}

#[tokio::test(start_paused = true)]
async fn a_refresh_that_fails_leaves_a_pushed_grant_alone() {
    let (ours, others, gate) = two();
    let before = others.lock("x").acquire().await.expect("free");
    let waits = tokio::spawn(async move { ours.lock("x").ttl(secs(3)).acquire().await });
    tokio::time::sleep(Duration::from_millis(500)).await;
    gate.keep();
    tokio::time::sleep(secs(1)).await;
    before.release().await.expect("ours");
    let guard = waits.await.expect("no panic").expect("pushed");
    gate.refuse();
    gate.open();
    for _ in 0..10 {
        tokio::time::sleep(secs(1)).await;
        assert!(guard.is_held());
        assert!(is_busy(&others, "x").await, "two holders");
    }
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_is_refused_closes_the_breaker() {
    let (ours, _others, gate) = two();
    gate.refuse();
    for _ in 0..10 {
        let error = ours.lock("x").acquire().await.expect_err("shut");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
    assert!(ours.health().await.breaker_open);
    tokio::time::sleep(secs(30)).await;
    gate.refuse_as(ErrorKind::Refused);
    let refused = ours.lock("x").acquire().await.expect_err("turned away");
    assert_eq!(refused.kind(), ErrorKind::Refused);
    gate.open();
    let _guard = ours.lock("x").acquire().await.expect("the store answers again");
}

#[tokio::test(start_paused = true)]
async fn work_is_not_polled_past_the_deadline() {
    let (ours, _others, _gate) = two();
    let went_on = Arc::new(AtomicBool::new(false));
    let seen = went_on.clone();
    let lock = ours.lock("x").ttl(secs(1)).no_renewal();
    let work = tokio::spawn(async move {
        let slept = |_lease| async move {
            tokio::time::sleep(Duration::from_millis(900)).await;
            seen.store(true, Ordering::Relaxed);
        };
        lock.run(slept).await
    });
    tokio::time::sleep(Duration::from_millis(600)).await;
    // The runtime is blocked past the deadline; the work's own timer is the first that fires.
    tokio::time::advance(secs(5)).await;
    let error = work.await.expect("no panic").expect_err("too late");
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(!went_on.load(Ordering::Relaxed), "worked without the lease");
}

#[tokio::test(start_paused = true)]
async fn a_release_ends_although_the_store_never_answers() {
    let (ours, _others, gate) = two();
    let mut held = Vec::new();
    for name in ["x", "y", "z"] {
        held.push(ours.lock(name).ttl(secs(3600)).acquire().await.expect("free"));
    }
    gate.keep();
    // The first is under way, the others wait behind it, and so does who asks.
    let releases: Vec<_> =
        held.into_iter().map(|guard| tokio::spawn(async move { guard.release().await })).collect();
    let asks = ours.clone();
    let asks = tokio::spawn(async move { asks.lock("a").acquire().await });
    for release in releases {
        let ended = tokio::time::timeout(secs(60), release).await.expect("it does not hang");
        let error = ended.expect("no panic").expect_err("nobody knows");
        let expected = [ErrorKind::Indeterminate, ErrorKind::Unavailable];
        assert!(expected.contains(&error.kind()), "{error}");
    }
    assert!(!asks.is_finished(), "who asks without a limit waits");
    asks.abort();
}

/// Its holder has stopped asking long before.
#[tokio::test(start_paused = true)]
async fn a_lease_is_given_back_after_an_outage_that_is_longer_than_a_release_waits() {
    let (ours, others, gate) = two();
    let lock = |name| ours.lock(name).ttl(secs(3600));
    let dropped = lock("x").acquire().await.expect("free");
    let released = lock("y").acquire().await.expect("free");
    gate.refuse();
    drop(dropped);
    let error = released.release().await.expect_err("the store is away");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    tokio::time::sleep(secs(600)).await;
    gate.open();
    tokio::time::sleep(secs(2)).await;
    assert!(!is_busy(&others, "x").await && !is_busy(&others, "y").await);
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_given_back_although_its_client_has_gone() {
    let (ours, others, gate) = two();
    let guard = ours.lock("x").ttl(secs(3600)).acquire().await.expect("free");
    gate.refuse();
    drop((guard, ours));
    tokio::time::sleep(secs(5)).await;
    gate.open();
    tokio::time::sleep(secs(2)).await;
    assert!(!is_busy(&others, "x").await, "nobody has given it back");
}

/// Something changes while a place is being refreshed, and then the store fails each ask at once.
#[tokio::test(start_paused = true)]
async fn a_store_that_fails_at_once_is_asked_after_pauses_whatever_it_has_pushed() {
    let (ours, others, gate) = two();
    let before = others.lock("x").acquire().await.expect("free");
    let waits = tokio::spawn(async move { ours.lock("x").ttl(secs(60)).acquire().await });
    tokio::time::sleep(secs(1)).await;
    gate.keep();
    tokio::time::sleep(secs(5)).await;
    gate.push(Push::Woken { name: Name::new("x").expect("a good name") });
    gate.refuse();
    tokio::time::sleep(secs(60)).await;
    assert!(gate.seen().len() < 1_000, "{} asks in a minute", gate.seen().len());
    gate.open();
    before.release().await.expect("ours");
    drop(waits.await.expect("no panic").expect("granted"));
}

#[tokio::test(start_paused = true)]
async fn a_wait_in_line_outlasts_an_outage_of_hours() {
    let (ours, others, gate) = two();
    let before = others.lock("x").ttl(secs(20)).acquire().await.expect("free");
    let lock = ours.lock("x").ttl(secs(2)).wait(secs(20_000));
    let waits = tokio::spawn(async move { lock.acquire().await });
    tokio::time::sleep(secs(1)).await;
    gate.refuse();
    tokio::time::sleep(secs(10_000)).await;
    assert!(!waits.is_finished(), "its wait is not over");
    before.release().await.expect("ours");
    gate.open();
    let guard = waits.await.expect("no panic").expect("the store is back");
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_in_an_outage_says_that_the_store_is_away() {
    let (ours, others, gate) = two();
    let _before = others.lock("x").acquire().await.expect("free");
    let wait = |ours: Locks| {
        let lock = ours.lock("x").ttl(secs(2)).wait(secs(60));
        tokio::spawn(async move { lock.acquire().await })
    };
    let (first, second) = (wait(ours.clone()), wait(ours));
    tokio::time::sleep(secs(1)).await;
    gate.refuse();
    let error = first.await.expect("no panic").expect_err("nothing was answered");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.message().contains("the store is away"), "{error}");
    let error = second.await.expect("no panic").expect_err("nothing was answered");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_after_an_outage_says_who_holds_the_name() {
    let (ours, others, gate) = two();
    let _before = others.lock("x").acquire().await.expect("free");
    let lock = ours.lock("x").ttl(secs(2)).wait(secs(60));
    let waits = tokio::spawn(async move { lock.acquire().await });
    tokio::time::sleep(secs(1)).await;
    gate.refuse();
    tokio::time::sleep(secs(50)).await;
    gate.open();
    let error = waits.await.expect("no panic").expect_err("it is held");
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_ends_a_wait_in_line_at_once() {
    let (ours, others, gate) = two();
    let _before = others.lock("x").acquire().await.expect("free");
    let lock = ours.lock("x").ttl(secs(2));
    let waits = tokio::spawn(async move { lock.acquire().await });
    tokio::time::sleep(secs(1)).await;
    gate.refuse();
    tokio::time::sleep(secs(50)).await;
    gate.refuse_as(ErrorKind::Refused);
    let error = waits.await.expect("no panic").expect_err("it needs a person");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
}

#[tokio::test(start_paused = true)]
async fn who_stands_behind_a_lease_that_an_outage_ends_waits_on() {
    let (ours, _others, gate) = two();
    let held = ours.lock("x").ttl(secs(2)).acquire().await.expect("free");
    let lock = ours.lock("x").owner("another").ttl(secs(2));
    let waits = tokio::spawn(async move { lock.acquire().await });
    gate.refuse();
    assert_eq!(held.lost().await, LostReason::Expired);
    tokio::time::sleep(secs(100)).await;
    assert!(!waits.is_finished(), "it has stood in line");
    gate.open();
    assert!(waits.await.expect("no panic").expect("the store is back").is_held());
}

#[tokio::test(start_paused = true)]
async fn several_names_are_all_held_after_an_outage() {
    let (ours, others, gate) = two();
    let before = others.lock("b").ttl(secs(1_000)).acquire().await.expect("free");
    let names = ours.all(["a", "b"]).ttl(secs(2)).wait(secs(10_000));
    let waits = tokio::spawn(async move { names.acquire().await });
    tokio::time::sleep(secs(1)).await;
    gate.refuse();
    tokio::time::sleep(secs(100)).await;
    assert!(!waits.is_finished(), "its wait is not over");
    before.release().await.expect("ours");
    gate.open();
    let guard = waits.await.expect("no panic").expect("the store is back");
    assert!(guard.is_held(), "`a` was lost while `b` was waited for");
    assert!(is_busy(&others, "a").await && is_busy(&others, "b").await);
}
