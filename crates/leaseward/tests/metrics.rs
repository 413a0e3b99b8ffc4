//! What a `metrics` recorder is told, as far as alerts are built on it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use leaseward::{ErrorKind, EventKind, Lock, Locks, Release, stores::memory::Memory};
use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};

const SHORT: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(3600);

/// What each series was told, one number after the other.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<HashMap<String, Arc<Series>>>>);

#[derive(Default)]
struct Series(Mutex<Vec<f64>>);

impl CounterFn for Series {
    fn increment(&self, value: u64) {
        self.record(value as f64);
    }
    fn absolute(&self, _: u64) {}
}

impl HistogramFn for Series {
    fn record(&self, value: f64) {
        self.0.lock().expect("no panic").push(value);
    }
}

impl Kept {
    fn series(&self, name: &str) -> Arc<Series> {
        self.0.lock().expect("no panic").entry(name.to_owned()).or_default().clone()
    }

    fn all(&self, name: &str) -> Vec<f64> {
        self.series(name).0.lock().expect("no panic").clone()
    }

    fn total(&self, name: &str) -> u64 {
        self.all(name).iter().sum::<f64>() as u64
    }

    /// Losses by the series that an alert adds up.
    fn losses(&self) -> [u64; 2] {
        ["leaseward_lost_total", "leaseward_expired_before_release_total"].map(|of| self.total(of))
    }
}

impl Recorder for Kept {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.series(key.name()))
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.series(key.name()))
    }
}

/// A client over a store of its own, and what it counts.
fn counted() -> (Locks, Kept) {
    let kept = Kept::default();
    let clock = Arc::new(leaseward::clock::SystemClock);
    let locks = metrics::with_local_recorder(&kept, || Locks::over(Arc::new(Memory::new(clock))));
    (locks.expect("a runtime"), kept)
}

#[tokio::test]
async fn a_shutdown_counts_what_it_releases() {
    let (locks, kept) = counted();
    let dropped = locks.lock("dropped").acquire().await.expect("free");
    let released = locks.lock("released").acquire().await.expect("free");
    locks.shutdown().await;
    assert_eq!((kept.total("leaseward_released_total"), kept.losses()), (2, [0, 0]));
    drop(dropped);
    released.release().await.expect("nothing is left to do");
    assert_eq!((kept.total("leaseward_released_total"), kept.losses()), (2, [0, 0]));
    assert_eq!(kept.all("leaseward_hold_seconds").len(), 2);
}

#[tokio::test]
async fn a_hold_that_overran_its_ttl_counts() {
    let (locks, kept) = counted();
    let heard = listen(&locks, EventKind::Lost);
    let noticed = locks.lock("noticed").ttl(SHORT).no_renewal().acquire().await.expect("free");
    heard.await;
    assert_eq!(noticed.release().await.expect("told"), Release::AlreadyExpired);
    drop(locks.lock("in time").ttl(LONG).acquire().await.expect("free"));
    // Nothing minds leases while this thread does not wait.
    let blind = locks.lock("blind").ttl(SHORT).no_renewal().acquire().await.expect("free");
    thread::sleep(SHORT);
    drop(blind);
    let shares = kept.all("leaseward_hold_share_of_ttl");
    assert!(shares[0] > 0.9 && shares[1] < 0.9 && shares[2] >= 1.0, "{shares:?}");
    assert_eq!(kept.losses(), [1, 1], "each loss once");
    assert_eq!(kept.total("leaseward_released_total"), 1);
}

/// Resolves with the next event of a kind.
fn listen(locks: &Locks, kind: EventKind) -> impl Future<Output = ()> + use<> {
    let (told, mut events) = tokio::sync::mpsc::unbounded_channel();
    locks.on_event(move |event| {
        if event.kind == kind {
            let _ = told.send(());
        }
    });
    async move { events.recv().await.expect("told") }
}

#[tokio::test]
async fn tries_with_retry_are_a_wait() {
    let (locks, kept) = counted();
    let held = locks.lock("x").ttl(LONG).acquire().await.expect("free");
    let pause = Duration::from_millis(2);
    let lock = |tries| locks.lock("x").owner("another").retry(pause, pause, tries);
    let error = lock(3).acquire().await.expect_err("it is held");
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let [waited, timed_out, refused] = ["waited", "timed_out", "refused"]
        .map(|what| kept.total(&format!("leaseward_{what}_total")));
    assert_eq!((waited, timed_out, refused), (1, 1, 0));
    let waiting = listen(&locks, EventKind::Waiting);
    let acquiring = tokio::spawn(acquire(lock(u32::MAX)));
    waiting.await;
    held.release().await.expect("ours");
    acquiring.await.expect("no panic");
    assert_eq!(kept.total("leaseward_waited_total"), 2);
    assert_eq!(kept.all("leaseward_wait_seconds").len(), 2, "given up, and got");
    let acquired = kept.all("leaseward_acquire_seconds");
    assert!(acquired.len() == 2 && acquired[1] > 0.0, "from its first try on: {acquired:?}");
}

async fn acquire(lock: Lock) {
    lock.acquire().await.expect("in the end").release().await.expect("ours");
}
