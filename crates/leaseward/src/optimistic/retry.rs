//! How often, how long and how to try again.

use std::{fmt, time::Duration};

use crate::{Fence, Lease, Lock, blocking};

/// When a transaction is tried again: up to 10 times within 5 s, after up to 2 ms at first and 200 ms in the end.
///
/// Waits are full jitter: anywhere between nothing and a bound that doubles with each try, so that rivals spread out.
///
/// ```
/// use leaseward::optimistic::Retry;
/// use std::time::Duration;
///
/// let patient = Retry::new().attempts(50).budget(Duration::from_secs(30));
/// # drop(patient);
/// ```
#[derive(Clone, Debug)]
pub struct Retry {
    pub(super) attempts: u32,
    pub(super) budget: Duration,
    pub(super) base: Duration,
    pub(super) cap: Duration,
    pub(super) hot: Option<Hot>,
}

/// After so many conflicts, this lock.
#[derive(Clone, Debug)]
pub(super) struct Hot {
    pub(super) after: u32,
    pub(super) lock: HotLock,
}

/// A lock for a hot row: for tasks, or for threads (what SQLite's transactions need).
#[derive(Clone, Debug)]
pub enum HotLock {
    /// For `postgres` and `sqlx`.
    Task(Lock),
    /// For `sqlite`.
    Thread(blocking::Lock),
}

impl From<Lock> for HotLock {
    fn from(lock: Lock) -> Self {
        Self::Task(lock)
    }
}

impl From<blocking::Lock> for HotLock {
    fn from(lock: blocking::Lock) -> Self {
        Self::Thread(lock)
    }
}

impl Retry {
    /// As described above.
    pub fn new() -> Self {
        Self {
            attempts: 10,
            budget: Duration::from_secs(5),
            // A transaction takes about as long: sooner would meet the same rival again.
            base: Duration::from_millis(2),
            cap: Duration::from_millis(200),
            hot: None,
        }
    }

    /// At most so many tries, the first one included; at least one.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }

    /// No further try begins after this long. One that has begun is not broken off.
    #[must_use]
    pub fn budget(mut self, budget: Duration) -> Self {
        self.budget = budget;
        self
    }

    /// How long to wait at most after the first conflict, and after many.
    #[must_use]
    pub fn backoff(mut self, base: Duration, cap: Duration) -> Self {
        self.base = base;
        self.cap = cap.max(base);
        self
    }

    /// After so many conflicts, takes a lock for the further tries: one for each row that may be hot, say
    /// `locks.lock("account:1")`. Those who take it queue instead of overtaking each other; those who have not met a
    /// conflict do without, and the version still decides.
    ///
    /// Tries under the lock are fenced by the table beside, under the lock's name, so
    /// [`fenced::SIDE_TABLE_SQL`](crate::fenced::SIDE_TABLE_SQL) must have been run. A lock that cannot be taken within the
    /// budget ends it.
    #[must_use]
    pub fn escalate(mut self, after: u32, lock: impl Into<HotLock>) -> Self {
        self.hot = Some(Hot { after, lock: lock.into() });
        self
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self::new()
    }
}

/// One try of a transaction.
#[derive(Clone)]
pub struct Try {
    pub(super) number: u32,
    pub(super) lease: Option<Lease>,
}

impl Try {
    /// Which try it is; the first is 1.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The lease on the hot row's lock, if it was taken.
    pub fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }

    /// Its fence, for writes outside of this database.
    pub fn fence(&self) -> Option<Fence> {
        self.lease.as_ref().map(Lease::fence)
    }
}

impl fmt::Debug for Try {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, lease } = self;
        f.debug_struct("Try").field("number", number).field("lease", lease).finish()
    }
}
