//! Several names at once.

use std::{collections::HashMap, sync::Arc, time::Duration};

use leaseward::{ErrorKind, EventKind, Locks, LostReason, MultiAttempt, MultiGuard, Release};

use crate::{
    Case, Fate, Fixture, Kind, Need,
    case::case,
    support::{
        Heard, LONG, SHORT, Witness, asking, busy, cancel, eventually, granted, held_with,
        queue_of, take, view,
    },
};

pub(super) const CASES: &[Case] = &[
    case!(a_try_gives_back_what_it_took),
    case!(a_try_that_is_refused_keeps_no_minimum_hold, Need::MinHold),
    case!(a_try_overtakes_nobody, Need::Shared, Need::Queue),
    case!(opposite_orders_never_deadlock),
    case!(those_before_are_kept_while_the_next_is_waited_for).timed(),
    case!(given_back_on_time_out).timed(),
    case!(given_back_when_cancelled, Need::Queue),
    case!(each_name_has_its_fence),
    case!(lost_as_soon_as_one_is, Need::Records).timed(),
    case!(all_are_renewed).timed(),
    case!(a_try_that_fails_leaves_nothing_behind),
    case!(all_may_arrive_twice),
    case!(a_name_given_twice_counts_once),
    case!(no_names_and_too_many_are_refused),
];

/// As often a token asks before its caller is told that nobody knows.
const ASKS_MAX: usize = 5;

async fn all_granted(locks: &Locks, names: &[&str]) -> MultiGuard {
    match locks.all(names).ttl(LONG).try_acquire().await.expect("the store answers") {
        MultiAttempt::Granted(guard) => guard,
        MultiAttempt::Busy(busy) => panic!("all must be free, but one is {busy}"),
    }
}

async fn a_try_gives_back_what_it_took(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let middle = take(&one.lock("b").ttl(LONG)).await;
    let attempt = other.all(["c", "b", "a"]).ttl(LONG).try_acquire().await.expect("answered");
    let MultiAttempt::Busy(busy) = attempt else { panic!("`b` is held") };
    assert!(busy.holder.is_some());
    comes_free(&one, "a").await;
    assert!(view(&one, "c").await.holders.is_empty(), "`c` comes after `b`");
    middle.release().await.expect("given back");
    let all = all_granted(&other, &["c", "b", "a"]).await;
    assert!(all.is_held());
    assert_eq!(all.release().await.expect("given back"), Release::Released);
    all_granted(&one, &["a", "b", "c"]).await.release().await.expect("given back");
}

/// It was never put to use, so its name need not stay blocked.
async fn a_try_that_is_refused_keeps_no_minimum_hold(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let _held = take(&one.lock("b").ttl(LONG)).await;
    let both = other.all(["a", "b"]).ttl(LONG).min_hold(LONG);
    let attempt = both.try_acquire().await.expect("answered");
    assert!(matches!(attempt, MultiAttempt::Busy(_)), "`b` is held");
    comes_free(&one, "a").await;
}

async fn a_try_overtakes_nobody(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let reader = take(&one.lock("b").shared().ttl(LONG)).await;
    let writer = asking(other.lock("b").ttl(LONG));
    queue_of(&one, "b", 1).await;
    let attempt = one.all(["a", "b"]).shared().ttl(LONG).try_acquire().await.expect("answered");
    assert!(matches!(attempt, MultiAttempt::Busy(_)), "the writer came first");
    reader.release().await.expect("given back");
    assert!(granted(writer).await.is_held());
}

const SETS: [[&str; 2]; 6] =
    [["a", "b"], ["b", "a"], ["b", "c"], ["c", "b"], ["c", "a"], ["a", "c"]];
const ROUNDS: usize = 6;

async fn opposite_orders_never_deadlock(fixture: &Fixture) {
    let clients = [fixture.client().await, fixture.client().await];
    let witnesses: Arc<HashMap<&str, Witness>> =
        Arc::new(["a", "b", "c"].map(|name| (name, Witness::default())).into());
    let mut tasks = Vec::new();
    for locks in &clients {
        for set in SETS {
            let (locks, witnesses) = (locks.clone(), witnesses.clone());
            tasks.push(tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    let guard = locks.all(set).ttl(LONG).acquire().await.expect("granted");
                    let inside: Vec<_> = guard
                        .fences()
                        .map(|(name, fence)| witnesses[name.as_str()].enter(fence))
                        .collect();
                    tokio::task::yield_now().await;
                    drop(inside);
                    guard.release().await.expect("given back");
                }
            }));
        }
    }
    for task in tasks {
        task.await.expect("never two at once");
    }
}

