//! Waiting: first come, first served, and nobody is forgotten.

use std::{sync::Arc, time::Duration};

use leaseward::{
    ErrorKind, Locks, Name, Release,
    store::{Push, Reply},
};
use parking_lot::Mutex;

use crate::{
    Case, Fate, Fixture, Kind, Need, PushFate,
    case::case,
    support::{LONG, SHORT, asking, busy, eventually, granted, poll_once, queue_of, take, view},
};

pub(super) const CASES: &[Case] = &[
    case!(first_come_first_served, Need::Queue),
    case!(first_come_first_served_within_a_client),
    case!(a_dead_holder_is_followed_by_the_next_in_line, Need::Queue).timed(),
    case!(a_waiter_that_died_is_skipped, Need::Queue).timed(),
    case!(a_waiter_that_died_unseen_costs_its_ttl, Need::Queue).timed(),
    case!(a_time_out_leaves_nothing_behind).timed(),
    case!(a_time_out_says_who_holds_it, Need::Records).timed(),
    case!(a_wait_of_nothing_is_no_wait_for_ever).timed(),
    case!(newcomers_do_not_overtake, Need::Queue),
    case!(a_lost_push_costs_only_time, Need::Queue).timed(),
    case!(an_old_push_starts_nobody, Need::Queue).timed(),
    case!(a_handed_over_lease_lasts_its_whole_ttl, Need::Queue).timed(),
    case!(a_late_answer_does_not_keep_it_short, Need::Queue).timed(),
    case!(an_answer_that_takes_its_time_is_heard).timed(),
    case!(retries_end).timed(),
    case!(retries_succeed).timed(),
];

/// Lets waiters in one after the other and notes the order in which they are served.
async fn order_of(clients: &[&Locks], how_many: usize, look: &Locks) -> Vec<usize> {
    let held = take(&look.lock("x").ttl(LONG)).await;
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    for at in 0..how_many {
        let (lock, served) = (clients[at % clients.len()].lock("x").ttl(LONG), served.clone());
        waiting.push(tokio::spawn(async move {
            let guard = lock.acquire().await.expect("granted");
            served.lock().push(at);
            guard.release().await.expect("given back");
        }));
        queue_of(look, "x", at + 1).await;
    }
    held.release().await.expect("given back");
    for waiter in waiting {
        waiter.await.expect("served");
    }
    let served = served.lock();
    served.clone()
}

async fn first_come_first_served(fixture: &Fixture) {
    let clients = [fixture.lone().await, fixture.lone().await, fixture.lone().await];
    let [one, two, three] = &clients;
    let served = order_of(&[one, two, three, one], 8, three).await;
    assert_eq!(served, [0, 1, 2, 3, 4, 5, 6, 7]);
}

async fn first_come_first_served_within_a_client(fixture: &Fixture) {
    let locks = fixture.client().await;
    let held = take(&locks.lock("x").ttl(LONG)).await;
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    for at in 0..8 {
        let lock = locks.lock("x").ttl(LONG);
        let mut asked = Box::pin(async move { lock.acquire().await });
        // Polled here, in order: each has its place before the next one asks.
        assert!(poll_once(&mut asked).await.is_none());
        let served = served.clone();
        waiting.push(tokio::spawn(async move {
            let guard = asked.await.expect("granted");
            served.lock().push(at);
            guard.release().await.expect("given back");
        }));
    }
    held.release().await.expect("given back");
    for waiter in waiting {
        waiter.await.expect("served");
    }
    assert_eq!(*served.lock(), [0, 1, 2, 3, 4, 5, 6, 7]);
}

async fn a_dead_holder_is_followed_by_the_next_in_line(fixture: &Fixture) {
    let (gone, line) = fixture.faulty().await;
    let (one, other) = (fixture.client().await, fixture.client().await);
    let dead = take(&gone.lock("x").ttl(SHORT * 2)).await;
    let first = asking(one.lock("x").ttl(LONG));
    queue_of(&one, "x", 1).await;
    let second = asking(other.lock("x").ttl(LONG));
    queue_of(&one, "x", 2).await;
    line.cut();
    let first = granted(first).await;
    assert!(first.fence() > dead.fence() && !dead.is_held());
    assert!(!second.is_finished());
    let fence = first.fence();
    first.release().await.expect("given back");
    assert!(granted(second).await.fence() > fence);
}

