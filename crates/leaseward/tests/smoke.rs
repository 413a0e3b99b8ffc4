//! First light: the engine over the memory store.
use std::{sync::Arc, time::Duration};

use leaseward::{Attempt, ErrorKind, Release, connect};

#[tokio::test]
async fn acquires_and_releases() {
    let locks = connect("memory:").await.expect("opens");
    let guard = locks.lock("table:42").acquire().await.expect("free");
    assert!(guard.is_held());
    let Attempt::Busy(_) = locks.lock("table:42").try_acquire().await.expect("asks") else {
        panic!("held")
    };
    let first = guard.fence();
    assert_eq!(guard.release().await.expect("ours"), Release::Released);
    let guard = locks.lock("table:42").acquire().await.expect("free again");
    assert!(guard.fence() > first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_tasks_take_turns() {
    let locks = connect("memory:").await.expect("opens");
    let inside = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let last = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let tasks: Vec<_> = (0..100)
        .map(|_| {
            let (locks, inside, last) = (locks.clone(), inside.clone(), last.clone());
            tokio::spawn(async move {
                for _ in 0..50 {
                    let guard = locks.lock("x").acquire().await.expect("in time");
                    assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                    let fence = guard.fence().get();
                    assert!(last.swap(fence, std::sync::atomic::Ordering::SeqCst) < fence);
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    guard.release().await.expect("ours");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
}

#[tokio::test]
async fn waits_no_longer_than_told() {
    let locks = connect("memory:").await.expect("opens");
    let _guard = locks.lock("x").acquire().await.expect("free");
    let error = locks
        .lock("x")
        .owner("another")
        .wait(Duration::from_millis(50))
        .acquire()
        .await
        .expect_err("held");
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
}

#[tokio::test(flavor = "current_thread")]
async fn a_busy_loop_lets_other_tasks_run() {
    let locks = connect("memory:").await.expect("opens");
    let is_over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let busy = {
        let is_over = is_over.clone();
        tokio::spawn(async move {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                let guard = locks.lock("x").acquire().await.expect("free");
                guard.release().await.expect("ours");
            }
        })
    };
    tokio::spawn(async move { is_over.store(true, std::sync::atomic::Ordering::Relaxed) })
        .await
        .expect("gets its turn");
    busy.await.expect("ends");
}

#[tokio::test]
async fn a_sink_may_drop_the_guard_it_hears_of() {
    let locks = connect("memory:").await.expect("opens");
    let kept = Arc::new(std::sync::Mutex::new(None));
    let (told, mut losses) = tokio::sync::mpsc::unbounded_channel();
    locks.on_event({
        let kept = kept.clone();
        move |event| {
            if event.kind == leaseward::EventKind::Lost {
                drop(kept.lock().expect("no panic").take());
                let _ = told.send(());
            }
        }
    });
    let lock = locks.lock("x").ttl(Duration::from_millis(100)).no_renewal();
    *kept.lock().expect("no panic") = Some(lock.acquire().await.expect("free"));
    losses.recv().await.expect("told, and not stuck in the engine's own locks");
    assert!(kept.lock().expect("no panic").is_none());
}

#[tokio::test]
async fn what_it_holds_and_waits_for_can_be_shown() {
    let locks = connect("memory:").await.expect("opens");
    let guard = locks.lock("table:42").acquire().await.expect("free");
    let lock = locks.lock("table:42");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    tokio::task::yield_now().await;
    let shown = format!("{locks:?}");
    for part in ["\"table:42\"", "phase: \"held\"", "waiters: 1", "breaker"] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    guard.release().await.expect("ours");
    waiting.await.expect("no panic").expect("free again").release().await.expect("ours");
    assert!(!format!("{locks:?}").contains("table:42"));
}
