//! Waits that could never end.

use leaseward::{Attempt, Error, ErrorKind, EventKind, Guard, Lock, OwnerId};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

use crate::{
    Case, Fixture, Need,
    case::case,
    support::{Heard, LONG, SHORT, asking, granted, take},
};

pub(super) const CASES: &[Case] = &[
    case!(a_cycle_is_named),
    case!(a_longer_cycle_is_named),
    case!(waiting_for_oneself_is_named),
    case!(a_moved_guard_keeps_its_owner),
    case!(tasks_that_share_an_owner_are_one),
    case!(the_task_is_the_owner),
    case!(a_chain_is_no_cycle),
    case!(a_permit_elsewhere_is_no_cycle, Need::Permits),
    case!(can_be_switched_off).timed(),
];

/// Starts all these waits, none of which can be granted, and answers with the first that fails and its number.
///
/// Whichever wait closes the cycle is the one that fails, so no order among them is asked for.
async fn first_to_fail(locks: Vec<Lock>) -> (usize, Error, Vec<JoinHandle<Option<Guard>>>) {
    let (tell, mut told) = mpsc::unbounded_channel();
    let mut waits = Vec::new();
    for (at, lock) in locks.into_iter().enumerate() {
        let tell = tell.clone();
        waits.push(tokio::spawn(async move {
            match lock.acquire().await {
                Ok(guard) => Some(guard),
                Err(error) => {
                    let _ = tell.send((at, error));
                    None
                }
            }
        }));
    }
    let (at, error) = told.recv().await.expect("one of them fails");
    (at, error, waits)
}

async fn a_cycle_is_named(fixture: &Fixture) {
    let locks = fixture.client().await;
    let lock = |name: &str, owner: &str| locks.lock(name).ttl(LONG).owner(owner);
    let mut held = [Some(take(&lock("x", "one")).await), Some(take(&lock("y", "other")).await)];
    let (at, error, mut waits) = first_to_fail(vec![lock("y", "one"), lock("x", "other")]).await;
    assert_eq!(error.kind(), ErrorKind::Deadlock, "{error}");
    for part in ["`x`", "`y`", ["`one`", "`other`"][at]] {
        assert!(error.message().contains(part), "{error}");
    }
    assert!(error.hint_text().is_some());
    let of_the_failed = held[at].take().expect("taken above");
    of_the_failed.release().await.expect("given back");
    let granted = waits.remove(1 - at).await.expect("no panic");
    assert!(granted.expect("the other one goes on").is_held());
}

async fn a_longer_cycle_is_named(fixture: &Fixture) {
    let locks = fixture.client().await;
    let lock = |name: &str, owner: &str| locks.lock(name).ttl(LONG).owner(owner);
    let _held =
        [take(&lock("x", "a")).await, take(&lock("y", "b")).await, take(&lock("z", "c")).await];
    let waits = vec![lock("y", "a"), lock("z", "b"), lock("x", "c")];
    let (_, error, _waits) = first_to_fail(waits).await;
    assert_eq!(error.kind(), ErrorKind::Deadlock, "{error}");
    for name in ["`x`", "`y`", "`z`"] {
        assert!(error.message().contains(name), "{error}");
    }
}

async fn waiting_for_oneself_is_named(fixture: &Fixture) {
    let locks = fixture.client().await;
    let lock = locks.lock("x").ttl(LONG).owner("me");
    let guard = take(&lock).await;
    let error = lock.acquire().await.expect_err("it would wait for itself");
    assert_eq!(error.kind(), ErrorKind::Deadlock, "{error}");
    assert!(error.message().contains("`x`"), "{error}");
    assert!(matches!(lock.try_acquire().await, Ok(Attempt::Busy(_))), "a try never waits");
    guard.release().await.expect("given back");
    assert!(lock.acquire().await.expect("free").is_held());
}

