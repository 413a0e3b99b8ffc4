//! A clock that is set by hand. Shared by the tests of the stores.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leaseward::clock::{BoxFuture, Clock, Moment};

/// Stands still until it is moved.
#[derive(Debug)]
pub(crate) struct HandClock {
    now_ns: AtomicU64,
    wall_us: AtomicU64,
}

impl HandClock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            now_ns: AtomicU64::new(1_000_000_000_000),
            wall_us: AtomicU64::new(1_700_000_000_000_000),
        })
    }

    pub(crate) fn advance(&self, by: Duration) {
        let nanos = u64::try_from(by.as_nanos()).expect("a short time");
        self.now_ns.fetch_add(nanos, Ordering::SeqCst);
        self.wall_us.fetch_add(nanos / 1_000, Ordering::SeqCst);
    }

    pub(crate) fn set_wall_back(&self, by: Duration) {
        let micros = u64::try_from(by.as_micros()).expect("a short time");
        self.wall_us.fetch_sub(micros, Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Moment {
        Moment::from_nanos(self.now_ns.load(Ordering::SeqCst))
    }

    fn wall_us(&self) -> u64 {
        self.wall_us.load(Ordering::SeqCst)
    }

    fn sleep_until(&self, _at: Moment) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}
