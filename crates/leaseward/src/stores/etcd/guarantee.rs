//! What etcd promises to holders that obey their deadline.

use crate::store::{Guarantee, Level, Reach};

pub(super) fn of() -> Guarantee {
    Guarantee {
        exclusion: Level::Holds,
        fences: Level::Holds,
        reach: Reach::Network,
        breaks_when: vec![
            "the cluster is restored from a backup while locks are held".into(),
            "somebody deletes keys of locks, or revokes leases, by hand".into(),
        ],
    }
}