async fn a_waiter_that_died_is_skipped(fixture: &Fixture) {
    let (one, dead) = (fixture.client().await, fixture.bare().await);
    let other = fixture.client_with(|builder| builder.who("alive")).await;
    let held = take(&one.lock("x").ttl(LONG)).await;
    let reply = dead.ask("x", &dead.token(), SHORT).await;
    assert!(matches!(reply, Reply::Queued(_)), "{reply:?}");
    let next = asking(other.lock("x").ttl(LONG));
    eventually("only the live one is in the queue", || async {
        let waiters = view(&one, "x").await.waiters;
        waiters.len() == 1 && &*waiters[0].who == "alive"
    })
    .await;
    held.release().await.expect("given back");
    assert_eq!(&*view(&one, "x").await.holders[0].who, "alive", "the dead one was served");
    assert!(granted(next).await.is_held());
}

/// It is given the lease, and never says a word.
async fn a_waiter_that_died_unseen_costs_its_ttl(fixture: &Fixture) {
    let (one, dead) = (fixture.client().await, fixture.bare().await);
    let other = fixture.client().await;
    let held = take(&one.lock("x").ttl(LONG)).await;
    let reply = dead.ask("x", &dead.token(), SHORT * 2).await;
    assert!(matches!(reply, Reply::Queued(_)), "{reply:?}");
    held.release().await.expect("given back");
    let next = other.lock("x").ttl(LONG).acquire().await.expect("in the end");
    assert!(next.is_held());
}

async fn a_time_out_leaves_nothing_behind(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let held = take(&one.lock("x").ttl(LONG)).await;
    let lock = other.lock("x").ttl(LONG).wait(SHORT);
    let error = lock.acquire().await.expect_err("it is held");
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    queue_of(&one, "x", 0).await;
    held.release().await.expect("given back");
    assert!(view(&one, "x").await.holders.is_empty(), "given to somebody who does not want it");
    assert!(take(&one.lock("x")).await.is_held());
}

async fn a_time_out_says_who_holds_it(fixture: &Fixture) {
    let one = fixture.client_with(|builder| builder.who("web-3:4121")).await;
    let other = fixture.client().await;
    let _held = take(&one.lock("x").ttl(LONG)).await;
    let error = other.lock("x").wait(SHORT).acquire().await.expect_err("it is held");
    assert!(error.message().contains("web-3:4121"), "{error}");
    assert!(error.message().contains("`x`") && error.hint_text().is_some(), "{error:?}");
}

/// Zero means zero, not *the default*.
async fn a_wait_of_nothing_is_no_wait_for_ever(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let _held = take(&one.lock("x").ttl(LONG)).await;
    let error = other.lock("x").ttl(LONG).wait(Duration::ZERO).acquire().await;
    assert_eq!(error.expect_err("it is held").kind(), ErrorKind::Timeout);
    queue_of(&one, "x", 0).await;
}

async fn newcomers_do_not_overtake(fixture: &Fixture) {
    let (one, line) = fixture.faulty().await;
    let other = fixture.client().await;
    let held = take(&other.lock("x").ttl(LONG)).await;
    line.pushes(PushFate::Hold);
    let waiting = asking(one.lock("x").ttl(LONG));
    queue_of(&other, "x", 1).await;
    held.release().await.expect("given back");
    // The lease is on its way to whoever waited, so it is not free.
    busy(&other.lock("x")).await;
    line.pushes(PushFate::Through);
    line.deliver_pushes();
    assert!(granted(waiting).await.is_held());
}

async fn a_lost_push_costs_only_time(fixture: &Fixture) {
    let (one, line) = fixture.faulty().await;
    let other = fixture.client().await;
    let held = take(&other.lock("x").ttl(LONG)).await;
    line.pushes(PushFate::Drop);
    let waiting = asking(one.lock("x").ttl(SHORT * 4));
    queue_of(&other, "x", 1).await;
    held.release().await.expect("given back");
    assert!(granted(waiting).await.is_held());
}

