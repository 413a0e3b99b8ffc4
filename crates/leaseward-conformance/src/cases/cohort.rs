//! Leases passed on inside a process.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use leaseward::{Error, EventKind, Guard, Lock, Locks};
use tokio::{sync::oneshot, task::JoinHandle};

use crate::{
    Case, Fixture, Kind, Need,
    case::case,
    support::{
        Heard, LONG, SHORT, Witness, asking, cancel, granted, join, on_own_runtime, queue_of, take,
        view,
    },
};

pub(super) const CASES: &[Case] = &[
    case!(passes_on_with_growing_fences, Need::Blocks).timed(),
    case!(uses_no_fences_nobody_reserved, Need::Blocks).timed(),
    case!(ends_when_another_client_waits, Need::Blocks),
    case!(ends_its_turn_when_another_client_waits, Need::Blocks, Need::Queue).timed(),
    case!(inherits_the_deadline, Need::Blocks).timed(),
    case!(never_passes_on_a_lost_lease, Need::Blocks, Need::Queue),
    case!(never_passes_on_what_was_asked_for_otherwise, Need::Blocks, Need::Value),
    case!(who_is_left_behind_gets_what_it_asked_for, Need::Value),
];

async fn passes_on_with_growing_fences(fixture: &Fixture) {
    const WAITERS: usize = 10;
    let (locks, line) = fixture.faulty().await;
    let other = fixture.client().await;
    let heard = Heard::of(&locks);
    let witness = Arc::new(Witness::default());
    let held = locks.lock("x").ttl(LONG).acquire().await.expect("free");
    let inside = witness.enter(held.fence());
    let waiting: Vec<_> = (0..WAITERS)
        .map(|_| {
            let (lock, witness) = (locks.lock("x").ttl(LONG), witness.clone());
            tokio::spawn(async move {
                let guard = lock.acquire().await.expect("granted");
                let inside = witness.enter(guard.fence());
                tokio::task::yield_now().await;
                drop(inside);
                guard.release().await.expect("given back");
            })
        })
        .collect();
    heard.nth(EventKind::Waiting, WAITERS).await;
    drop(inside);
    held.release().await.expect("given back");
    for waiter in waiting {
        waiter.await.expect("served, with a larger fence");
    }
    assert_eq!(line.seen(Kind::Ask), 2, "once for the first, and once for all of them");
    assert_eq!(line.seen(Kind::Release), 2);
    drop(witness.enter(take(&other.lock("x")).await.fence()));
}

/// Rule R10: nobody waited when the first one asked, so its lease goes back with its only fence.
async fn uses_no_fences_nobody_reserved(fixture: &Fixture) {
    let (locks, other) = (fixture.client().await, fixture.client().await);
    let heard = Heard::of(&locks);
    let witness = Witness::default();
    let lock = locks.lock("x").ttl(LONG);
    let first = take(&lock).await;
    drop(witness.enter(first.fence()));
    let second = asking(lock);
    heard.first(EventKind::Waiting).await;
    first.release().await.expect("given back");
    let second = granted(second).await;
    drop(witness.enter(second.fence()));
    second.release().await.expect("given back");
    drop(witness.enter(take(&other.lock("x")).await.fence()));
}

async fn ends_when_another_client_waits(fixture: &Fixture) {
    let (busy, other) = (fixture.client().await, fixture.client().await);
    let served = Arc::new(AtomicBool::new(false));
    let witness = Arc::new(Witness::default());
    let heard = Heard::of(&busy);
    let crowd: Vec<_> = (0..4)
        .map(|_| {
            let (lock, served) = (busy.lock("x").ttl(LONG), served.clone());
            let witness = witness.clone();
            tokio::spawn(async move {
                while !served.load(Ordering::SeqCst) {
                    let guard = lock.acquire().await.expect("granted");
                    let inside = witness.enter(guard.fence());
                    tokio::task::yield_now().await;
                    drop(inside);
                    guard.release().await.expect("given back");
                }
            })
        })
        .collect();
    heard.nth(EventKind::Acquired, 20).await;
    let guard = other.lock("x").ttl(LONG).acquire().await.expect("it is not starved");
    let inside = witness.enter(guard.fence());
    served.store(true, Ordering::SeqCst);
    drop(inside);
    guard.release().await.expect("given back");
    for task in crowd {
        task.await.expect("never two at once");
    }
}

/// How long each local holder holds it: a second's turn ends long before all of them had theirs.
const HOLD: Duration = Duration::from_millis(200);
const LOCAL: usize = 20;

