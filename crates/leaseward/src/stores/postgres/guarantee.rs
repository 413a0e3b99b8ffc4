//! How firmly leases hold in a PostgreSQL, by how it is set up.

use super::probe::Probe;
use crate::store::{Guarantee, Level, Reach};

const CLOCK_STEPS: &str = "the server's clock steps: set forward, it ends leases early";

const NOT_DURABLE: &str = "the server's machine crashes: with `fsync` or `full_page_writes` off, commits that it has \
                           told of may be lost";

const LAGGING: &str = "an asynchronous standby is promoted that has not heard of the last commits";

const SYNCHRONOUS: &str = "a standby is promoted that is not one of those that commits wait for";

/// Fences grow by the larger of counter and clock, so that losing the counter is harmless while the clock is right.
const FENCE_BOUND: &str = "for the order of fences: data was lost, and the clock of the server that goes on has not yet \
                           passed the last fence that was given out";

/// What a server promises.
pub(super) fn of(probe: &Probe) -> Guarantee {
    let mut breaks_when = vec![CLOCK_STEPS.to_owned()];
    let (mut exclusion, mut fences) = (Level::Holds, Level::Holds);
    if !probe.is_durable {
        (exclusion, fences) = (Level::WithinBounds, Level::WithinBounds);
        breaks_when.push(NOT_DURABLE.to_owned());
    }
    if probe.standbys > 0 {
        let (level, when) = if probe.is_synchronous {
            (Level::WithinBounds, SYNCHRONOUS)
        } else {
            (Level::MayBreak, LAGGING)
        };
        (exclusion, fences) = (exclusion.min(level), Level::WithinBounds);
        breaks_when.push(when.to_owned());
    }
    if fences < Level::Holds {
        breaks_when.push(FENCE_BOUND.to_owned());
    }
    Guarantee { exclusion, fences, reach: Reach::Network, breaks_when }
}
