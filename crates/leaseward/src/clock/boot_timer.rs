//! Sleeps that count the time spent suspended, for all tasks of the process.
//!
//! The runtime's timer stops while the machine is suspended, so a long sleep by it would have to wake up several times a
//! second to compare. One timer of the kernel on `CLOCK_BOOTTIME` and one thread that waits for it need no such naps: a
//! process that only waits in line stays asleep between the refreshes of its place.

use std::{
    collections::BTreeMap,
    io,
    os::fd::OwnedFd,
    pin::Pin,
    sync::OnceLock,
    task::{Context, Poll, Waker},
    time::Duration,
};

use parking_lot::Mutex;
use rustix::{
    io::Errno,
    time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    },
};

use super::{Moment, SystemClock};

/// The timer, and the sleeps that wait for it by moment and number.
struct BootTimer {
    timer: OwnedFd,
    sleeps: Mutex<Sleeps>,
}

#[derive(Default)]
struct Sleeps {
    by_moment: BTreeMap<(Moment, u64), Waker>,
    next_id: u64,
}

impl BootTimer {
    /// The process's timer; `None` where the kernel grants no timer or no thread.
    fn get() -> Option<&'static Self> {
        static TIMER: OnceLock<Option<BootTimer>> = OnceLock::new();
        static THREAD: OnceLock<bool> = OnceLock::new();
        let timer = TIMER.get_or_init(|| Self::new().ok()).as_ref()?;
        let has_thread = *THREAD.get_or_init(|| {
            let thread = std::thread::Builder::new().name("leaseward-clock".into());
            thread.spawn(move || timer.run()).is_ok()
        });
        has_thread.then_some(timer)
    }

    fn new() -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?;
        Ok(Self { timer, sleeps: Mutex::default() })
    }

    /// Sets the timer to the first sleep. Called under the lock, so that the timer never stands behind the sleeps.
    fn set(&self, sleeps: &Sleeps) {
        let first = sleeps.by_moment.first_key_value();
        // Setting a timer to zero turns it off, so the past is one nanosecond after boot.
        let nanos = first.map_or(0, |((at, _), _)| at.as_nanos().max(1));
        let it_value = Timespec::try_from(Duration::from_nanos(nanos)).unwrap_or_default();
        let times = Itimerspec { it_interval: Timespec::default(), it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &times)
            .expect("BUG: a timer of this process takes a moment since boot");
    }

    /// Wakes the sleeps that are over; the body of the timer's thread.
    fn run(&self) {
        loop {
            match rustix::io::read(&self.timer, &mut [0; 8]) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => panic!("BUG: the timer of this process cannot be read: {error}"),
            }
            let now = SystemClock::moment();
            let mut sleeps = self.sleeps.lock();
            let later = sleeps.by_moment.split_off(&(now + Duration::from_nanos(1), 0));
            let over = std::mem::replace(&mut sleeps.by_moment, later);
            self.set(&sleeps);
            drop(sleeps);
            over.into_values().for_each(Waker::wake);
        }
    }
}

/// A sleep until a moment. Dropped, it leaves nothing behind.
pub(super) struct Sleep {
    timer: &'static BootTimer,
    at: Moment,
    id: u64,
}

impl Sleep {
    /// `None` where the process has no such timer.
    pub(super) fn until(at: Moment) -> Option<Self> {
        let timer = BootTimer::get()?;
        let mut sleeps = timer.sleeps.lock();
        sleeps.next_id += 1;
        Some(Self { timer, at, id: sleeps.next_id })
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.at <= SystemClock::moment() {
            return Poll::Ready(());
        }
        let mut sleeps = self.timer.sleeps.lock();
        let key = (self.at, self.id);
        sleeps.by_moment.insert(key, cx.waker().clone());
        if sleeps.by_moment.first_key_value().is_some_and(|(first, _)| *first == key) {
            self.timer.set(&sleeps);
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        // A timer set to a sleep that is gone wakes its thread once, for nothing; setting it anew costs more.
        self.timer.sleeps.lock().by_moment.remove(&(self.at, self.id));
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, task::Poll};

    use super::*;

    fn after(millis: u64) -> Sleep {
        Sleep::until(SystemClock::moment() + Duration::from_millis(millis))
            .expect("this kernel has timers")
    }

    /// On a runtime without drivers: neither timers nor sockets.
    fn block_on<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(work)
    }

    #[test]
    fn every_sleep_ends_and_none_early() {
        let mut sleeps: Vec<_> = [60, 20, 40, 0].into_iter().map(after).collect();
        let mut ends = Vec::new();
        block_on(poll_fn(|cx| {
            sleeps.retain_mut(|sleep| {
                let is_over = Pin::new(&mut *sleep).poll(cx).is_ready();
                if is_over {
                    ends.push((sleep.at, SystemClock::moment()));
                }
                !is_over
            });
            if sleeps.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        }));
        assert!(ends.iter().all(|(at, ended)| at <= ended), "{ends:?}");
        assert_eq!(ends.len(), 4);
    }

    #[test]
    fn a_dropped_sleep_leaves_nothing_behind() {
        let mut long = after(3_600_000);
        let key = (long.at, long.id);
        block_on(poll_fn(|cx| {
            assert!(Pin::new(&mut long).poll(cx).is_pending());
            Poll::Ready(())
        }));
        assert!(is_waiting(key));
        drop(long);
        assert!(!is_waiting(key));
    }

    fn is_waiting(key: (Moment, u64)) -> bool {
        BootTimer::get().expect("a timer").sleeps.lock().by_moment.contains_key(&key)
    }
}
