//! Leases are kept as long as their guards live, and no longer than is safe.

use std::sync::mpsc;

use leaseward::{ErrorKind, Guard, LostReason, Release};
use tokio::sync::oneshot;

use crate::{
    Case, Fate, Fixture, Kind,
    case::case,
    support::{KEPT, LONG, SHORT, busy, held_with, join, on_own_runtime, poll_once, take, view},
};

pub(super) const CASES: &[Case] = &[
    case!(keeps_the_lease).timed(),
    case!(keeps_many_leases).timed(),
    case!(by_hand_keeps_the_lease).timed(),
    case!(an_extension_lasts_longer).timed(),
    case!(survives_an_outage_shorter_than_the_ttl).timed(),
    case!(ends_at_the_longest_hold).timed(),
    case!(danger_is_told_before_the_end).timed(),
    case!(a_late_reply_revives_nothing).timed(),
    case!(one_that_nobody_polls_keeps_no_other_from_being_sent).timed(),
    case!(racing_a_release_revives_nothing).timed(),
    case!(a_blocked_runtime_ends_in_lost),
    case!(blocked_work_ends_in_lost),
];

async fn keeps_the_lease(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let guard = take(&one.lock("x").ttl(KEPT)).await;
    let fence = guard.fence();
    fixture.until(guard.deadline() + KEPT / 2).await;
    assert!(guard.is_held());
    busy(&other.lock("x")).await;
    held_with(&other, "x", fence).await;
    assert_eq!(guard.release().await.expect("given back"), Release::Released);
}

async fn keeps_many_leases(fixture: &Fixture) {
    let locks = fixture.client().await;
    let mut guards = Vec::new();
    for at in 0..200 {
        guards.push(take(&locks.lock(format!("x-{at}")).ttl(KEPT)).await);
    }
    let last = guards.iter().map(Guard::deadline).max().expect("there are some");
    fixture.until(last + KEPT / 2).await;
    assert!(guards.iter().all(Guard::is_held));
}

async fn by_hand_keeps_the_lease(fixture: &Fixture) {
    let locks = fixture.client().await;
    let guard = take(&locks.lock("x").ttl(KEPT).no_renewal()).await;
    let first = guard.deadline();
    fixture.until(first.before(KEPT / 2)).await;
    guard.renew().await.expect("it is ours");
    fixture.until(first).await;
    assert!(guard.is_held() && guard.deadline() > first);
    assert_eq!(guard.lost().await, LostReason::Expired);
}

async fn an_extension_lasts_longer(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let guard = take(&one.lock("x").ttl(SHORT * 2).no_renewal()).await;
    let first = guard.deadline();
    guard.extend(LONG).await.expect("it is ours");
    fixture.until(first + SHORT * 2).await;
    assert!(guard.is_held());
    busy(&other.lock("x")).await;
}

async fn survives_an_outage_shorter_than_the_ttl(fixture: &Fixture) {
    let (locks, line) = fixture.faulty().await;
    let lock = locks.lock("x").ttl(KEPT).renew_every(KEPT / 8);
    let guard = take(&lock).await;
    line.next(Kind::Renew, [Fate::Refuse, Fate::LoseRequest, Fate::LoseReply]);
    fixture.until(guard.deadline() + KEPT / 4).await;
    assert!(guard.is_held());
}

async fn ends_at_the_longest_hold(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let guard = take(&one.lock("x").ttl(SHORT).max_hold(SHORT * 2)).await;
    assert_eq!(guard.lost().await, LostReason::Expired);
    let next = other.lock("x").acquire().await.expect("it comes free");
    assert!(next.fence() > guard.fence());
}

async fn danger_is_told_before_the_end(fixture: &Fixture) {
    let (locks, line) = fixture.faulty().await;
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let lock = locks.lock("x").ttl(KEPT).on_danger(move |danger| {
        let _ = tell.send(danger);
    });
    let guard = take(&lock).await;
    line.cut();
    let danger = told.recv().await.expect("told");
    assert_eq!(danger.name.as_str(), "x");
    assert!(danger.remaining <= KEPT && guard.is_held(), "there is still time to do something");
    assert_eq!(guard.lost().await, LostReason::Expired);
}

