//! Giving leases back.

use std::{panic, thread};

use leaseward::{
    Block, Error, Name, Release,
    store::{Evidence, Grant, Push, Reply},
};

use crate::{
    Case, Fate, Fixture, Kind, Need,
    case::case,
    support::{LONG, SHORT, busy, join, on_own_runtime, take, view},
};

pub(super) const CASES: &[Case] = &[
    case!(says_what_became_of_it).timed(),
    case!(never_frees_another_holders_lease).timed(),
    case!(may_be_repeated),
    case!(a_grant_told_late_leaves_it_its_answer, Need::Records),
    case!(dropping_gives_it_back),
    case!(work_that_panics_gives_it_back),
    case!(dropping_outside_a_runtime_gives_it_back),
    case!(dropping_after_the_runtime_is_harmless),
    case!(a_minimum_hold_outlasts_the_release, Need::MinHold).timed(),
    case!(a_minimum_hold_that_has_passed_costs_nothing, Need::MinHold).timed(),
];

async fn says_what_became_of_it(fixture: &Fixture) {
    let locks = fixture.client().await;
    let kept = take(&locks.lock("x").ttl(LONG)).await;
    assert_eq!(kept.release().await.expect("given back"), Release::Released);
    let lost = take(&locks.lock("x").ttl(SHORT).no_renewal()).await;
    lost.lost().await;
    assert_eq!(lost.release().await.expect("answered"), Release::AlreadyExpired);
}

async fn work_that_panics_gives_it_back(fixture: &Fixture) {
    let (locks, other) = (fixture.client().await, fixture.client().await);
    let lock = locks.lock("x").ttl(LONG);
    // A panic without a word: this one is meant.
    let work = async move { lock.run(|_| async { panic::resume_unwind(Box::new("meant")) }).await };
    let panic = tokio::spawn(async { drop::<Result<(), Error>>(work.await) }).await;
    let panic = panic.expect_err("it goes on").into_panic();
    assert_eq!(panic.downcast_ref(), Some(&"meant"));
    let next = other.lock("x").ttl(LONG).acquire().await.expect("by its release");
    assert!(next.is_held());
}

async fn never_frees_another_holders_lease(fixture: &Fixture) {
    let (late, other) = (fixture.bare().await, fixture.bare().await);
    let (old, new) = (late.token(), other.token());
    let before = fixture.now();
    assert!(matches!(late.ask("x", &old, SHORT).await, Reply::Granted(_)));
    fixture.until(before + SHORT * 2).await;
    assert!(matches!(other.ask("x", &new, LONG).await, Reply::Granted(_)));
    late.release("x", &old).await.expect_err("it is another one's now");
    late.renew("x", &old, LONG).await.expect_err("it is another one's now");
    other.renew("x", &new, LONG).await.expect("still held");
}

async fn may_be_repeated(fixture: &Fixture) {
    let bare = fixture.bare().await;
    let (first, second) = (bare.token(), bare.token());
    assert!(matches!(bare.ask("x", &first, LONG).await, Reply::Granted(_)));
    bare.release("x", &first).await.expect("given back");
    bare.release("x", &first).await.expect_err("nothing is left to give back");
    assert!(matches!(bare.ask("x", &second, LONG).await, Reply::Granted(_)));
    bare.release("x", &first).await.expect_err("it is another one's now");
    bare.renew("x", &second, LONG).await.expect("still held");
    bare.release("never heard of", &first).await.expect_err("nobody has it");
}

/// The push of a grant that an ask was told of before arrives while the lease is being given back.
async fn a_grant_told_late_leaves_it_its_answer(fixture: &Fixture) {
    let (one, line) = fixture.faulty().await;
    let other = fixture.client().await;
    let guard = take(&one.lock("x").ttl(LONG)).await;
    let block = Block { first: guard.fence(), len: 1 };
    let grant = Grant { block, slot: None, ttl: LONG, evidence: Evidence::LargerFence, waiters: 0 };
    line.next(Kind::Release, [Fate::HoldRequest]);
    let releasing = tokio::spawn(guard.release());
    line.held_back(1).await;
    let name = Name::new("x").expect("a good name");
    line.push(Push::Granted { name, token: line.last_asked(), grant });
    line.let_go();
    let released = releasing.await.expect("no panic").expect("answered");
    assert_eq!(released, Release::Released);
    assert!(view(&other, "x").await.holders.is_empty(), "it is free");
}

async fn dropping_gives_it_back(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    drop(take(&one.lock("x").ttl(LONG)).await);
    let next = other.lock("x").acquire().await.expect("it comes free");
    assert!(next.is_held());
}

async fn dropping_outside_a_runtime_gives_it_back(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let guard = take(&one.lock("x").ttl(LONG)).await;
    join(thread::spawn(move || {
        assert!(tokio::runtime::Handle::try_current().is_err());
        drop(guard);
    }))
    .await;
    let next = other.lock("x").acquire().await.expect("it comes free");
    assert!(next.is_held());
}

async fn dropping_after_the_runtime_is_harmless(fixture: &Fixture) {
    let other = fixture.client().await;
    let guard = join(on_own_runtime(fixture, |fixture| async move {
        take(&fixture.client().await.lock("x").ttl(SHORT)).await
    }))
    .await;
    join(thread::spawn(move || drop(guard))).await;
    let next = other.lock("x").acquire().await.expect("at the latest by its TTL");
    assert!(next.is_held());
}

async fn a_minimum_hold_outlasts_the_release(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let before = fixture.now();
    let guard = take(&one.lock("cron").ttl(LONG).min_hold(SHORT * 2)).await;
    let fence = guard.fence();
    assert_eq!(guard.release().await.expect("given back"), Release::Released);
    let next = other.lock("cron").acquire().await.expect("in the end");
    assert!(fixture.now().since(before) >= SHORT * 2, "free before the minimum hold was over");
    assert!(next.fence() > fence);
}

async fn a_minimum_hold_that_has_passed_costs_nothing(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let guard = take(&one.lock("cron").ttl(LONG).min_hold(SHORT)).await;
    let held_since = fixture.now();
    busy(&other.lock("cron")).await;
    fixture.until(held_since + SHORT).await;
    guard.release().await.expect("given back");
    assert!(view(&one, "cron").await.holders.is_empty());
    assert!(take(&other.lock("cron")).await.is_held());
}
