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

const PRIORITIES: usize = Priority::LAST.get() as usize + 1;

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
        // A priority that is looked at from its front follows the one before it: one range for both.
        let (mut lows, mut highs): (Vec<i64>, Vec<i64>) = (Vec::new(), Vec::new());
        for ((front, high), low) in full().zip(&mark.lows) {
            match highs.last_mut() {
                Some(last) if *low == front => *last = high,
                _ => {
                    lows.push(*low);
                    highs.push(high);
                }
            }
        }
        Ranges { lows, highs, is_full }
    }

    /// Notes what was found: next time it is looked for behind that, unless it was less than wanted.
    pub(super) fn claimed(&mut self, queue: i32, ids: &[i64], is_short: bool) {
        let Some(mark) = self.queues.get_mut(&queue) else { return };
        mark.is_full = is_short;
        if is_short {
            return;
        }
        // The first of each priority: others may be at work on those after it.
        let mut firsts = [i64::MAX; PRIORITIES];
        for &id in ids {
            let first = &mut firsts[usize::from(JobId::new(id).priority().get())];
            *first = id.min(*first);
        }
        for (low, first) in mark.lows.iter_mut().zip(firsts) {
            if first < i64::MAX {
                *low = first;
            }
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
        let (front, end) = JobId::queue_range(2);
        assert_eq!((first.is_full, first.lows, first.highs), (true, vec![front], vec![end]));
        marks.claimed(2, &[base + 5, base + 6], false);
        let second = marks.ranges(2, start);
        assert!(!second.is_full);
        assert_eq!((second.lows, second.highs), (vec![front, base + 5], vec![base, end]));
        assert!(marks.ranges(2, start + FULL_EVERY).is_full);
        marks.claimed(2, &[base + 9], true);
        assert_eq!(marks.ranges(2, start + FULL_EVERY).lows, [front]);
    }
}