async fn ends_its_turn_when_another_client_waits(fixture: &Fixture) {
    let (busy, other) = (fixture.client().await, fixture.client().await);
    let heard = Heard::of(&busy);
    let held = busy.lock("x").ttl(LONG).acquire().await.expect("free");
    let served = Arc::new(AtomicUsize::new(0));
    for _ in 0..LOCAL {
        let (lock, served, clock) = (busy.lock("x").ttl(LONG), served.clone(), fixture.clock());
        tokio::spawn(async move {
            let guard = lock.acquire().await.expect("granted");
            clock.sleep_until(clock.now() + HOLD).await;
            served.fetch_add(1, Ordering::SeqCst);
            guard.release().await.expect("given back");
        });
    }
    heard.nth(EventKind::Waiting, LOCAL).await;
    // The ask that follows reserves fences for all who wait here; only then does the other one come.
    held.release().await.expect("given back");
    heard.nth(EventKind::Acquired, 2).await;
    let waiting = asking(other.lock("x").ttl(LONG));
    queue_of(&other, "x", 1).await;
    assert!(granted(waiting).await.is_held());
    let served = served.load(Ordering::SeqCst);
    assert!((1..LOCAL).contains(&served), "{served} of {LOCAL} were served first");
}

/// Two who wait at the same time, so that the first of them has fences for both, and is there.
async fn first_of_two(
    locks: &Locks,
    first: Lock,
    second: Lock,
) -> (Guard, JoinHandle<Result<Guard, Error>>) {
    let heard = Heard::of(locks);
    let held = locks.lock("x").ttl(LONG).acquire().await.expect("free");
    let first = asking(first);
    heard.nth(EventKind::Waiting, 1).await;
    let second = asking(second);
    heard.nth(EventKind::Waiting, 2).await;
    held.release().await.expect("given back");
    (granted(first).await, second)
}

/// Rule R11: a lease that is passed on lasts as long as the store was told, not longer.
async fn inherits_the_deadline(fixture: &Fixture) {
    let (locks, line) = fixture.faulty().await;
    let lock = locks.lock("x").ttl(SHORT * 4);
    let (first, second) = first_of_two(&locks, lock.clone(), lock).await;
    line.sent(Kind::Renew, 1).await;
    line.cut();
    fixture.until(fixture.now() + SHORT).await;
    let deadline = first.deadline();
    first.release().await.expect("passed on");
    let second = granted(second).await;
    assert_eq!(second.deadline(), deadline, "it was given time nobody granted");
}

/// The holder's runtime was blocked past the deadline, so nobody there has noticed yet.
async fn never_passes_on_a_lost_lease(fixture: &Fixture) {
    let other = fixture.client().await;
    let (tell, told) = oneshot::channel();
    let (go_on, blocks) = mpsc::channel::<()>();
    let thread = on_own_runtime(fixture, |fixture| async move {
        let locks = fixture.client().await;
        let lock = locks.lock("x").ttl(SHORT);
        let (first, second) = first_of_two(&locks, lock.clone(), lock).await;
        let _ = tell.send(());
        blocks.recv().expect("told to go on");
        drop(first);
        granted(second).await.fence()
    });
    told.await.expect("taken");
    let next = other.lock("x").ttl(LONG).acquire().await.expect("in the end");
    go_on.send(()).expect("still there");
    queue_of(&other, "x", 1).await;
    let fence = next.fence();
    next.release().await.expect("given back");
    assert!(join(thread).await > fence, "it was passed on after its end");
}

/// What the store recorded must be true for each holder of the lease.
async fn never_passes_on_what_was_asked_for_otherwise(fixture: &Fixture) {
    let (locks, line) = fixture.faulty().await;
    let heard = Heard::of(&locks);
    let lock = locks.lock("x").ttl(LONG);
    let (first, second) = first_of_two(&locks, lock.clone(), lock.ttl(LONG / 2)).await;
    let (fence, asks) = (first.fence(), line.seen(Kind::Ask));
    first.release().await.expect("given back");
    let second = granted(second).await;
    assert!(second.fence() > fence && second.ttl() == LONG / 2);
    assert!(line.seen(Kind::Ask) > asks, "it asked for itself");
    let third = asking(locks.lock("x").ttl(LONG / 2).value("mine"));
    heard.nth(EventKind::Waiting, 1).await;
    second.release().await.expect("given back");
    let _third = granted(third).await;
    let seen = view(&locks, "x").await;
    assert_eq!(
        seen.holders[0].value.as_ref().map(leaseward::Value::to_text).as_deref(),
        Some("mine")
    );
}

/// It joined the bid of one who goes before it is granted.
async fn who_is_left_behind_gets_what_it_asked_for(fixture: &Fixture) {
    let (locks, other) = (fixture.client().await, fixture.client().await);
    let heard = Heard::of(&locks);
    let held = take(&other.lock("x").ttl(LONG)).await;
    let first = asking(locks.lock("x").ttl(LONG));
    heard.nth(EventKind::Waiting, 1).await;
    let second = asking(locks.lock("x").ttl(LONG / 2).value("mine"));
    heard.nth(EventKind::Waiting, 2).await;
    cancel(first).await;
    held.release().await.expect("given back");
    let second = granted(second).await;
    assert_eq!(second.ttl(), LONG / 2);
    let seen = view(&other, "x").await;
    let value = seen.holders[0].value.as_ref().map(leaseward::Value::to_text);
    assert_eq!(value.as_deref(), Some("mine"));
}
