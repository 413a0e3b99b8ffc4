//! Which nodes may vote: one that has lost its memory waits (rule R15). Pure.
//!
//! A node that restarted empty has forgotten to whom it gave its vote. If it voted at once, two clients could each have a
//! majority that it is part of. So it votes again only once every lease that it may have forgotten has run out, and even
//! then grants no ballot that it may have granted before. A new node looks exactly like one that lost its memory, and
//! waits too, unless its settings say that it keeps everything: then it is taken at its word.

use std::time::Duration;

use super::config::Amnesia;

/// What a node said of itself when its run was first seen, and how long ago that is.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    /// Every vote is on its disk before it is given.
    pub keeps_all: bool,
    /// How long it had been running, rounded down; `None` if it did not say, or is not believed: that goes by its clock.
    pub uptime: Option<Duration>,
    /// Its clock then, in microseconds since the epoch.
    pub clock_us: u64,
    /// Since it said so.
    pub ago: Duration,
}

/// What a node may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// It votes; ballots up to this floor are refused where it remembers nothing.
    Votes {
        /// In microseconds since the epoch; zero for a node that kept its memory.
        floor_us: u64,
    },
    /// It votes after this time.
    Waits(Duration),
}

/// Whether a node may vote by now.
pub fn right(life: &Life, amnesia: Amnesia, max_ttl: Duration, skew: Duration) -> Right {
    if life.keeps_all {
        return Right::Votes { floor_us: 0 };
    }
    let begun = life.uptime.unwrap_or_default();
    let waits = match amnesia {
        Amnesia::Trust => Duration::ZERO,
        // Uptime is rounded to whole seconds, whichever way.
        Amnesia::Wait => (max_ttl + ROUNDED).saturating_sub(begun + life.ago),
    };
    if !waits.is_zero() {
        return Right::Waits(waits);
    }
    let waited = match amnesia {
        Amnesia::Trust => Duration::ZERO,
        Amnesia::Wait => max_ttl,
    };
    // When it began at the latest, by its own clock, and all that may have been granted until it votes again. Not later
    // than it said so: a ballot above this floor must be below the next one, should it restart soon.
    let start_us = life.clock_us.saturating_sub(micros(begun));
    let start_us = life.clock_us.min(start_us + micros(ROUNDED));
    Right::Votes { floor_us: start_us + micros(waited + skew) }
}

const ROUNDED: Duration = Duration::from_secs(1);

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const SKEW: Duration = Duration::from_secs(1);
    const CLOCK: u64 = 1_800_000_000_000_000;

    fn life(uptime: u64, ago: u64) -> Life {
        Life {
            keeps_all: false,
            uptime: Some(Duration::from_secs(uptime)),
            clock_us: CLOCK,
            ago: Duration::from_secs(ago),
        }
    }

    fn judged(life: &Life) -> Right {
        right(life, Amnesia::Wait, MINUTE, SKEW)
    }

    #[test]
    fn a_node_that_keeps_everything_votes_at_once() {
        let keeps = Life { keeps_all: true, ..life(0, 0) };
        assert_eq!(judged(&keeps), Right::Votes { floor_us: 0 });
    }

    #[test]
    fn one_that_may_have_forgotten_waits_for_the_longest_lease() {
        assert_eq!(judged(&life(0, 0)), Right::Waits(Duration::from_secs(61)));
        assert_eq!(judged(&life(40, 10)), Right::Waits(Duration::from_secs(11)));
        assert_eq!(judged(&Life { uptime: None, ..life(0, 5) }), Right::Waits(MINUTE - SKEW * 4));
    }

    #[test]
    fn then_it_grants_only_ballots_of_after_that() {
        let begun = CLOCK - 40_000_000;
        let floor_us = begun + 62_000_000;
        assert_eq!(judged(&life(40, 21)), Right::Votes { floor_us });
    }

    #[test]
    fn trusted_it_does_not_wait() {
        let trusted = |uptime| right(&life(uptime, 0), Amnesia::Trust, MINUTE, SKEW);
        assert_eq!(trusted(0), Right::Votes { floor_us: CLOCK + 1_000_000 });
        assert_eq!(trusted(5), Right::Votes { floor_us: CLOCK - 3_000_000 });
    }

    #[test]
    fn no_floor_is_further_ahead_than_clocks_may_differ() {
        for (amnesia, ttl) in
            [(Amnesia::Trust, MINUTE), (Amnesia::Wait, SKEW), (Amnesia::Wait, MINUTE)]
        {
            let mut votes = 0;
            for (uptime, ago) in (0..3).flat_map(|uptime| (0..70).map(move |ago| (uptime, ago))) {
                if let Right::Votes { floor_us } = right(&life(uptime, ago), amnesia, ttl, SKEW) {
                    let now_us = CLOCK + ago * 1_000_000;
                    assert!(
                        floor_us <= now_us + micros(SKEW),
                        "{amnesia:?}: {uptime} s, {ago} s ago"
                    );
                    votes += 1;
                }
            }
            assert!(votes > 0);
        }
    }
}
