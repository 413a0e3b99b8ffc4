//! How firmly session locks hold.

use crate::store::{Guarantee, Level, Reach};

const SESSION_ENDED: &str = "the server or an operator ends the session of a holder that is at work: the holder is told at \
                             once, but not before the lock is free";

const PROMOTED: &str = "a standby is promoted: it knows of no locks, and holders at the old server learn of it when their \
                        session ends";

const OLD_SERVER: &str =
    "for waiters: before PostgreSQL 14 a holder that is frozen keeps its locks until it wakes";

const FENCE_BOUND: &str = "for the order of fences: the server crashed or a standby was promoted, and its clock has not yet \
                           passed the last fence that was given out";

pub(super) fn of(ends_idle: bool) -> Guarantee {
    let mut breaks_when =
        vec![SESSION_ENDED.to_owned(), PROMOTED.to_owned(), FENCE_BOUND.to_owned()];
    if !ends_idle {
        breaks_when.push(OLD_SERVER.to_owned());
    }
    Guarantee {
        exclusion: Level::WithinBounds,
        fences: Level::WithinBounds,
        reach: Reach::Network,
        breaks_when,
    }
}
