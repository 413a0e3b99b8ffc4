//! What this client knows of the database's clock and of its fences.

use std::{
    sync::atomic::{AtomicI64, AtomicU64, Ordering},
    time::Duration,
};

use crate::{
    clock::Moment,
    store::{Answer, Grant, Reply},
};

/// Stands for a clock that was not looked at yet.
const UNKNOWN: i64 = i64::MIN;

/// The database's clock beside ours. Each answer says what time it was there.
#[derive(Debug)]
pub(super) struct DatabaseClock {
    /// What is to be added to our moments, in microseconds.
    ahead_us: AtomicI64,
    /// The newest fence known to be given out.
    newest: AtomicU64,
}

impl Default for DatabaseClock {
    fn default() -> Self {
        Self { ahead_us: AtomicI64::new(UNKNOWN), newest: AtomicU64::new(0) }
    }
}

impl DatabaseClock {
    /// Takes what an answer that came at `now` said.
    pub(super) fn learn(&self, database_us: i64, now: Moment) {
        self.ahead_us.store(database_us - micros(now), Ordering::Relaxed);
    }

    /// What time it is there, a little less than that at most; `None` before its first answer.
    pub(super) fn at(&self, now: Moment) -> Option<i64> {
        let ahead = self.ahead_us.load(Ordering::Relaxed);
        (ahead != UNKNOWN).then(|| ahead + micros(now))
    }

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
        self.newest.fetch_max(fence, Ordering::Relaxed);
    }

    /// How far the newest fence is ahead of the database's clock.
    pub(super) fn lead(&self, now: Moment) -> Option<Duration> {
        let database_us = self.at(now)?.max(0).cast_unsigned();
        let newest = self.newest.load(Ordering::Relaxed);
        Some(Duration::from_micros(newest.saturating_sub(database_us)))
    }
}

fn micros(moment: Moment) -> i64 {
    (moment.as_nanos() / 1_000).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lead_is_counted_on_the_databases_clock() {
        let clock = DatabaseClock::default();
        clock.seen(1_500);
        clock.seen(1_400);
        let at = |us: u64| Moment::from_nanos(us * 1_000);
        assert_eq!(clock.lead(at(7)), None, "nobody has looked at its clock");
        clock.learn(1_000, at(7));
        assert_eq!(clock.lead(at(7)), Some(Duration::from_micros(500)));
        assert_eq!(clock.lead(at(107)), Some(Duration::from_micros(400)));
        assert_eq!(clock.lead(at(9_000)), Some(Duration::ZERO));
    }
}
