//! Fences by ballots: what a node may grant, and what a client proposes. Pure.
//!
//! A fence is a ballot that a majority of nodes has granted. Two majorities share a node, and a node grants a name only
//! ballots above the end of every block it has granted for it (rule R14); so completed fences are unique, and an
//! acquisition that began after another was complete has the larger one.

use std::time::Duration;

/// How far a node's clock must have passed a ballot before the node may forget it; then no ballot that old is granted. So
/// also how far behind the nodes a client's clock may be before it is told theirs.
pub const ALLOWANCE: Duration = Duration::from_secs(10 * 60);

/// How far ahead of other nodes one may be and still be followed: twice the allowance, because what a node refuses is between
/// that and a little more than its clock. One that is further ahead has a wrong clock, or had: it is out-voted.
const FAR: Duration = Duration::from_secs(2 * ALLOWANCE.as_secs());

/// Whether a node that refuses ballots up to here, or has this clock, is far ahead of another.
pub fn is_far(ahead_us: u64, other_us: u64) -> bool {
    ahead_us.saturating_sub(other_us) > micros(FAR)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Up to where ballots are refused: the end of what a node remembers to have granted for a name, or, without a memory of
/// it, whatever it may have granted and forgotten. `floor` is for a node that lost its memory altogether (rule R15); what
/// it remembers all the same is from before that, and may be older than its last votes.
pub fn bar(remembered: Option<u64>, clock_us: u64, floor: u64) -> u64 {
    remembered.unwrap_or_else(|| clock_us.saturating_sub(micros(ALLOWANCE))).max(floor)
}

/// Whether a node may grant a ballot (R14). Equal is not enough: two clients may read one clock at the same time.
pub fn may_grant(first: u64, bar: u64) -> bool {
    first > bar
}

/// What a client proposes: its clock, unless it knows of something larger.
///
/// A clock that is behind the nodes' is not used, because whatever was granted by theirs is above it; nor one that is so
/// far ahead that its ballots would be remembered for long.
pub fn propose(clock_us: u64, nodes_ahead_us: Option<i64>, above: u64) -> u64 {
    let nodes_us = nodes_ahead_us.map(|ahead| clock_us.saturating_add_signed(ahead));
    let clock_us = match nodes_us {
        Some(nodes_us) if nodes_us > clock_us => nodes_us,
        Some(nodes_us) if clock_us - nodes_us > micros(ALLOWANCE) / 2 => nodes_us,
        _ => clock_us,
    };
    clock_us.max(above + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000_000_000;

    #[test]
    fn a_node_grants_only_above_what_it_remembers() {
        let bar = bar(Some(NOW), NOW + 5, 0);
        assert!(!may_grant(NOW - 1, bar));
        assert!(!may_grant(NOW, bar), "two clients with one reading of the clock");
        assert!(may_grant(NOW + 1, bar));
    }

    #[test]
    fn without_a_memory_only_what_it_cannot_have_forgotten() {
        let old = NOW - micros(ALLOWANCE);
        assert!(!may_grant(old, bar(None, NOW, 0)));
        assert!(may_grant(old + 1, bar(None, NOW, 0)));
        assert!(!may_grant(NOW, bar(None, NOW, NOW)), "a node that lost its memory");
        assert!(!may_grant(NOW, bar(Some(old), NOW, NOW)), "one that found an old snapshot");
    }

    #[test]
    fn a_floor_below_a_ballot_changes_nothing() {
        let around = [NOW - 2, NOW - 1, NOW, NOW + 1, NOW + 2];
        let memories = around.map(Some).into_iter().chain([None]);
        let clocks = around.map(|at| at + micros(ALLOWANCE));
        for remembered in memories {
            for (clock, floor) in clocks.iter().flat_map(|clock| around.map(|at| (*clock, at))) {
                let (with, without) = (bar(remembered, clock, floor), bar(remembered, clock, 0));
                for first in around.into_iter().filter(|first| *first > floor) {
                    assert_eq!(may_grant(first, with), may_grant(first, without));
                    // What the node says that refuses it, too.
                    assert!(may_grant(first, with) || with == without);
                }
            }
        }
    }

    #[test]
    fn a_client_proposes_by_the_nodes_clock_if_its_own_is_wrong() {
        assert_eq!(propose(NOW, None, 0), NOW);
        assert_eq!(propose(NOW, Some(50_000), 0), NOW + 50_000);
        assert_eq!(propose(NOW, Some(-50_000), 0), NOW);
        let hour = 3_600_000_000;
        assert_eq!(propose(NOW, Some(-hour), 0), NOW - hour.unsigned_abs());
        assert_eq!(propose(NOW, Some(0), NOW + 7), NOW + 8);
    }
}
