//! Futures are dropped at any moment, and nothing is left behind.

use std::sync::Arc;

use leaseward::EventKind;

use crate::{
    Case, Fate, Fixture, Kind, Need, PushFate,
    case::case,
    support::{Heard, LONG, asking, cancel, granted, poll_once, queue_of, take, view},
};

pub(super) const CASES: &[Case] = &[
    case!(a_dropped_acquire_leaves_the_queue, Need::Queue),
    case!(a_dropped_acquire_gives_back_what_was_granted),
    case!(a_dropped_acquire_withdraws_what_was_not_sent),
    case!(a_dropped_try_gives_back_what_was_granted),
    case!(a_dropped_try_whose_reply_is_lost_holds_nothing),
    case!(who_is_not_polled_keeps_nobody_waiting),
    case!(a_grant_on_its_way_is_given_back, Need::Queue),
    case!(a_dropped_waiter_does_not_take_others_with_it),
    case!(a_dropped_release_still_releases),
    case!(a_dropped_run_gives_back),
    case!(an_aborted_task_gives_back),
];

async fn a_dropped_acquire_leaves_the_queue(fixture: &Fixture) {
    let (one, (other, line)) = (fixture.client().await, fixture.faulty().await);
    let held = take(&one.lock("x").ttl(LONG)).await;
    let waiting = asking(other.lock("x").ttl(LONG));
    queue_of(&one, "x", 1).await;
    cancel(waiting).await;
    // It leaves at once, unasked, and before its client sends anything else: not when its place would be refreshed.
    let asked = line.seen(Kind::Ask);
    line.sent(Kind::Release, 1).await;
    assert_eq!(line.seen(Kind::Ask), asked, "it kept its place meanwhile");
    if other.capability().one_batch_at_a_time {
        take(&other.lock("y")).await.release().await.expect("given back");
        assert!(view(&one, "x").await.waiters.is_empty(), "it still stands in the queue");
    } else {
        // What is sent after it may overtake it on another line.
        queue_of(&one, "x", 0).await;
    }
    held.release().await.expect("given back");
    assert!(view(&one, "x").await.holders.is_empty(), "given to somebody who has gone");
    assert!(take(&one.lock("x")).await.is_held());
}

async fn a_dropped_acquire_gives_back_what_was_granted(fixture: &Fixture) {
    let (one, line) = fixture.faulty().await;
    let other = fixture.client().await;
    line.next(Kind::Ask, [Fate::HoldReply]);
    let waiting = asking(one.lock("x").ttl(LONG));
    line.held_back(1).await;
    assert_eq!(view(&other, "x").await.holders.len(), 1, "the store has granted it");
    cancel(waiting).await;
    line.let_go();
    assert!(other.lock("x").acquire().await.expect("it comes free").is_held());
}

async fn a_dropped_acquire_withdraws_what_was_not_sent(fixture: &Fixture) {
    let (one, line) = fixture.faulty().await;
    let other = fixture.client().await;
    line.next(Kind::Ask, [Fate::HoldRequest]);
    let waiting = asking(one.lock("x").ttl(LONG));
    line.held_back(1).await;
    cancel(waiting).await;
    line.let_go();
    // The ask arrives after its caller has gone: the release that follows it must undo it.
    line.sent(Kind::Release, 1).await;
    assert!(other.lock("x").acquire().await.expect("it comes free").is_held());
}

async fn a_dropped_try_gives_back_what_was_granted(fixture: &Fixture) {
    let (one, line) = fixture.faulty().await;
    let other = fixture.client().await;
    line.next(Kind::Ask, [Fate::HoldReply, Fate::HoldReply]);
    let (single, several) = (one.lock("x").ttl(LONG), one.all(["y", "z"]).ttl(LONG));
    let single = tokio::spawn(async move { single.try_acquire().await.map(drop) });
    line.held_back(1).await;
    cancel(single).await;
    line.let_go();
    let several = tokio::spawn(async move { several.try_acquire().await.map(drop) });
    line.held_back(2).await;
    cancel(several).await;
    line.let_go();
    for name in ["x", "y", "z"] {
        assert!(other.lock(name).acquire().await.expect("it comes free").is_held());
    }
}

async fn a_dropped_try_whose_reply_is_lost_holds_nothing(fixture: &Fixture) {
    let (one, line) = fixture.faulty().await;
    let other = fixture.client().await;
    line.next(Kind::Ask, [Fate::HoldAndLoseReply]);
    let several = one.all(["x", "y"]).ttl(LONG);
    let several = tokio::spawn(async move { several.try_acquire().await.map(drop) });
    line.held_back(1).await;
    cancel(several).await;
    line.let_go();
    for name in ["x", "y"] {
        assert!(other.lock(name).acquire().await.expect("it comes free").is_held());
    }
}

