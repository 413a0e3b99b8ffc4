//! More than one runtime, and runtimes whose threads do not run: what is promised does not hang on any one task.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::Duration,
};

use leaseward::{ErrorKind, LostReason};
use tokio::runtime::{Builder, Runtime};

const LONG: Duration = Duration::from_secs(3600);

fn runtime(threads: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(threads).enable_all().build().expect("a runtime")
}

/// Nothing of the runtime that minds leases runs: nobody renews them, and nobody there tells that they end.
#[test]
fn a_runtime_that_stands_still_keeps_nobody_from_hearing_of_a_loss() {
    let (tell, told) = mpsc::channel();
    let runs_again = Arc::new(AtomicBool::new(false));
    let (works, working) = mpsc::channel::<()>();
    let runs = runs_again.clone();
    let stands_still = std::thread::spawn(move || {
        let minds = Builder::new_current_thread().enable_all().build().expect("a runtime");
        minds.block_on(async {
            let locks = leaseward::connect("memory:").await.expect("opened");
            let guard = locks.lock("a").ttl(Duration::from_millis(300)).acquire().await;
            let guard = guard.expect("free");
            tell.send(guard.lease()).expect("somebody listens");
            // Until the other has heard of it; if it never does, for long enough to be found out.
            let _ = working.recv_timeout(Duration::from_secs(20));
            runs.store(true, Ordering::SeqCst);
            drop(guard);
        });
    });
    let lease = told.recv().expect("it is held");
    assert_eq!(runtime(1).block_on(lease.lost()), LostReason::Expired);
    assert!(!runs_again.load(Ordering::SeqCst), "it heard of it only when that one ran again");
    drop(works);
    stands_still.join().expect("no panic");
}

#[test]
fn what_is_held_is_lost_with_the_runtime_that_minds_it() {
    let minds = runtime(1);
    let asks = runtime(1);
    let locks = minds.block_on(leaseward::connect("memory:")).expect("opened");
    let held = asks.block_on(locks.lock("a").ttl(LONG).acquire()).expect("free");
    let (lock, lease) = (locks.lock("a"), held.lease());
    let (waits, waiting) = mpsc::channel();
    locks.on_event(move |event| {
        if event.kind == leaseward::EventKind::Waiting {
            let _ = waits.send(());
        }
    });
    let waiter = asks.spawn(async move { lock.acquire().await.map(drop) });
    let watcher = asks.spawn(async move { lease.lost().await });
    waiting.recv().expect("it waits");
    drop(minds);
    assert_eq!(asks.block_on(watcher).expect("no panic"), LostReason::ShutDown);
    assert!(!held.is_held());
    let told = asks.block_on(waiter).expect("no panic").expect_err("nobody serves it");
    assert_eq!(told.kind(), ErrorKind::ShutDown);
    let refused = asks.block_on(locks.lock("b").acquire()).expect_err("nobody would renew it");
    assert_eq!(refused.kind(), ErrorKind::ShutDown);
}

/// Timers belong to runtimes: what is under way must not hang on those of a caller that goes.
#[cfg(feature = "postgres")]
#[test]
fn a_callers_runtime_may_end_while_the_store_is_asked() {
    let server = leaseward_testkit::Postgres::start();
    let minds = runtime(2);
    let url = format!("{}?timeout=60s", server.url());
    let locks = minds.block_on(leaseward::connect(&url)).expect("opened");
    // More often than there are connections.
    for at in 0..=4 {
        server.pause();
        let lock = locks.lock(format!("a{at}"));
        let goes = std::thread::spawn(move || {
            let asks = Builder::new_current_thread().enable_all().build().expect("a runtime");
            let asked =
                async { tokio::time::timeout(Duration::from_millis(50), lock.acquire()).await };
            assert!(asks.block_on(asked).is_err(), "nobody answers");
        });
        goes.join().expect("no panic");
        server.resume();
    }
    let asked = async {
        tokio::time::timeout(leaseward_testkit::PATIENCE, locks.lock("b").acquire()).await
    };
    assert!(minds.block_on(asked).expect("it is not stuck").expect("free").is_held());
}