/// Rule R1, as the models found it: a push delayed until its lease is over and another one holds the name.
async fn an_old_push_starts_nobody(fixture: &Fixture) {
    let (late, line) = fixture.faulty().await;
    let (one, other) = (fixture.client().await, fixture.client().await);
    let held = take(&one.lock("x").ttl(LONG)).await;
    let waiting = asking(late.lock("x").ttl(SHORT));
    queue_of(&one, "x", 1).await;
    line.pushes(PushFate::Hold);
    line.always(Fate::HoldRequest);
    // So that no refresh is under way that could be answered with the lease.
    line.held_back(1).await;
    held.release().await.expect("given back");
    let next = other.lock("x").ttl(LONG).acquire().await.expect("in the end");
    // Now what it asked meanwhile arrives, and it is queued anew under the same token.
    line.heal();
    line.let_go();
    queue_of(&one, "x", 1).await;
    line.deliver_pushes();
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished(), "two hold it");
    let fence = next.fence();
    next.release().await.expect("given back");
    assert!(granted(waiting).await.fence() > fence, "it started with an old fence");
}

async fn a_handed_over_lease_lasts_its_whole_ttl(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let held = take(&one.lock("x").ttl(LONG)).await;
    let waiting = asking(other.lock("x").ttl(LONG));
    queue_of(&one, "x", 1).await;
    held.release().await.expect("given back");
    let next = granted(waiting).await;
    eventually("the first renewal lifts it", || async {
        let remaining = view(&one, "x").await.holders[0].remaining.expect("it has an end");
        remaining > LONG / 2 && next.remaining() > LONG / 2
    })
    .await;
}

async fn a_late_answer_does_not_keep_it_short(fixture: &Fixture) {
    let (one, (other, line)) = (fixture.client().await, fixture.faulty().await);
    let held = take(&one.lock("x").ttl(LONG)).await;
    let mut waiting = asking(other.lock("x").ttl(LONG));
    queue_of(&one, "x", 1).await;
    line.next(Kind::Ask, [Fate::HoldReply]);
    line.push(Push::Woken { name: Name::new("x").expect("a good name") });
    // It asked again and has its place still, but is not told before it has the lease.
    line.held_back(1).await;
    held.release().await.expect("given back");
    // Where a push by itself proves nothing, it goes on only once it was answered.
    let pushed = tokio::time::timeout(SHORT, &mut waiting).await;
    line.let_go();
    let next = match pushed {
        Ok(pushed) => pushed.expect("the task lives").expect("the lease is granted"),
        Err(_) => granted(waiting).await,
    };
    eventually("it is renewed all the same", || async { next.remaining() > LONG / 2 }).await;
    assert!(view(&one, "x").await.holders[0].remaining.expect("it has an end") > LONG / 2);
}

const RETRY: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(20));

async fn retries_end(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let _held = take(&one.lock("x").ttl(LONG)).await;
    let lock = other.lock("x").retry(RETRY.0, RETRY.1, 4);
    let error = lock.acquire().await.expect_err("it is held");
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(view(&one, "x").await.waiters.is_empty(), "it never stood in the queue");
}

async fn retries_succeed(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let held = take(&one.lock("x").ttl(SHORT).no_renewal()).await;
    let lock = other.lock("x").retry(RETRY.0, RETRY.1, u32::MAX);
    assert!(lock.acquire().await.expect("in the end").fence() > held.fence());
}

/// Longer than a caller is left alone with what it has sent.
async fn an_answer_that_takes_its_time_is_heard(fixture: &Fixture) {
    let (locks, line) = fixture.faulty().await;
    for kind in [Kind::Ask, Kind::Renew, Kind::Release] {
        line.next(kind, [Fate::Delay(SHORT)]);
    }
    let guard = locks.lock("x").ttl(LONG).acquire().await.expect("granted");
    guard.renew().await.expect("renewed");
    assert_eq!(guard.release().await.expect("answered"), Release::Released);
}
