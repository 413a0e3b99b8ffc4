//! How firmly leases hold on a Redis, by how it is set up.

use super::{
    client::Client,
    config::{Strong, Topology},
    probe::Persistence,
};
use crate::store::{Guarantee, Level, Reach};

/// What is known about one primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Primary {
    persistence: Persistence,
    /// `None` if it does not say, or is not connected.
    replicas: Option<u32>,
}

impl Primary {
    /// Not connected, so nothing is known.
    const UNKNOWN: Self = Self { persistence: Persistence::Unknown, replicas: None };
}

impl Client {
    /// What is promised, by what each primary said when it was connected, and of its replicas when it was last asked.
    pub(super) fn guarantee(&self) -> Guarantee {
        let nodes = self.servers().primaries();
        let mut primaries: Vec<_> = nodes
            .iter()
            .map(|node| match node.link() {
                Ok(link) => {
                    Primary { persistence: link.probe.persistence, replicas: link.probe.replicas() }
                }
                Err(_) => Primary::UNKNOWN,
            })
            .collect();
        if primaries.is_empty() {
            primaries.push(Primary::UNKNOWN);
        }
        of(&self.config.topology, &primaries, self.config.strong)
    }
}

/// What the servers together promise. On a cluster the worst of them counts: a lock may be on any.
fn of(topology: &Topology, primaries: &[Primary], strong: Option<Strong>) -> Guarantee {
    let keeps_all = primaries.iter().all(|primary| primary.persistence == Persistence::Always);
    let mut breaks_when = vec![CLOCK_STEPS.to_owned()];
    let mut exclusion = Level::Holds;
    if !keeps_all {
        exclusion = Level::WithinBounds;
        breaks_when.push(restart(primaries).to_owned());
    }
    let can_fail_over = can_fail_over(topology, primaries);
    if can_fail_over {
        let (level, whens) = failover(primaries, strong);
        exclusion = exclusion.min(level);
        breaks_when.extend(whens);
    }
    let fences = if keeps_all && !can_fail_over {
        Level::Holds
    } else {
        breaks_when.push(FENCE_BOUND.to_owned());
        Level::WithinBounds
    };
    Guarantee { exclusion, fences, reach: Reach::Network, breaks_when }
}

const CLOCK_STEPS: &str = "the server's clock steps: set forward, it ends leases early";

/// Fences grow by the larger of counter and clock, so that losing the counter is harmless while the clock is right.
const FENCE_BOUND: &str = "for the order of fences: data was lost, and the clock of the server that goes on has not yet \
                           passed the last fence that was given out";

/// Whether another server may take a primary's place.
fn can_fail_over(topology: &Topology, primaries: &[Primary]) -> bool {
    match topology {
        Topology::Sentinel { .. } | Topology::Cluster { .. } => true,
        Topology::One(_) => primaries.iter().any(|primary| primary.replicas != Some(0)),
    }
}

/// What a restart does, by the one that keeps least.
fn restart(primaries: &[Primary]) -> &'static str {
    let is = |persistence| primaries.iter().any(|primary| primary.persistence == persistence);
    if is(Persistence::Nothing) {
        "the server restarts: it keeps nothing, so every lock is lost"
    } else if is(Persistence::Snapshots) {
        "the server restarts: locks taken since its last snapshot are lost"
    } else if is(Persistence::Unknown) {
        "the server restarts and has not kept the lock: it does not say what it keeps"
    } else {
        "the server's machine crashes: locks whose writes had not reached the disk are lost"
    }
}

