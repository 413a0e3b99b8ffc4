//! The server lets one session in again and again; tasks of one process exclude each other all the same.

use std::sync::{
    Arc,
    atomic::{AtomicI32, AtomicU32, Ordering},
};

use leaseward::Locks;

use crate::help::{LONG, advisory, is_busy, locks_in, server, take};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tasks_of_one_process_exclude_each_other() {
    let server = server();
    // Without cohorts, every task asks the store.
    let locks = Locks::builder().cohorts(false).connect(&advisory(&server.url())).await;
    let locks = locks.expect("it can be reached");
    let (inside, rounds) = (Arc::new(AtomicI32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut tasks = Vec::new();
    for _ in 0..6 {
        let (locks, inside, rounds) = (locks.clone(), inside.clone(), rounds.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..10 {
                let held = locks.lock("a").ttl(LONG).acquire().await.expect("granted");
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                rounds.fetch_add(1, Ordering::SeqCst);
                held.release().await.expect("given back");
            }
        }));
    }
    for task in tasks {
        task.await.expect("never two at once");
    }
    assert_eq!(rounds.load(Ordering::SeqCst), 60);
    assert_eq!(locks_in(&server), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_of_one_process_count() {
    let server = server();
    let locks = Locks::builder().cohorts(false).connect(&advisory(&server.url())).await;
    let (locks, other) = (locks.expect("it can be reached"), crate::help::connect(&server).await);
    let (one, two) = (
        take(&locks.lock("a").shared().ttl(LONG)).await,
        take(&locks.lock("a").shared().ttl(LONG)).await,
    );
    assert!(two.fence() > one.fence());
    assert!(is_busy(&locks.lock("a").ttl(LONG)).await, "a writer of the same process");
    one.release().await.expect("given back");
    assert!(is_busy(&other.lock("a").ttl(LONG)).await, "the second reader is still there");
    assert!(is_busy(&locks.lock("a").ttl(LONG)).await);
    two.release().await.expect("given back");
    assert!(take(&other.lock("a").ttl(LONG)).await.is_held());
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_locks_need_one_session() {
    let server = leaseward_testkit::Postgres::builder()
        .in_memory()
        .conf("max_locks_per_transaction", "256")
        .start();
    let locks = crate::help::connect(&server).await;
    let mut taking = tokio::task::JoinSet::new();
    for at in 0..10_000 {
        let lock = locks.lock(format!("name-{at}")).ttl(LONG);
        taking.spawn(async move { lock.acquire().await.expect("granted") });
    }
    let held = taking.join_all().await;
    assert_eq!(locks_in(&server), 10_000);
    let sessions = server
        .sql("SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'leaseward%'");
    assert_eq!(sessions, "1");
    assert!(held.iter().all(leaseward::Guard::is_held));
    locks.shutdown().await;
}