/// The name is neither held nor waited for.
async fn comes_free(locks: &Locks, name: &str) {
    eventually(&format!("`{name}` is given back"), || async {
        let view = view(locks, name).await;
        view.holders.is_empty() && view.waiters.is_empty()
    })
    .await;
}

async fn those_before_are_kept_while_the_next_is_waited_for(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let heard = Heard::of(&other);
    let held = take(&one.lock("b").ttl(LONG)).await;
    let both = other.all(["a", "b"]).ttl(SHORT * 4);
    let waiting = tokio::spawn(async move { both.acquire().await });
    heard.first(EventKind::Acquired).await;
    fixture.until(fixture.now() + SHORT * 8).await;
    busy(&one.lock("a")).await;
    held.release().await.expect("given back");
    assert!(waiting.await.expect("no panic").expect("granted").is_held());
}

async fn given_back_on_time_out(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let _held = take(&one.lock("b").ttl(LONG)).await;
    let both = other.all(["a", "b"]).ttl(LONG).wait(SHORT);
    let error = both.acquire().await.expect_err("`b` is held");
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    comes_free(&one, "a").await;
    queue_of(&one, "b", 0).await;
}

async fn given_back_when_cancelled(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let held = take(&one.lock("b").ttl(LONG)).await;
    let both = other.all(["a", "b"]).ttl(LONG);
    let waiting = tokio::spawn(async move { both.acquire().await });
    queue_of(&one, "b", 1).await;
    assert_eq!(view(&one, "a").await.holders.len(), 1, "taken in sorted order");
    cancel(waiting).await;
    comes_free(&one, "a").await;
    queue_of(&one, "b", 0).await;
    held.release().await.expect("given back");
    assert!(take(&one.lock("b")).await.is_held());
}

async fn each_name_has_its_fence(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let first = all_granted(&one, &["b", "a"]).await;
    let names: Vec<_> = first.fences().map(|(name, _)| name.as_str().to_owned()).collect();
    assert_eq!(names, ["a", "b"]);
    let fences = ["a", "b"].map(|name| first.fence(name).expect("held"));
    first.release().await.expect("given back");
    let second = all_granted(&other, &["a", "b"]).await;
    for (name, fence) in ["a", "b"].into_iter().zip(fences) {
        assert!(second.fence(name).expect("held") > fence);
    }
    assert_eq!(second.fence("c"), None);
}

async fn lost_as_soon_as_one_is(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let all = one.all(["a", "b"]).ttl(SHORT * 4).acquire().await.expect("granted");
    other.break_lease("b", false).await.expect("broken");
    let (name, reason) = all.lost().await;
    assert_eq!((name.as_str(), reason), ("b", LostReason::Broken));
    assert!(!all.is_held() && all.remaining() == Duration::ZERO);
    assert_eq!(all.release().await.expect("answered"), Release::AlreadyExpired);
}

async fn all_are_renewed(fixture: &Fixture) {
    let locks = fixture.client().await;
    let ttl = SHORT * 4;
    let all = locks.all(["a", "b", "c"]).ttl(ttl).acquire().await.expect("granted");
    fixture.until(all.deadline() + ttl).await;
    assert!(all.is_held());
}

async fn a_try_that_fails_leaves_nothing_behind(fixture: &Fixture) {
    let (one, line) = fixture.faulty().await;
    let other = fixture.client().await;
    let for_the_second = std::iter::repeat_n(Fate::LoseReply, ASKS_MAX);
    line.next(Kind::Ask, std::iter::once(Fate::Through).chain(for_the_second));
    let error = one.all(["a", "b"]).ttl(LONG).try_acquire().await.expect_err("nobody knows");
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    let guard = other.all(["a", "b"]).acquire().await.expect("they come free");
    assert!(guard.is_held());
}

async fn all_may_arrive_twice(fixture: &Fixture) {
    let (one, line) = fixture.faulty().await;
    let other = fixture.client().await;
    line.always(Fate::Repeat);
    let all = all_granted(&one, &["a", "b"]).await;
    for (name, fence) in all.fences() {
        held_with(&other, name, fence).await;
    }
    all.release().await.expect("answered");
    all_granted(&other, &["a", "b"]).await.release().await.expect("given back");
}

async fn a_name_given_twice_counts_once(fixture: &Fixture) {
    let locks = fixture.client().await;
    let guard = locks.all(["a", "b", "a"]).acquire().await.expect("no deadlock with oneself");
    assert_eq!(guard.fences().count(), 2);
}

async fn no_names_and_too_many_are_refused(fixture: &Fixture) {
    let locks = fixture.client().await;
    let many: Vec<_> = (0..1_000).map(|at| format!("name-{at}")).collect();
    for names in [vec![], many] {
        let error = locks.all(&names).acquire().await.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
}