/// Whoever acquires may be waiting for something else meanwhile, as in `select!`, with what others need under way.
async fn who_is_not_polled_keeps_nobody_waiting(fixture: &Fixture) {
    let (locks, line) = fixture.faulty().await;
    // With two batches under way a third gathers.
    let count = if locks.capability().one_batch_at_a_time { 1 } else { 2 };
    let mut parked = Vec::new();
    for at in 0..count {
        line.next(Kind::Ask, [Fate::HoldReply]);
        let lock = locks.lock(format!("x{at}")).ttl(LONG);
        let mut asking = Box::pin(async move { lock.acquire().await });
        while line.seen(Kind::Ask) <= at {
            assert!(poll_once(&mut asking).await.is_none(), "its answer is held back");
            tokio::task::yield_now().await;
        }
        parked.push(asking);
    }
    line.held_back(count).await;
    let heard = Heard::of(&locks);
    let joined = asking(locks.lock("x0").ttl(LONG));
    heard.first(EventKind::Waiting).await;
    line.let_go();
    // Nobody polls them, and yet others get on: by the same way, and behind the same bid.
    take(&locks.lock("y")).await.release().await.expect("given back");
    drop(parked);
    assert!(granted(joined).await.is_held());
}

async fn a_grant_on_its_way_is_given_back(fixture: &Fixture) {
    let (one, line) = fixture.faulty().await;
    let other = fixture.client().await;
    let held = take(&other.lock("x").ttl(LONG)).await;
    line.pushes(PushFate::Hold);
    let waiting = asking(one.lock("x").ttl(LONG));
    queue_of(&other, "x", 1).await;
    held.release().await.expect("given back");
    cancel(waiting).await;
    let next = other.lock("x").acquire().await.expect("it comes free");
    // The push arrives late, for a token its client no longer knows.
    line.deliver_pushes();
    // What it does about that goes before what it does next.
    take(&one.lock("y")).await.release().await.expect("given back");
    assert!(next.is_held(), "a token was released, not the name");
    assert_eq!(view(&other, "x").await.holders[0].fence, next.fence());
}

async fn a_dropped_waiter_does_not_take_others_with_it(fixture: &Fixture) {
    let locks = fixture.client().await;
    let heard = Heard::of(&locks);
    let held = take(&locks.lock("x").ttl(LONG)).await;
    let first = asking(locks.lock("x").ttl(LONG));
    heard.nth(EventKind::Waiting, 1).await;
    let second = asking(locks.lock("x").ttl(LONG));
    heard.nth(EventKind::Waiting, 2).await;
    cancel(first).await;
    held.release().await.expect("given back");
    assert!(granted(second).await.is_held());
}

async fn a_dropped_release_still_releases(fixture: &Fixture) {
    let (one, line) = fixture.faulty().await;
    let other = fixture.client().await;
    for (at, fate) in [Fate::HoldRequest, Fate::HoldReply].into_iter().enumerate() {
        let guard = one.lock("x").ttl(LONG).acquire().await.expect("granted");
        line.next(Kind::Release, [fate]);
        let mut releasing = Box::pin(guard.release());
        assert!(poll_once(&mut releasing).await.is_none(), "nothing was left to cancel");
        drop(releasing);
        line.held_back(at + 1).await;
        line.let_go();
        let next = other.lock("x").ttl(LONG).acquire().await.expect("it comes free");
        next.release().await.expect("given back");
    }
}

async fn a_dropped_run_gives_back(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let lock = one.lock("x").ttl(LONG);
    let started = Arc::new(tokio::sync::Notify::new());
    let starts = started.clone();
    let work = tokio::spawn(async move {
        lock.run(|_| async move {
            starts.notify_one();
            std::future::pending::<()>().await;
        })
        .await
    });
    started.notified().await;
    cancel(work).await;
    assert!(other.lock("x").acquire().await.expect("it comes free").is_held());
}

async fn an_aborted_task_gives_back(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let lock = one.lock("x").ttl(LONG);
    let taken = Arc::new(tokio::sync::Notify::new());
    let takes = taken.clone();
    let holder = tokio::spawn(async move {
        let _guard = lock.acquire().await.expect("granted");
        takes.notify_one();
        std::future::pending::<()>().await;
    });
    taken.notified().await;
    cancel(holder).await;
    assert!(other.lock("x").acquire().await.expect("it comes free").is_held());
}
