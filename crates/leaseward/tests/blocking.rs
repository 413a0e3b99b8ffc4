//! The façade for threads without a runtime.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
    thread,
    time::Duration,
};

use leaseward::{ErrorKind, LostReason, Release, blocking, blocking::Attempt, store::Query};

#[test]
fn threads_take_turns() {
    let locks = blocking::connect("memory:").expect("opens");
    let inside = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (locks, inside) = (locks.clone(), inside.clone());
            thread::spawn(move || {
                for _ in 0..50 {
                    let guard = locks.lock("x").acquire().expect("in turn");
                    assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                    inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    assert_eq!(guard.release().expect("answered"), Release::Released);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
}

#[test]
fn a_thread_that_waits_for_itself_is_told() {
    let locks = blocking::connect("memory:").expect("opens");
    let _guard = locks.lock("x").acquire().expect("free");
    let error = locks.lock("x").acquire().expect_err("held by this very thread");
    assert_eq!(error.kind(), ErrorKind::Deadlock, "{error}");
}

#[test]
fn dropping_everything_still_releases() {
    let first = blocking::connect("memory:dropped").expect("opens");
    let witness = blocking::connect("memory:dropped").expect("opens");
    let guard = first.lock("x").acquire().expect("free");
    drop(first);
    assert!(matches!(witness.lock("x").try_acquire().expect("asks"), Attempt::Busy(_)));
    drop(guard);
    assert_eq!(witness.inspect(Query::all()).expect("looks"), vec![]);
}

#[test]
fn refuses_to_block_a_runtime() {
    let locks = blocking::connect("memory:").expect("opens");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let error =
        runtime.block_on(async { locks.lock("x").acquire().expect_err("inside a runtime") });
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

#[test]
fn run_says_when_the_lease_was_lost() {
    let locks = blocking::connect("memory:").expect("opens");
    let lock = locks.lock("x").ttl(Duration::from_millis(100)).with(leaseward::Lock::no_renewal);
    let error = lock
        .run(|lease| {
            while lease.is_held() {
                thread::yield_now();
            }
        })
        .expect_err("lost");
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(locks.lock("x").run(|lease| lease.fence().get() > 0).expect("free"));
}

#[test]
fn a_loss_is_waited_for_so_long_and_no_longer() {
    let locks = blocking::connect("memory:").expect("opens");
    let kept = locks.lock("kept").acquire().expect("free");
    assert_eq!(kept.lost_within(Duration::from_millis(20)).expect("outside of a runtime"), None);
    assert!(kept.is_held());
    let lock = locks.lock("x").ttl(Duration::from_millis(100)).with(leaseward::Lock::no_renewal);
    let guard = lock.acquire().expect("free");
    let lost = guard.lost_within(Duration::from_secs(60)).expect("outside of a runtime");
    assert_eq!(lost, Some(LostReason::Expired));
    let at_once = guard.lost_within(Duration::ZERO).expect("outside of a runtime");
    assert_eq!(at_once, Some(LostReason::Expired), "it stays lost");
}

#[test]
fn work_that_panics_gives_the_lease_back() {
    let locks = blocking::connect("memory:").expect("opens");
    let lock = locks.lock("x").ttl(Duration::from_secs(3600));
    let work = AssertUnwindSafe(|| lock.run(|_| resume_unwind(Box::new("meant"))));
    let panic = catch_unwind(|| drop::<Result<(), _>>(work())).expect_err("it goes on");
    assert_eq!(panic.downcast_ref(), Some(&"meant"));
    lock.acquire().expect("given back").release().expect("ours");
}