/// The store did renew it, but said so only after the deadline.
async fn a_late_reply_revives_nothing(fixture: &Fixture) {
    let (one, line) = fixture.faulty().await;
    let other = fixture.client().await;
    let guard = take(&one.lock("x").ttl(SHORT * 2)).await;
    line.next(Kind::Renew, [Fate::HoldReply]);
    line.held_back(1).await;
    assert_eq!(guard.lost().await, LostReason::Expired);
    line.let_go();
    let next = other.lock("x").ttl(LONG).acquire().await.expect("it comes free");
    assert!(!guard.is_held() && next.fence() > guard.fence());
    assert_eq!(guard.release().await.expect("answered"), Release::AlreadyExpired);
    assert!(next.is_held());
}

/// Its holder asked for a renewal and does something else before it looks what became of it.
async fn one_that_nobody_polls_keeps_no_other_from_being_sent(fixture: &Fixture) {
    let (locks, line) = fixture.faulty().await;
    let (asked, other) =
        (take(&locks.lock("x").ttl(LONG)).await, take(&locks.lock("y").ttl(KEPT)).await);
    line.next(Kind::Renew, [Fate::HoldReply]);
    let mut renewing = Box::pin(asked.renew());
    while line.seen(Kind::Renew) == 0 {
        assert!(poll_once(&mut renewing).await.is_none(), "its answer is held back");
        tokio::task::yield_now().await;
    }
    line.held_back(1).await;
    line.let_go();
    line.sent(Kind::Renew, 4).await;
    assert!(other.is_held(), "it was renewed meanwhile");
    renewing.await.expect("renewed");
}

/// The renewal arrives after the release, when another one has the name.
async fn racing_a_release_revives_nothing(fixture: &Fixture) {
    let (one, line) = fixture.faulty().await;
    let other = fixture.client().await;
    let guard = take(&one.lock("x").ttl(KEPT)).await;
    line.next(Kind::Renew, [Fate::HoldRequest]);
    line.held_back(1).await;
    assert_eq!(guard.release().await.expect("given back"), Release::Released);
    let next = take(&other.lock("x").ttl(LONG)).await;
    line.let_go();
    // Whatever follows from it goes before what its client does next.
    take(&one.lock("y")).await.release().await.expect("given back");
    let seen = view(&other, "x").await;
    assert_eq!((seen.holders.len(), seen.holders[0].fence), (1, next.fence()));
}

async fn a_blocked_runtime_ends_in_lost(fixture: &Fixture) {
    let other = fixture.client().await;
    let (tell, told) = oneshot::channel();
    let (go_on, blocks) = mpsc::channel::<()>();
    let thread = on_own_runtime(fixture, |fixture| async move {
        let locks = fixture.client().await;
        let guard = take(&locks.lock("x").ttl(SHORT)).await;
        let _ = tell.send(guard.fence());
        blocks.recv().expect("told to go on");
        assert!(!guard.is_held(), "two hold it");
        assert_eq!(guard.lost().await, LostReason::Expired);
        assert_eq!(guard.release().await.expect("answered"), Release::AlreadyExpired);
    });
    let fence = told.await.expect("taken");
    let next = other.lock("x").ttl(LONG).acquire().await.expect("in the end");
    assert!(next.fence() > fence);
    go_on.send(()).expect("still there");
    join(thread).await;
    assert!(next.is_held());
    assert_eq!(view(&other, "x").await.holders[0].fence, next.fence());
}

async fn blocked_work_ends_in_lost(fixture: &Fixture) {
    let other = fixture.client().await;
    let (tell, told) = oneshot::channel();
    let (go_on, blocks) = mpsc::channel::<()>();
    let thread = on_own_runtime(fixture, |fixture| async move {
        let locks = fixture.client().await;
        let lock = locks.lock("x").ttl(SHORT);
        let work = lock.run(|_lease| async move {
            let _ = tell.send(());
            blocks.recv().expect("told to go on");
        });
        let error = work.await.expect_err("finished too late");
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    });
    told.await.expect("taken");
    let next = other.lock("x").ttl(LONG).acquire().await.expect("in the end");
    go_on.send(()).expect("still there");
    join(thread).await;
    assert!(next.is_held());
}
