//! Counting semaphores.

use std::{collections::BTreeSet, sync::Arc};

use leaseward::ErrorKind;

use crate::{
    Case, Fixture, Need,
    case::case,
    support::{Crowd, LONG, SHORT, asking, busy, granted, queue_of, take},
};

pub(super) const CASES: &[Case] = &[
    case!(never_more_than_the_capacity, Need::Permits),
    case!(slots_are_distinct, Need::Permits),
    case!(a_freed_slot_is_given_again, Need::Permits, Need::Queue),
    case!(another_capacity_is_refused_while_held, Need::Permits),
    case!(a_vanished_permit_comes_free, Need::Permits).timed(),
    case!(permits_and_locks_exclude_each_other, Need::Permits),
    case!(an_absurd_capacity_is_refused, Need::Permits),
];

const CAPACITY: u32 = 3;
const TASKS: usize = 9;
const ROUNDS: usize = 8;

async fn never_more_than_the_capacity(fixture: &Fixture) {
    let clients = [fixture.client().await, fixture.client().await, fixture.client().await];
    let crowd = Arc::new(Crowd::of(CAPACITY));
    let mut tasks = Vec::new();
    for locks in clients.iter().cycle().take(TASKS) {
        let (permit, crowd) = (locks.semaphore("gpu", CAPACITY).ttl(LONG), crowd.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..ROUNDS {
                let guard = permit.acquire().await.expect("granted");
                let inside = crowd.enter(guard.slot(), guard.fence());
                tokio::task::yield_now().await;
                drop(inside);
                guard.release().await.expect("given back");
            }
        }));
    }
    for task in tasks {
        task.await.expect("one in each slot, with growing fences");
    }
}

async fn slots_are_distinct(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let permits = [
        take(&one.semaphore("gpu", CAPACITY)).await,
        take(&other.semaphore("gpu", CAPACITY)).await,
        take(&one.semaphore("gpu", CAPACITY)).await,
    ];
    let slots: BTreeSet<_> = permits.iter().filter_map(|permit| permit.slot()).collect();
    assert_eq!(slots, (0..CAPACITY).collect());
    busy(&one.semaphore("gpu", CAPACITY)).await;
    busy(&other.semaphore("gpu", CAPACITY)).await;
}

async fn a_freed_slot_is_given_again(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let kept = take(&one.semaphore("gpu", 2).ttl(LONG)).await;
    let freed = take(&one.semaphore("gpu", 2).ttl(LONG)).await;
    let waiting = asking(other.semaphore("gpu", 2).ttl(LONG));
    queue_of(&one, "gpu", 1).await;
    let (slot, fence) = (freed.slot(), freed.fence());
    freed.release().await.expect("given back");
    let next = granted(waiting).await;
    assert_eq!(next.slot(), slot);
    assert!(next.fence() > fence && kept.is_held());
}

async fn another_capacity_is_refused_while_held(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let permit = take(&one.semaphore("gpu", 2).ttl(LONG)).await;
    let error = other.semaphore("gpu", 3).try_acquire().await.expect_err("it is two");
    assert_eq!(error.kind(), ErrorKind::Capacity, "{error}");
    let error = other.semaphore("gpu", 1).acquire().await.expect_err("it is two");
    assert_eq!(error.kind(), ErrorKind::Capacity, "{error}");
    let second = take(&other.semaphore("gpu", 2)).await;
    permit.release().await.expect("given back");
    second.release().await.expect("given back");
    assert!(
        take(&other.semaphore("gpu", 3)).await.is_held(),
        "free again, so the next one decides"
    );
}

async fn a_vanished_permit_comes_free(fixture: &Fixture) {
    let (gone, line) = fixture.faulty().await;
    let other = fixture.client().await;
    let kept = take(&other.semaphore("gpu", 2).ttl(LONG)).await;
    let vanished = take(&gone.semaphore("gpu", 2).ttl(SHORT)).await;
    line.cut();
    let next = other.semaphore("gpu", 2).acquire().await.expect("in the end");
    assert!(!vanished.is_held(), "its deadline was before the store gave its permit away");
    assert_eq!(next.slot(), vanished.slot());
    assert!(next.fence() > vanished.fence() && kept.is_held());
}

async fn permits_and_locks_exclude_each_other(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let permit = take(&one.semaphore("gpu", 2).ttl(LONG)).await;
    busy(&other.lock("gpu")).await;
    permit.release().await.expect("given back");
    let _lock = take(&other.lock("gpu").ttl(LONG)).await;
    busy(&one.semaphore("gpu", 2)).await;
}

async fn an_absurd_capacity_is_refused(fixture: &Fixture) {
    let locks = fixture.client().await;
    for capacity in [0, leaseward::CAPACITY_MAX + 1] {
        let error = locks.semaphore("gpu", capacity).acquire().await.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
}