fn failover(primaries: &[Primary], strong: Option<Strong>) -> (Level, Vec<String>) {
    let Some(Strong { replicas: needed, .. }) = strong else {
        let when = "a replica that lags takes the primary's place: the lock is lost with what it had not heard";
        return (Level::MayBreak, vec![when.to_owned()]);
    };
    let clock = "the clock of the promoted replica is ahead by more than a hundredth of the TTL";
    let has_all = |primary: &Primary| primary.replicas.is_some_and(|replicas| replicas <= needed);
    let (level, when) = if primaries.iter().all(has_all) {
        (
            Level::WithinBounds,
            "a replica that joined later, and has not acknowledged, takes the primary's place",
        )
    } else {
        (
            Level::MayBreak,
            "the replica that takes the primary's place is not among those that acknowledged \
             (`replicas` is fewer than there are, or their number is not known)",
        )
    };
    (level, vec![when.to_owned(), clock.to_owned()])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{super::config::Address, *};

    fn one() -> Topology {
        Topology::One(Address::Tcp("h".into(), 1))
    }

    fn sentinel() -> Topology {
        Topology::Sentinel { sentinels: Vec::new(), master: "m".into() }
    }

    fn cluster() -> Topology {
        Topology::Cluster { seeds: Vec::new() }
    }

    fn primary(persistence: Persistence, replicas: u32) -> Primary {
        Primary { persistence, replicas: Some(replicas) }
    }

    fn strong(replicas: u32) -> Option<Strong> {
        Some(Strong { replicas, timeout: Duration::from_millis(50) })
    }

    fn says(guarantee: &Guarantee, text: &str) -> bool {
        guarantee.breaks_when.iter().any(|when| when.contains(text))
    }

    #[test]
    fn one_server_that_keeps_everything_holds() {
        let found = of(&one(), &[primary(Persistence::Always, 0)], None);
        assert_eq!((found.exclusion, found.fences), (Level::Holds, Level::Holds));
        assert_eq!(found.breaks_when, [CLOCK_STEPS]);
    }

    #[test]
    fn one_server_of_another_kind_holds_until_a_restart() {
        for (persistence, text) in [
            (Persistence::Appended, "machine crashes"),
            (Persistence::Snapshots, "last snapshot"),
            (Persistence::Nothing, "keeps nothing"),
            (Persistence::Unknown, "does not say"),
        ] {
            let found = of(&one(), &[primary(persistence, 0)], None);
            let levels = (found.exclusion, found.fences);
            assert_eq!(levels, (Level::WithinBounds, Level::WithinBounds), "{persistence:?}");
            assert!(says(&found, text) && says(&found, FENCE_BOUND), "{found:?}");
            assert!(!says(&found, "replica"), "{found:?}");
        }
    }

    #[test]
    fn a_failover_may_break_it_however_data_is_kept() {
        let always = [primary(Persistence::Always, 1)];
        for (topology, primaries) in [
            (one(), &always[..]),
            (sentinel(), &always),
            (cluster(), &always),
            // Nobody follows it just now, but Sentinels and clusters are there to change that.
            (sentinel(), &[primary(Persistence::Always, 0)]),
            // Whether somebody follows it is not known.
            (one(), &[Primary { persistence: Persistence::Always, replicas: None }]),
        ] {
            let found = of(&topology, primaries, None);
            let levels = (found.exclusion, found.fences);
            assert_eq!(levels, (Level::MayBreak, Level::WithinBounds), "{topology:?}");
            assert!(says(&found, "replica that lags") && says(&found, FENCE_BOUND), "{found:?}");
            assert!(!says(&found, "restarts"), "{found:?}");
        }
    }

    #[test]
    fn strong_mode_holds_within_bounds_if_every_replica_acknowledges() {
        for topology in [one(), sentinel(), cluster()] {
            let found = of(&topology, &[primary(Persistence::Always, 2)], strong(2));
            let levels = (found.exclusion, found.fences);
            assert_eq!(levels, (Level::WithinBounds, Level::WithinBounds), "{topology:?}");
            assert!(says(&found, "joined later") && says(&found, "promoted replica"), "{found:?}");
            let fewer = of(&topology, &[primary(Persistence::Always, 2)], strong(1));
            assert_eq!(fewer.exclusion, Level::MayBreak, "{topology:?}");
            assert!(says(&fewer, "not among those that acknowledged"), "{fewer:?}");
        }
        // More than there are: then nothing is given out at all, which breaks nothing.
        let more = of(&sentinel(), &[primary(Persistence::Always, 1)], strong(2));
        assert_eq!(more.exclusion, Level::WithinBounds);
    }

    #[test]
    fn strong_mode_does_not_outlive_a_primary_that_comes_back_empty() {
        let found = of(&sentinel(), &[primary(Persistence::Nothing, 1)], strong(1));
        assert_eq!(found.exclusion, Level::WithinBounds);
        assert!(says(&found, "keeps nothing") && says(&found, "joined later"), "{found:?}");
    }

    #[test]
    fn the_worst_node_of_a_cluster_counts() {
        let good = primary(Persistence::Always, 1);
        let found = of(&cluster(), &[good, primary(Persistence::Nothing, 1)], strong(1));
        assert!(says(&found, "keeps nothing"), "{found:?}");
        let found = of(&cluster(), &[good, primary(Persistence::Always, 2)], strong(1));
        assert_eq!(found.exclusion, Level::MayBreak);
        let found = of(&cluster(), &[good, Primary::UNKNOWN], strong(1));
        assert_eq!(found.exclusion, Level::MayBreak);
        assert!(says(&found, "does not say"), "{found:?}");
    }
}
