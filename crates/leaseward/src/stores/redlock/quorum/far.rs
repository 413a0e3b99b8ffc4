//! One node whose clock is far ahead of the others'.

use super::*;

const NOW: u64 = 1_800_000_000_000_000;
const YEARS_US: u64 = 80 * 365 * 24 * 3_600 * 1_000_000;
/// What a node refuses whose clock is that far ahead.
const FAR: Vote = Vote::Low(NOW + YEARS_US);

fn granted() -> Vote {
    Vote::Granted(Ballot { first: NOW, last: NOW })
}

fn busy(whose: &str) -> Vote {
    Vote::Busy(Standing::default(), whose.to_owned())
}

fn low(votes: &[Vote]) -> Option<u64> {
    match Quorum::of(5).asked(votes) {
        Some(Asked::Low(bar)) => Some(bar),
        _ => None,
    }
}

#[test]
fn the_clock_of_most_is_one_that_a_majority_does_not_refuse_and_a_minority_does_not_move() {
    let years = YEARS_US.cast_signed();
    for nodes in [1, 2, 3, 4, 5, 7] {
        let quorum = Quorum::of(nodes);
        for far in 0..=nodes {
            for wrong in [years, -years] {
                let mut told: Vec<_> =
                    (0..nodes).map(|at| if at < far { wrong } else { at as i64 }).collect();
                let clock = quorum.clock_of_most(&mut told).expect("they told");
                let not_ahead = told.iter().filter(|told| **told <= clock).count();
                assert!(not_ahead >= quorum.needed(), "{clock} of {told:?}");
                if nodes - far >= quorum.needed() {
                    assert!(clock.abs() < years, "{clock} of {told:?}");
                }
            }
        }
        assert_eq!(quorum.clock_of_most(&mut []), None);
        assert_eq!(quorum.clock_of_most(&mut [7]), Some(7), "it is all that is known");
    }
}

#[test]
fn whoever_is_refused_by_it_and_granted_by_the_others_has_it() {
    let votes = [FAR, granted(), granted(), granted()];
    assert!(matches!(Quorum::of(5).asked(&votes), Some(Asked::Granted(_))));
}

#[test]
fn whoever_is_behind_learns_from_the_others() {
    // Two more have yet to be heard, and may grant what these would.
    assert!(Quorum::of(5).asked(&[FAR, Vote::Low(NOW + 5), Vote::Low(NOW + 9)]).is_none());
    let four = [FAR, Vote::Low(NOW + 5), Vote::Low(NOW + 9), Vote::Low(NOW + 5)];
    assert_eq!(low(&four), Some(NOW + 9));
    let all = [FAR, Vote::Low(NOW + 5), Vote::Low(NOW + 9), Vote::Absent, granted()];
    assert_eq!(low(&all), Some(NOW + 9));
}

#[test]
fn it_is_followed_only_where_nobody_else_is_left() {
    let split = [FAR, granted(), granted(), busy("a"), busy("a")];
    assert!(matches!(Quorum::of(5).asked(&split), Some(Asked::Split(2))));
    let with_two_dead = [Vote::Absent, Vote::Absent, FAR, granted(), granted()];
    assert_eq!(low(&with_two_dead), Some(NOW + YEARS_US));
    // What a majority remembers has to be followed, whoever is in the way elsewhere.
    let remembered = [FAR, FAR, FAR, busy("a"), busy("b")];
    assert_eq!(low(&remembered), Some(NOW + YEARS_US));
}
