//! A machine that was suspended: leases counted on, the runtime's timers did not.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leaseward::{
    ErrorKind, Locks, LostReason, Release,
    clock::{BoxFuture, Clock, Moment, SystemClock},
    stores::memory::Memory,
};

/// The machine's clock, moved on by the time it spent suspended.
#[derive(Clone, Debug, Default)]
struct Suspended(Arc<AtomicU64>);

impl Suspended {
    fn suspend(&self, by: Duration) {
        let nanos = u64::try_from(by.as_nanos()).expect("not for centuries");
        self.0.fetch_add(nanos, Ordering::SeqCst);
    }
}

impl Clock for Suspended {
    fn now(&self) -> Moment {
        SystemClock.now() + Duration::from_nanos(self.0.load(Ordering::SeqCst))
    }

    fn wall_us(&self) -> u64 {
        SystemClock.wall_us() + self.0.load(Ordering::SeqCst) / 1_000
    }

    // As the machine's clock does it: naps of the runtime's time, and a look at the real one after each.
    fn sleep_until(&self, at: Moment) -> BoxFuture<'static, ()> {
        let clock = self.clone();
        Box::pin(async move {
            while clock.now() < at {
                let nap = at.since(clock.now()).min(Duration::from_millis(250));
                tokio::time::sleep(nap).await;
            }
        })
    }
}

fn locks(clock: &Suspended) -> Locks {
    let clock: Arc<dyn Clock> = Arc::new(clock.clone());
    let store = Arc::new(Memory::new(clock.clone()));
    Locks::builder().clock(clock).over(store).expect("a runtime")
}

#[tokio::test]
async fn a_lease_that_ended_meanwhile_is_lost_at_once() {
    let clock = Suspended::default();
    let locks = locks(&clock);
    let guard = locks.lock("x").ttl(Duration::from_secs(3600)).acquire().await.expect("free");
    clock.suspend(Duration::from_secs(2 * 3600));
    assert!(!guard.is_held(), "known before any timer fires");
    // The next renewal would be due in twenty minutes of the runtime's time.
    assert_eq!(guard.lost().await, LostReason::Expired);
    assert_eq!(guard.release().await.expect("answered"), Release::AlreadyExpired);
}

#[tokio::test]
async fn somebody_who_listens_already_is_told() {
    let clock = Suspended::default();
    let locks = locks(&clock);
    let guard = locks.lock("x").ttl(Duration::from_secs(3600)).acquire().await.expect("free");
    let lease = guard.lease();
    let listening = tokio::spawn(async move { lease.lost().await });
    tokio::task::yield_now().await;
    clock.suspend(Duration::from_secs(2 * 3600));
    assert_eq!(listening.await.expect("no panic"), LostReason::Expired);
    drop(guard);
}

#[tokio::test]
async fn work_under_the_lease_is_dropped() {
    let clock = Suspended::default();
    let locks = locks(&clock);
    let (begun, beginning) = tokio::sync::oneshot::channel();
    let work = tokio::spawn(async move {
        let lock = locks.lock("x").ttl(Duration::from_secs(3600));
        lock.run(|_| async move {
            let _ = begun.send(());
            std::future::pending::<()>().await;
        })
        .await
    });
    beginning.await.expect("begun");
    clock.suspend(Duration::from_secs(2 * 3600));
    let error = work.await.expect("no panic").expect_err("the lease has ended");
    assert_eq!(error.kind(), ErrorKind::Lost);
}
