//! Graceful ends.

use leaseward::{ErrorKind, EventKind, LostReason};

use crate::{
    Case, Fate, Fixture, Kind, Need,
    case::case,
    support::{Heard, LONG, SHORT, asking, busy, granted, poll_once, queue_of, take},
};

pub(super) const CASES: &[Case] = &[
    case!(releases_everything, Need::Shared, Need::Permits),
    case!(tells_holders),
    case!(is_told_as_released, Need::Records),
    case!(tells_waiters, Need::Queue),
    case!(refuses_afterwards),
    case!(keeps_a_minimum_hold, Need::MinHold),
    case!(waits_for_what_was_dropped).timed(),
    case!(a_lost_release_is_sent_again),
    case!(who_comes_second_waits_for_the_first),
    case!(is_no_loss_to_who_had_released).timed(),
    case!(ends_although_the_store_is_gone).timed(),
];

async fn releases_everything(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let _lock = take(&one.lock("x").ttl(LONG)).await;
    let _reader = take(&one.lock("doc").shared().ttl(LONG)).await;
    let _permit = take(&one.semaphore("gpu", 1).ttl(LONG)).await;
    let _several = one.all(["a", "b"]).ttl(LONG).acquire().await.expect("granted");
    one.shutdown().await;
    for lock in ["x", "doc", "gpu", "a", "b"].map(|name| other.lock(name)) {
        take(&lock).await.release().await.expect("given back");
    }
}

async fn tells_holders(fixture: &Fixture) {
    let locks = fixture.client().await;
    let guard = take(&locks.lock("x").ttl(LONG)).await;
    let lock = locks.lock("y").ttl(LONG);
    let (started, has_started) = tokio::sync::oneshot::channel();
    let work = tokio::spawn(async move {
        lock.run(|_| async move {
            let _ = started.send(());
            std::future::pending::<()>().await;
        })
        .await
    });
    has_started.await.expect("the work starts");
    locks.shutdown().await;
    assert_eq!(guard.lost().await, LostReason::ShutDown);
    assert!(!guard.is_held());
    let error = work.await.expect("no panic").expect_err("it was lost");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    guard.release().await.expect("nothing is left to do");
}

/// A rolling deployment loses no lease, and wakes nobody up.
async fn is_told_as_released(fixture: &Fixture) {
    let (locks, other) = (fixture.client().await, fixture.client().await);
    let heard = Heard::of(&locks);
    let (dropped, released) = (
        take(&locks.lock("dropped").ttl(LONG)).await,
        take(&locks.lock("released").ttl(LONG)).await,
    );
    let several = locks.all(["a", "b"]).ttl(LONG).acquire().await.expect("granted");
    let leader = locks.election("leader").ttl(LONG).campaign("").await.expect("elected");
    let handle = take(&other.lock("moved").ttl(LONG)).await.detach();
    let attached = locks.attach(&handle).await.expect("held");
    let first = take(&locks.lock("passed").ttl(LONG)).await;
    let second = asking(locks.lock("passed").ttl(LONG));
    heard.first(EventKind::Waiting).await;
    first.release().await.expect("given back");
    let second = granted(second).await;
    let lock = locks.lock("run").ttl(LONG);
    let work = tokio::spawn(async move { lock.run(|_| std::future::pending::<()>()).await });
    heard.nth(EventKind::Acquired, 8).await;

    locks.shutdown().await;
    let told = || {
        let mut names: Vec<_> = heard
            .all()
            .into_iter()
            .filter(|event| event.kind == EventKind::Released && event.hold_us.is_some())
            .filter_map(|event| event.name.map(|name| name.to_string()))
            .collect();
        names.sort();
        names
    };
    let all = ["a", "b", "dropped", "leader", "moved", "passed", "passed", "released", "run"];
    assert_eq!(told(), all, "by the shutdown itself");
    assert_eq!(work.await.expect("no panic").expect_err("ended").kind(), ErrorKind::Lost);
    drop((dropped, attached, second));
    released.release().await.expect("nothing is left to do");
    several.release().await.expect("nothing is left to do");
    leader.resign().await.expect("nothing is left to do");
    assert_eq!(told(), all, "once");
    let alarms = [EventKind::Lost, EventKind::ExpiredBeforeRelease];
    assert!(!heard.all().iter().any(|event| alarms.contains(&event.kind)), "{:?}", heard.all());
}

