//! Waiting for input or a moment, by a clock that counts the time spent suspended.

use std::{io, os::fd::AsFd};
#[cfg(target_os = "linux")]
use std::{os::fd::OwnedFd, time::Duration};

use leaseward::clock::Moment;
use rustix::event::{PollFd, PollFlags, poll};

/// A timer that fires at once after a suspend that outlasted it.
#[cfg(target_os = "linux")]
pub(super) struct Alarm(OwnedFd);

#[cfg(target_os = "linux")]
impl Alarm {
    pub(super) fn new() -> io::Result<Self> {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        Ok(Self(timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?))
    }

    /// Waits for input or the moment; answers whether there is input.
    pub(super) fn wait(&self, input: impl AsFd, until: Option<Moment>) -> io::Result<bool> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        // Setting a timer to zero turns it off, so the past is one nanosecond after boot.
        let nanos = until.map_or(0, |at| at.as_nanos().max(1));
        let zero = Timespec::try_from(Duration::ZERO).map_err(io::Error::other)?;
        let at = Timespec::try_from(Duration::from_nanos(nanos)).map_err(io::Error::other)?;
        let times = Itimerspec { it_interval: zero, it_value: at };
        timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &times)?;
        let mut ready = [PollFd::new(&input, PollFlags::IN), PollFd::new(&self.0, PollFlags::IN)];
        match poll(&mut ready, None) {
            Ok(_) => Ok(!ready[0].revents().is_empty()),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// The longest nap where no timer counts the time spent suspended.
#[cfg(not(target_os = "linux"))]
const NAP: std::time::Duration = std::time::Duration::from_millis(250);

/// Elsewhere: short naps that look at the clock.
#[cfg(not(target_os = "linux"))]
pub(super) struct Alarm;

#[cfg(not(target_os = "linux"))]
impl Alarm {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self)
    }

    pub(super) fn wait(&self, input: impl AsFd, until: Option<Moment>) -> io::Result<bool> {
        let left = until.map_or(NAP, |at| {
            at.since(leaseward::clock::Clock::now(&leaseward::clock::SystemClock)).min(NAP)
        });
        let left = rustix::event::Timespec::try_from(left).map_err(io::Error::other)?;
        let mut ready = [PollFd::new(&input, PollFlags::IN)];
        match poll(&mut ready, Some(&left)) {
            Ok(_) => Ok(!ready[0].revents().is_empty()),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
