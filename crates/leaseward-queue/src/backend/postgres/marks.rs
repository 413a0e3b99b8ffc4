//! How far claimers have come: the low-water mark of each queue and priority.
//!
//! Rows that were deleted stay in the index until they are vacuumed, for hours if some transaction pins them; a claim that
//! begins at the front walks over all of them. One that begins where the last one did, does not. What comes in behind a mark
//! (a retry, a give-back, a transaction that took its number early and committed late) is found by looking from the front
//! again, every now and then and whenever there was nothing else.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use crate::{JobId, Priority};

/// How often claims begin at the front while there is enough to claim.
const FULL_EVERY: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
pub(super) struct Marks {
    queues: HashMap<i32, Mark>,
}

#[derive(Debug)]
struct Mark {
    lows: Vec<i64>,
    full_at: Instant,
    is_full: bool,
}

/// Where to look.
#[derive(Debug)]
pub(super) struct Ranges {
    pub(super) lows: Vec<i64>,
    pub(super) highs: Vec<i64>,
    pub(super) is_full: bool,
}

impl Marks {
    pub(super) fn ranges(&mut self, queue: i32, now: Instant) -> Ranges {
        let full = || Priority::all().map(|priority| JobId::range(queue, priority));
        let mark = self.queues.entry(queue).or_insert_with(|| Mark {
            lows: full().map(|(low, _)| low).collect(),
            full_at: now,
            is_full: true,
        });
        let is_full = mark.is_full || now.duration_since(mark.full_at) >= FULL_EVERY;
        if is_full {
            mark.full_at = now;
            mark.lows = full().map(|(low, _)| low).collect();
        }
        Ranges { lows: mark.lows.clone(), highs: full().map(|(_, high)| high).collect(), is_full }
    }

    /// Notes what was found: next time it is looked for behind that, unless it was less than wanted.
    pub(super) fn claimed(&mut self, queue: i32, ids: &[i64], is_short: bool) {
        let Some(mark) = self.queues.get_mut(&queue) else { return };
        mark.is_full = is_short;
        if is_short {
            return;
        }
        // The first of each priority: others may be at work on those after it.
        for &id in ids.iter().rev() {
            let at = usize::from(JobId::new(id).priority().get());
            mark.lows[at] = id;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::slot;

    #[test]
    fn looks_behind_the_last_find_until_there_is_too_little_or_time_has_passed() {
        let mut marks = Marks::default();
        let start = Instant::now();
        let base = slot(2, Priority::NORMAL);
        let first = marks.ranges(2, start);
        assert!(first.is_full);
        assert_eq!(
            (first.lows[8], first.highs[8]),
            (base, slot(2, Priority::LAST) - 6 * (1 << 44))
        );
        marks.claimed(2, &[base + 5, base + 6], false);
        let second = marks.ranges(2, start);
        assert_eq!(
            (second.is_full, second.lows[8], second.lows[7]),
            (false, base + 5, slot(2, Priority::NORMAL) - (1 << 44))
        );
        assert!(marks.ranges(2, start + FULL_EVERY).is_full);
        marks.claimed(2, &[base + 9], true);
        assert_eq!(marks.ranges(2, start + FULL_EVERY).lows[8], base);
    }
}
