//! At most one holder.

use std::sync::Arc;

use leaseward::{Locks, Mode};

use crate::{
    Case, Fixture, Need,
    case::case,
    support::{LONG, Witness, busy, take},
};

pub(super) const CASES: &[Case] = &[
    case!(one_holder_under_contention),
    case!(one_holder_without_cohorts),
    case!(a_try_says_who_holds_it, Need::Records),
    case!(names_are_independent),
    case!(a_released_name_is_free),
];

/// Clients that contend.
const CLIENTS: usize = 3;
/// Tasks of each.
const TASKS: usize = 6;
/// Turns of each.
const ROUNDS: usize = 12;

async fn contend(clients: Vec<Locks>) {
    let witness = Arc::new(Witness::default());
    let mut tasks = Vec::new();
    for locks in clients.iter().cycle().take(CLIENTS * TASKS) {
        let (lock, witness) = (locks.lock("x").ttl(LONG), witness.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..ROUNDS {
                let guard = lock.acquire().await.expect("granted");
                let inside = witness.enter(guard.fence());
                tokio::task::yield_now().await;
                drop(inside);
                guard.release().await.expect("given back");
            }
        }));
    }
    for task in tasks {
        task.await.expect("never two at once");
    }
    assert_eq!(usize::try_from(witness.entered()), Ok(CLIENTS * TASKS * ROUNDS));
}

async fn one_holder_under_contention(fixture: &Fixture) {
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(fixture.client().await);
    }
    contend(clients).await;
}

async fn one_holder_without_cohorts(fixture: &Fixture) {
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(fixture.lone().await);
    }
    contend(clients).await;
}

async fn a_try_says_who_holds_it(fixture: &Fixture) {
    let holder = fixture.client_with(|builder| builder.who("web-3:4121")).await;
    let other = fixture.client().await;
    let _guard = take(&holder.lock("x").ttl(LONG)).await;
    let holder = busy(&other.lock("x")).await.holder.expect("somebody holds it");
    assert_eq!((&*holder.who, holder.mode), ("web-3:4121", Mode::Exclusive));
    let remaining = holder.remaining.expect("for a time");
    assert!(!remaining.is_zero() && remaining <= LONG, "{remaining:?}");
}

async fn names_are_independent(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let first = take(&one.lock("x")).await;
    let second = take(&other.lock("y")).await;
    let third = take(&one.lock("z")).await;
    assert!(first.is_held() && second.is_held() && third.is_held());
}

async fn a_released_name_is_free(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let guard = take(&one.lock("x").ttl(LONG)).await;
    busy(&other.lock("x")).await;
    guard.release().await.expect("given back");
    let guard = take(&other.lock("x")).await;
    assert!(guard.is_held());
}
