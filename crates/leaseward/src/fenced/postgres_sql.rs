//! SQL that both PostgreSQL drivers send.

use super::{StaleFence, from_database, to_database};
use crate::Fence;

/// The schema of the PostgreSQL store, unless its URL says otherwise.
pub(super) const SCHEMA: &str = "leaseward";

/// A statement that fails, and says in the server's log why.
pub(super) fn poison(stale: StaleFence) -> String {
    format!("DO $$BEGIN RAISE EXCEPTION USING ERRCODE = 'LW412', MESSAGE = '{stale}'; END$$")
}

/// The fences of the newest lease on the name `$1`, held so that there is no newer one until the transaction ends.
pub(super) fn hold(schema: &str) -> String {
    format!("SELECT first, last FROM {schema}.fences WHERE name = $1 FOR SHARE")
}

/// The largest fence of all names that were forgotten.
pub(super) fn floor(schema: &str) -> String {
    format!("SELECT floor FROM {schema}.meta")
}

/// What the row of a name says about a fence.
pub(super) enum Held {
    /// Its holder is the newest.
    Newest,
    /// A newer one has been given out.
    Stale(StaleFence),
    /// It was not given out for this name here, or so long ago that the name is forgotten.
    Unknown,
}

impl Held {
    /// From the fences of the newest lease.
    pub(super) fn judge(given: Fence, newest: Option<(i64, i64)>) -> Self {
        let kept = to_database(given);
        match newest {
            Some((first, _)) if kept < first => Self::Stale(stale_by(given, first)),
            Some((_, last)) if kept <= last => Self::Newest,
            _ => Self::Unknown,
        }
    }

    /// From the largest that was forgotten, once the name is not known.
    pub(super) fn forgotten(given: Fence, floor: i64) -> Option<StaleFence> {
        (to_database(given) <= floor).then(|| stale_by(given, floor))
    }
}

pub(super) fn stale_by(given: Fence, seen: i64) -> StaleFence {
    StaleFence { given, seen: from_database(seen) }
}