async fn tells_waiters(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let held = take(&other.lock("x").ttl(LONG)).await;
    let waiting = asking(one.lock("x").ttl(LONG));
    queue_of(&other, "x", 1).await;
    one.shutdown().await;
    let error = waiting.await.expect("no panic").expect_err("it was shut down");
    assert_eq!(error.kind(), ErrorKind::ShutDown, "{error}");
    queue_of(&other, "x", 0).await;
    assert!(held.is_held());
}

async fn refuses_afterwards(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let handle = take(&one.lock("y").ttl(LONG)).await.detach();
    one.shutdown().await;
    one.shutdown().await;
    if one.capability().modes.permits {
        let error = one.semaphore("s", 1).acquire().await.expect_err("it was shut down");
        assert_eq!(error.kind(), ErrorKind::ShutDown, "{error}");
    }
    for error in [
        one.lock("x").acquire().await.err(),
        one.lock("x").try_acquire().await.err(),
        one.all(["a", "b"]).acquire().await.err(),
        one.attach(&handle).await.err(),
    ] {
        let error = error.expect("it was shut down");
        assert_eq!(error.kind(), ErrorKind::ShutDown, "{error}");
    }
    assert!(take(&other.lock("x")).await.is_held(), "nothing was taken");
}

async fn keeps_a_minimum_hold(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let _guard = take(&one.lock("cron").ttl(LONG).min_hold(LONG)).await;
    one.shutdown().await;
    busy(&other.lock("cron")).await;
}

/// A program that drops its guards, shuts down and ends must leave nothing behind.
async fn waits_for_what_was_dropped(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    drop(take(&one.lock("x").ttl(LONG)).await);
    one.shutdown().await;
    assert!(take(&other.lock("x")).await.is_held());
}

async fn a_lost_release_is_sent_again(fixture: &Fixture) {
    let (one, line) = fixture.faulty().await;
    let other = fixture.client().await;
    let _guards = [take(&one.lock("x").ttl(LONG)).await, take(&one.lock("y").ttl(LONG)).await];
    line.next(Kind::Release, [Fate::LoseRequest, Fate::Refuse, Fate::LoseReply]);
    one.shutdown().await;
    for name in ["x", "y"] {
        take(&other.lock(name)).await.release().await.expect("given back");
    }
}

async fn ends_although_the_store_is_gone(fixture: &Fixture) {
    let (one, line) = fixture.faulty().await;
    let other = fixture.client().await;
    let guard = take(&one.lock("x").ttl(SHORT)).await;
    line.cut();
    one.shutdown().await;
    assert!(!guard.is_held());
    assert!(other.lock("x").acquire().await.expect("by its TTL").is_held());
}

async fn who_comes_second_waits_for_the_first(fixture: &Fixture) {
    let (one, line) = fixture.faulty().await;
    let other = fixture.client().await;
    let _held = take(&one.lock("x").ttl(LONG)).await;
    line.next(Kind::Release, [Fate::HoldRequest]);
    let first = one.clone();
    let first = tokio::spawn(async move { first.shutdown().await });
    line.held_back(1).await;
    let mut second = Box::pin(one.shutdown());
    assert!(poll_once(&mut second).await.is_none(), "nothing has been given back yet");
    line.let_go();
    second.await;
    take(&other.lock("x")).await.release().await.expect("it was given back");
    first.await.expect("no panic");
}

/// It passed its lease on inside the process, and that one ends with the client.
async fn is_no_loss_to_who_had_released(fixture: &Fixture) {
    let locks = fixture.client().await;
    let heard = Heard::of(&locks);
    let first = take(&locks.lock("x").ttl(LONG)).await;
    let lease = first.lease();
    let second = asking(locks.lock("x").ttl(LONG));
    heard.first(EventKind::Waiting).await;
    let mut lost = Box::pin(lease.lost());
    assert!(poll_once(&mut lost).await.is_none());
    first.release().await.expect("given back");
    let second = granted(second).await;
    locks.shutdown().await;
    assert_eq!(second.lost().await, LostReason::ShutDown);
    assert!(poll_once(&mut lost).await.is_none(), "it had been released in time");
}
