//! The store is away for a while.

use std::time::Duration;

use leaseward::{ErrorKind, EventKind};

use crate::{
    Case, Fixture, Kind, Need,
    case::case,
    support::{Heard, LONG, SHORT, asking, eventually, granted, queue_of, take},
};

pub(super) const CASES: &[Case] = &[
    case!(asks_fail_at_once_after_repeated_failures).timed(),
    case!(renewals_are_tried_whatever_the_breaker_says).timed(),
    case!(a_try_that_fails_closed_holds_nothing).timed(),
    case!(a_place_in_the_queue_outlasts_a_short_outage, Need::Queue).timed(),
    case!(who_stands_in_line_waits_for_the_store).timed(),
    case!(a_candidate_waits_for_the_store, Need::Value).timed(),
];

async fn asks_fail_at_once_after_repeated_failures(fixture: &Fixture) {
    let (locks, line) = fixture.faulty().await;
    let heard = Heard::of(&locks);
    line.cut();
    eventually("the breaker opens", || async {
        let error = locks.lock("x").acquire().await.expect_err("the line is cut");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        locks.health().await.breaker_open
    })
    .await;
    heard.first(EventKind::BreakerOpened).await;
    assert!(!locks.health().await.is_good());
    let sent = line.seen(Kind::Ask);
    let error = locks.lock("y").acquire().await.expect_err("the breaker is open");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.hint_text().is_some());
    assert_eq!(line.seen(Kind::Ask), sent, "the store was not asked");
    line.heal();
    eventually("a probe closes it", || async { locks.lock("x").acquire().await.is_ok() }).await;
    heard.first(EventKind::BreakerClosed).await;
    assert!(locks.health().await.is_good());
}

async fn renewals_are_tried_whatever_the_breaker_says(fixture: &Fixture) {
    let (locks, line) = fixture.faulty().await;
    let heard = Heard::of(&locks);
    let guard = take(&locks.lock("x").ttl(SHORT * 10)).await;
    line.cut();
    eventually("the breaker opens", || async {
        let _ = locks.lock("y").acquire().await.expect_err("the line is cut");
        locks.health().await.breaker_open
    })
    .await;
    line.heal();
    heard.first(EventKind::Renewed).await;
    assert!(guard.is_held());
    eventually("a renewal closes it", || async { !locks.health().await.breaker_open }).await;
}

async fn a_try_that_fails_closed_holds_nothing(fixture: &Fixture) {
    let (locks, line) = fixture.faulty().await;
    let other = fixture.client().await;
    line.cut();
    for error in [
        locks.lock("x").ttl(LONG).try_acquire().await.err(),
        locks.all(["x", "y"]).ttl(LONG).try_acquire().await.err(),
    ] {
        let error = error.expect("the line is cut");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    line.heal();
    for name in ["x", "y"] {
        assert!(take(&other.lock(name)).await.is_held());
    }
}

/// More asks in vain than one without a place is allowed; their pauses, at most 620 ms together, and the third of its
/// time after which a place is refreshed are well below that time.
const IN_VAIN: usize = 6;
const PLACE: Duration = Duration::from_secs(3);

async fn a_place_in_the_queue_outlasts_a_short_outage(fixture: &Fixture) {
    let (locks, line) = fixture.faulty().await;
    let other = fixture.client().await;
    let held = take(&other.lock("x").ttl(LONG)).await;
    let waiter = asking(locks.lock("x").ttl(PLACE));
    queue_of(&other, "x", 1).await;
    line.cut();
    let before = line.seen(Kind::Ask);
    eventually("it asks in vain", || async { line.seen(Kind::Ask) >= before + IN_VAIN }).await;
    line.heal();
    let fence = held.fence();
    held.release().await.expect("given back");
    assert!(granted(waiter).await.fence() > fence);
}

/// Its place has long ended, and it waits all the same.
async fn who_stands_in_line_waits_for_the_store(fixture: &Fixture) {
    let (locks, line) = fixture.faulty().await;
    let (other, heard, clock) = (fixture.client().await, Heard::of(&locks), fixture.clock());
    let held = take(&other.lock("x").ttl(LONG)).await;
    let waiter = asking(locks.lock("x").ttl(SHORT));
    heard.first(EventKind::Waiting).await;
    line.cut();
    let before = line.seen(Kind::Ask);
    clock.sleep_until(clock.now() + SHORT * 2).await;
    eventually("it asks in vain", || async { line.seen(Kind::Ask) >= before + IN_VAIN }).await;
    let error = locks.lock("y").acquire().await.expect_err("the line is cut");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "who has just come is told at once: {error}");
    let fence = held.fence();
    held.release().await.expect("given back");
    line.heal();
    assert!(granted(waiter).await.fence() > fence);
}

async fn a_candidate_waits_for_the_store(fixture: &Fixture) {
    let (locks, line) = fixture.faulty().await;
    let heard = Heard::of(&locks);
    let election = locks.election("boss").ttl(SHORT);
    let leader = election.campaign("first").await.expect("elected");
    line.cut();
    let fence = leader.fence();
    leader.lost().await;
    drop(leader);
    let campaign = tokio::spawn(async move { election.campaign("again").await });
    heard.first(EventKind::BreakerOpened).await;
    line.heal();
    let leader = campaign.await.expect("no panic").expect("the campaign goes on by itself");
    assert!(leader.fence() > fence);
}
