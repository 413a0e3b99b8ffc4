//! Time, injected: everything the engine decides can be replayed under a virtual clock.

use std::{
    fmt,
    future::Future,
    ops::Add,
    pin::Pin,
    time::{Duration, SystemTime},
};

/// A boxed future, as object-safe traits need it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

#[cfg(any(target_os = "linux", target_os = "android"))]
mod boot_timer;

/// The longest sleep by the runtime's timer, which does not count time spent suspended as leases do.
///
/// A longer sleep is left to the kernel's timer, or, where there is none, cut into naps: what is overdue after a suspend
/// fires within this time.
const NAP: Duration = Duration::from_millis(250);

/// A point in time on a clock that never jumps and counts suspend: nanoseconds since boot.
///
/// Deadlines are moments, never wall-clock times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// Later than every moment anything happens at.
    pub const NEVER: Self = Self(u64::MAX);

    /// A moment from nanoseconds on its clock.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds on its clock.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not after it.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This moment moved back, at most to the beginning of the clock.
    #[must_use]
    pub fn before(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(by)))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;
    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(nanos(by)))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Where the engine and the stores take their time from.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The moment it is. Counts suspend, never goes back.
    fn now(&self) -> Moment;

    /// Microseconds since the epoch, by the wall clock: the floor of fences and the time in records. May jump.
    fn wall_us(&self) -> u64;

    /// Sleeps until a moment, also across a suspend.
    fn sleep_until(&self, at: Moment) -> BoxFuture<'static, ()>;
}

/// The machine's clock: `CLOCK_BOOTTIME` where there is one.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl SystemClock {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn moment() -> Moment {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).expect("BUG: boot time is not negative");
        let nanos = u64::try_from(time.tv_nsec).expect("BUG: nanoseconds are not negative");
        Moment(seconds * 1_000_000_000 + nanos)
    }

    // Elsewhere `CLOCK_MONOTONIC` is the clock that counts suspend (macOS), or the best there is.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn moment() -> Moment {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let seconds = u64::try_from(time.tv_sec).expect("BUG: monotonic time is not negative");
        let nanos = u64::try_from(time.tv_nsec).expect("BUG: nanoseconds are not negative");
        Moment(seconds * 1_000_000_000 + nanos)
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        Self::moment()
    }

    fn wall_us(&self) -> u64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }

    fn sleep_until(&self, at: Moment) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            loop {
                let left = at.since(Self::moment());
                if left.is_zero() {
                    return;
                }
                #[cfg(any(target_os = "linux", target_os = "android"))]
                if left > NAP
                    && let Some(sleep) = boot_timer::Sleep::until(at)
                {
                    return sleep.await;
                }
                tokio::time::sleep(left.min(NAP)).await;
            }
        })
    }
}

/// A clock that follows tokio's, for tests that pause and advance time.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// use leaseward::clock::{Clock, VirtualClock};
/// use std::time::Duration;
///
/// let clock = VirtualClock::new();
/// let start = clock.now();
/// tokio::time::sleep(Duration::from_secs(3600)).await; // at once: time is paused
/// assert!(clock.now().since(start) >= Duration::from_secs(3600));
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct VirtualClock {
    start: tokio::time::Instant,
}

/// When a virtual clock starts: far enough from zero that subtractions have room.
const VIRTUAL_START: Duration = Duration::from_secs(1_000);

impl VirtualClock {
    /// A clock that starts now, on the current runtime's time.
    pub fn new() -> Self {
        Self { start: tokio::time::Instant::now() }
    }
}

impl Default for VirtualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Moment {
        Moment::from_nanos(nanos(VIRTUAL_START + self.start.elapsed()))
    }

    fn wall_us(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX) + 1_000_000
    }

    fn sleep_until(&self, at: Moment) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(at.since(self.now())))
    }
}