async fn a_moved_guard_keeps_its_owner(fixture: &Fixture) {
    let locks = fixture.client().await;
    let (hand, handed) = oneshot::channel();
    let lock = locks.lock("x").ttl(LONG);
    let (done, is_done) = oneshot::channel::<()>();
    let taker = tokio::spawn({
        let lock = lock.clone();
        async move {
            hand.send(take(&lock).await).expect("the other task takes it");
            is_done.await.expect("told");
            lock.acquire().await
        }
    });
    let keeper = tokio::spawn(async move {
        let guard = handed.await.expect("handed over");
        done.send(()).expect("the first task listens");
        guard
    });
    let guard = keeper.await.expect("no panic");
    let error = taker.await.expect("no panic").expect_err("it holds the name by its own guard");
    assert_eq!(error.kind(), ErrorKind::Deadlock, "{error}");
    // Whoever has the guard now is somebody else, and may wait for other names of the first task.
    let waiting = asking(lock);
    guard.release().await.expect("given back");
    assert!(granted(waiting).await.is_held());
}

async fn tasks_that_share_an_owner_are_one(fixture: &Fixture) {
    let locks = fixture.client().await;
    let lock = |name: &str, owner: &str| locks.lock(name).ttl(LONG).owner(owner);
    let x = lock("x", "job");
    let _x = tokio::spawn(async move { take(&x).await }).await.expect("no panic");
    let _y = take(&lock("y", "other")).await;
    let error = asking(lock("x", "job")).await.expect("no panic").expect_err("its own");
    assert_eq!(error.kind(), ErrorKind::Deadlock, "{error}");
    // Another task of the same owner closes the cycle.
    let (_, error, _waits) = first_to_fail(vec![lock("x", "other"), lock("y", "job")]).await;
    assert_eq!(error.kind(), ErrorKind::Deadlock, "{error}");
}

async fn the_task_is_the_owner(fixture: &Fixture) {
    let locks = fixture.client().await;
    let lock = locks.lock("x").ttl(LONG);
    let same = tokio::spawn(async move {
        assert!(OwnerId::current_task().is_some());
        let _guard = take(&lock).await;
        lock.acquire().await
    });
    let error = same.await.expect("no panic").expect_err("it would wait for itself");
    assert_eq!(error.kind(), ErrorKind::Deadlock, "{error}");
    assert!(error.message().contains("task"), "{error}");
}

async fn a_chain_is_no_cycle(fixture: &Fixture) {
    let locks = fixture.client().await;
    let heard = Heard::of(&locks);
    let lock = |name: &str, owner: &str| locks.lock(name).ttl(LONG).owner(owner);
    let x = take(&lock("x", "a")).await;
    let y = take(&lock("y", "b")).await;
    let first = asking(lock("x", "b"));
    heard.nth(EventKind::Waiting, 1).await;
    let second = asking(lock("y", "c"));
    heard.nth(EventKind::Waiting, 2).await;
    x.release().await.expect("given back");
    assert!(granted(first).await.is_held());
    y.release().await.expect("given back");
    assert!(granted(second).await.is_held());
}

/// A permit comes free as soon as any of its holders goes on.
async fn a_permit_elsewhere_is_no_cycle(fixture: &Fixture) {
    let locks = fixture.client().await;
    let heard = Heard::of(&locks);
    let permit = |owner: &str| locks.semaphore("gpu", 2).ttl(LONG).owner(owner);
    let lock = |name: &str, owner: &str| locks.lock(name).ttl(LONG).owner(owner);
    let _x = take(&lock("x", "a")).await;
    let _first = take(&permit("b")).await;
    let second = take(&permit("c")).await;
    let _stuck = asking(lock("x", "b"));
    heard.nth(EventKind::Waiting, 1).await;
    let waiting = asking(permit("a"));
    heard.nth(EventKind::Waiting, 2).await;
    second.release().await.expect("given back");
    assert!(granted(waiting).await.is_held());
}

async fn can_be_switched_off(fixture: &Fixture) {
    let locks = fixture.client_with(|builder| builder.deadlock_check(false)).await;
    let lock = locks.lock("x").ttl(LONG).owner("me").wait(SHORT);
    let _guard = take(&lock).await;
    let error = lock.acquire().await.expect_err("it is held");
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
}
