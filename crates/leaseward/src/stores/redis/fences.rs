//! How far the newest fence is ahead of the server's clock, as far as this client knows.

use std::{
    sync::atomic::{AtomicI64, AtomicU64, Ordering},
    time::Duration,
};

use crate::store::{Answer, Grant, Reply};

/// What this client has seen of fences and clocks. A cluster has a counter for each used slot, and going through all of
/// them would cost a scan; the newest fence this client was told of says enough.
#[derive(Debug)]
pub(super) struct Fences {
    /// The newest known to be given out.
    newest: AtomicU64,
    /// By how much the server's wall clock is ahead of ours, in microseconds.
    ahead_us: AtomicI64,
}

/// Stands for a clock that was not looked at yet.
const UNKNOWN: i64 = i64::MIN;

impl Default for Fences {
    fn default() -> Self {
        Self { newest: AtomicU64::new(0), ahead_us: AtomicI64::new(UNKNOWN) }
    }
}

impl Fences {
    /// Notes the newest fence in an answer.
    pub(super) fn answered(&self, answer: &Answer) {
        match answer {
            Ok(Reply::Granted(grant)) => self.granted(grant),
            Ok(Reply::Queued(place)) => self.seen(place.last_fence.get()),
            _ => {}
        }
    }

    pub(super) fn granted(&self, grant: &Grant) {
        self.seen(grant.block.last().get());
    }

    pub(super) fn seen(&self, fence: u64) {
        // Read first: among many answers few are the newest, and writing takes the line from other cores.
        if self.newest.load(Ordering::Relaxed) < fence {
            self.newest.fetch_max(fence, Ordering::Relaxed);
        }
    }

    pub(super) fn set_ahead(&self, ahead_us: i64) {
        self.ahead_us.store(ahead_us, Ordering::Relaxed);
    }

    /// The lead at a moment of our wall clock; `None` before the server's clock was looked at.
    pub(super) fn lead(&self, wall_us: u64) -> Option<Duration> {
        let ahead_us = Some(self.ahead_us.load(Ordering::Relaxed)).filter(|us| *us != UNKNOWN)?;
        let newest = self.newest.load(Ordering::Relaxed);
        let server_us = wall_us.saturating_add_signed(ahead_us);
        Some(Duration::from_micros(newest.saturating_sub(server_us)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lead_is_counted_on_the_servers_clock() {
        let fences = Fences::default();
        fences.seen(1_500);
        fences.seen(1_400);
        assert_eq!(fences.lead(1_000), None, "nobody has looked at its clock");
        fences.set_ahead(0);
        assert_eq!(fences.lead(1_000), Some(Duration::from_micros(500)));
        fences.set_ahead(300);
        assert_eq!(fences.lead(1_000), Some(Duration::from_micros(200)));
        fences.set_ahead(-1_000_000);
        assert_eq!(fences.lead(1_000), Some(Duration::from_micros(1_500)));
        assert_eq!(fences.lead(9_000_000), Some(Duration::ZERO));
    }
}
