//! The blocking façade: the same locks for threads without a runtime.

use std::{sync::Arc, thread};

use leaseward::{ErrorKind, Release, blocking};

use crate::{
    Case, Fixture, Need,
    case::case,
    support::{LONG, SHORT, Witness, busy, join, take},
};

pub(super) const CASES: &[Case] = &[
    case!(threads_exclude_each_other_and_tasks, Need::Processes),
    case!(the_thread_is_the_owner, Need::Processes),
    case!(blocked_work_that_ends_too_late_is_lost, Need::Processes),
];

async fn threads_exclude_each_other_and_tasks(fixture: &Fixture) {
    const ROUNDS: usize = 20;
    let url = fixture.url();
    let witness = Arc::new(Witness::default());
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let (url, witness) = (url.clone(), witness.clone());
            thread::spawn(move || {
                let locks = blocking::connect(&url).expect("the store opens");
                for _ in 0..ROUNDS {
                    let guard = locks.lock("x").ttl(LONG).acquire().expect("granted");
                    let inside = witness.enter(guard.fence());
                    thread::yield_now();
                    drop(inside);
                    assert_eq!(guard.release().expect("given back"), Release::Released);
                }
            })
        })
        .collect();
    let locks = fixture.client().await;
    for _ in 0..ROUNDS {
        let guard = locks.lock("x").ttl(LONG).acquire().await.expect("granted");
        let inside = witness.enter(guard.fence());
        tokio::task::yield_now().await;
        drop(inside);
        guard.release().await.expect("given back");
    }
    for thread in threads {
        join(thread).await;
    }
}

async fn the_thread_is_the_owner(fixture: &Fixture) {
    let url = fixture.url();
    join(thread::spawn(move || {
        let locks = blocking::connect(&url).expect("the store opens");
        let _guard = locks.lock("x").ttl(LONG).acquire().expect("granted");
        let error = locks.lock("x").ttl(LONG).acquire().expect_err("it would wait for itself");
        assert_eq!(error.kind(), ErrorKind::Deadlock, "{error}");
    }))
    .await;
    // What its end left behind in the background is given back.
    let locks = fixture.client().await;
    assert!(locks.lock("x").acquire().await.expect("it comes free").is_held());
}

async fn blocked_work_that_ends_too_late_is_lost(fixture: &Fixture) {
    let (other, url) = (fixture.client().await, fixture.url());
    let work = join(thread::spawn(move || {
        let locks = blocking::connect(&url).expect("the store opens");
        let lock = locks.lock("x").ttl(SHORT).with(leaseward::Lock::no_renewal);
        // A thread cannot be stopped from outside; that it came too late must not go unseen.
        lock.run(|lease| {
            while lease.is_held() {
                thread::yield_now();
            }
        })
    }))
    .await;
    let error = work.expect_err("it was lost");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    let guard = other.lock("x").acquire().await.expect("it comes free");
    busy(&other.lock("x")).await;
    guard.release().await.expect("given back");
    take(&other.lock("x")).await.release().await.expect("given back");
}
