//! Every combination of votes, in every order: of numbers of nodes that are meant, and of those that are only warned of.

use super::*;

const NODES: [usize; 6] = [1, 2, 3, 4, 5, 7];

fn ballot(first: u64) -> Ballot {
    Ballot { first, last: first }
}

fn busy(whose: &str) -> Vote {
    Vote::Busy(Standing::default(), whose.to_owned())
}

fn not_yours(reason: LostReason, free: bool) -> Vote {
    Vote::NotYours { reason, free }
}

/// What may be said of an ask.
fn on_ask() -> Vec<Vote> {
    vec![
        Vote::Granted(ballot(1)),
        Vote::Granted(ballot(2)),
        Vote::Low(5),
        Vote::Low(9),
        busy("a"),
        busy("b"),
        Vote::Gone(LostReason::Broken),
        Vote::Odd,
        Vote::Absent,
    ]
}

/// What may be said of a renewal or a release, where `done` is what was wanted.
fn on_lease(done: Vote) -> Vec<Vote> {
    vec![
        done,
        not_yours(LostReason::Expired, true),
        not_yours(LostReason::NotOurs, false),
        not_yours(LostReason::Broken, false),
        Vote::Odd,
        Vote::Absent,
    ]
}

/// With more nodes, there would be too many combinations of all kinds.
const ALL_KINDS_UP_TO: usize = 5;

/// Calls with the votes of all nodes, for all that may be; of many nodes, with about every other kind.
fn each(nodes: usize, kinds: &[Vote], mut look: impl FnMut(&[Vote])) {
    let is_kept =
        |at: usize| nodes <= ALL_KINDS_UP_TO || at.is_multiple_of(2) || at + 1 == kinds.len();
    let kinds: Vec<_> = (0..kinds.len()).filter(|at| is_kept(*at)).map(|at| &kinds[at]).collect();
    for number in 0..kinds.len().pow(u32::try_from(nodes).expect("few")) {
        let place = |at: usize| kinds.len().pow(u32::try_from(at).expect("few"));
        let votes: Vec<_> =
            (0..nodes).map(|at| kinds[number / place(at) % kinds.len()].clone()).collect();
        look(&votes);
    }
}

/// A verdict without its details.
fn gist(asked: &Asked) -> &'static str {
    match asked {
        Asked::Granted(_) => "granted",
        Asked::Low(_) => "low",
        Asked::Busy(_) => "busy",
        Asked::Split(_) => "split",
        Asked::Gone(_) => "gone",
        Asked::Odd => "odd",
        Asked::TooFew => "too few",
    }
}

fn granted(asked: &Asked) -> Option<&Ballot> {
    match asked {
        Asked::Granted(ballot) => Some(ballot),
        _ => None,
    }
}

fn how_many(votes: &[Vote], ballot: &Ballot) -> usize {
    count(votes, |vote| matches!(vote, Vote::Granted(under) if under == ballot))
}

#[test]
fn what_is_decided_early_is_decided_for_good() {
    for nodes in NODES {
        let quorum = Quorum::of(nodes);
        each(nodes, &on_ask(), |votes| {
            let last = quorum.asked(votes).expect("all votes decide");
            for heard in 0..nodes {
                let Some(early) = quorum.asked(&votes[..heard]) else { continue };
                assert_eq!(granted(&early), granted(&last), "after {heard} of {votes:?}");
                assert!(!matches!(early, Asked::TooFew), "others may be heard yet: {votes:?}");
                let is_premature = matches!((&early, &last), (Asked::Busy(_), Asked::Low(_)));
                assert!(!is_premature, "most are free: {votes:?}");
                if let (Asked::Low(early), Asked::Low(last)) = (&early, &last) {
                    assert!(early <= last, "after {heard} of {votes:?}");
                }
            }
        });
    }
}

#[test]
fn a_grant_needs_a_majority_under_one_ballot_and_no_more() {
    for nodes in NODES {
        let quorum = Quorum::of(nodes);
        each(nodes, &on_ask(), |votes| {
            let last = quorum.asked(votes).expect("all votes decide");
            let most = [ballot(1), ballot(2)].into_iter().max_by_key(|of| how_many(votes, of));
            let most = most.filter(|ballot| how_many(votes, ballot) * 2 > nodes);
            assert_eq!(granted(&last), most.as_ref(), "{votes:?}");
            let heard = nodes - count(votes, |vote| matches!(vote, Vote::Absent));
            assert_eq!(matches!(last, Asked::TooFew), heard * 2 <= nodes, "{votes:?}");
        });
    }
}

#[test]
fn the_order_of_votes_does_not_matter() {
    for nodes in NODES {
        let quorum = Quorum::of(nodes);
        each(nodes, &on_ask(), |votes| {
            let here = quorum.asked(votes).expect("all votes decide");
            let turned: Vec<_> = votes.iter().rev().cloned().collect();
            let there = quorum.asked(&turned).expect("all votes decide");
            let mut rotated = votes.to_vec();
            rotated.rotate_left(1);
            let elsewhere = quorum.asked(&rotated).expect("all votes decide");
            for other in [&there, &elsewhere] {
                assert_eq!(gist(&here), gist(other), "{votes:?}");
                assert_eq!(granted(&here), granted(other), "{votes:?}");
            }
        });
    }
}

/// What one node said to two clients that asked at the same time: it grants to one of them at most.
fn to_two() -> Vec<(Vote, Vote)> {
    vec![
        (Vote::Granted(ballot(1)), busy("a")),
        (busy("b"), Vote::Granted(ballot(2))),
        (Vote::Granted(ballot(1)), Vote::Absent),
        (Vote::Absent, Vote::Granted(ballot(2))),
        (Vote::Low(5), Vote::Granted(ballot(2))),
        (Vote::Absent, Vote::Absent),
    ]
}

#[test]
fn two_are_never_granted_what_each_node_grants_to_one() {
    let kinds = to_two();
    for nodes in NODES {
        let quorum = Quorum::of(nodes);
        let numbers: Vec<_> = (0..kinds.len()).map(|at| Vote::Low(at as u64)).collect();
        each(nodes, &numbers, |which| {
            let pairs = which.iter().map(|vote| match vote {
                Vote::Low(at) => kinds[usize::try_from(*at).expect("small")].clone(),
                other => unreachable!("{other:?}"),
            });
            let (ones, others): (Vec<_>, Vec<_>) = pairs.unzip();
            for heard in 1..=nodes {
                let one = quorum.asked(&ones[..heard]);
                let other = quorum.asked(&others);
                let both = [&one, &other].map(|asked| asked.as_ref().and_then(granted).is_some());
                assert_ne!(both, [true, true], "{ones:?} {others:?}");
            }
        });
    }
}

fn kept(kept: &Kept) -> &'static str {
    match kept {
        Kept::Done => "done",
        Kept::NotYours(_) => "not yours",
        Kept::Odd => "odd",
        Kept::TooFew => "too few",
    }
}

#[test]
fn a_renewal_needs_a_majority_and_is_refused_when_there_can_be_none() {
    for nodes in NODES {
        let quorum = Quorum::of(nodes);
        each(nodes, &on_lease(Vote::Renewed), |votes| {
            let last = quorum.renewed(votes).expect("all votes decide");
            let renewed = count(votes, |vote| matches!(vote, Vote::Renewed));
            let denied = count(votes, |vote| matches!(vote, Vote::NotYours { .. }));
            // Half of an even number is enough to deny it: the other half is no majority.
            let expected = match (renewed * 2 > nodes, (nodes - denied) * 2 <= nodes) {
                (true, _) => "done",
                (false, true) => "not yours",
                (false, false) if has_odd(votes) => "odd",
                (false, false) => "too few",
            };
            assert_eq!(kept(&last), expected, "{votes:?}");
            for heard in 0..nodes {
                match quorum.renewed(&votes[..heard]) {
                    None => {}
                    // No decision, but another question; unless it was a yes.
                    Some(Kept::Odd) => {
                        assert_ne!(kept(&last), "done", "after {heard} of {votes:?}")
                    }
                    Some(early) => {
                        assert_eq!(kept(&early), kept(&last), "after {heard} of {votes:?}");
                    }
                }
            }
        });
    }
}

#[test]
fn a_release_is_done_if_anybody_had_it_and_enough_were_heard() {
    for nodes in NODES {
        let quorum = Quorum::of(nodes);
        each(nodes, &on_lease(Vote::Released), |votes| {
            let last = quorum.released(votes).expect("all votes decide");
            let released = count(votes, |vote| matches!(vote, Vote::Released));
            let denied = count(votes, |vote| matches!(vote, Vote::NotYours { .. }));
            let expected = match (released, denied) {
                (_, denied) if denied * 2 > nodes => "not yours",
                (released, _) if released * 2 > nodes => "done",
                _ if has_odd(votes) => "odd",
                (released, denied) if (released + denied) * 2 <= nodes => "too few",
                (0, _) => "not yours",
                _ => "done",
            };
            assert_eq!(kept(&last), expected, "{votes:?}");
            for heard in 0..nodes {
                match quorum.released(&votes[..heard]) {
                    None => {}
                    // No decision, but another question; unless it was a yes.
                    Some(Kept::Odd) => {
                        assert_ne!(kept(&last), "done", "after {heard} of {votes:?}")
                    }
                    Some(early) => {
                        assert_eq!(kept(&early), kept(&last), "after {heard} of {votes:?}");
                    }
                }
            }
        });
    }
}

#[test]
fn a_broken_lease_is_told_as_such() {
    let votes = [
        not_yours(LostReason::Expired, true),
        not_yours(LostReason::Broken, false),
        not_yours(LostReason::NotOurs, false),
    ];
    let verdict = Quorum::of(3).renewed(&votes);
    assert!(matches!(verdict, Some(Kept::NotYours(LostReason::Broken))), "{verdict:?}");
}

#[test]
fn fewer_than_the_decisive_votes_decide_nothing() {
    for nodes in NODES {
        let quorum = Quorum::of(nodes);
        each(quorum.decisive() - 1, &on_ask(), |votes| {
            assert!(quorum.asked(votes).is_none(), "{nodes} nodes, {votes:?}");
        });
        each(quorum.decisive() - 1, &on_lease(Vote::Renewed), |votes| {
            assert!(quorum.renewed(votes).is_none(), "{nodes} nodes, {votes:?}");
        });
        each(quorum.decisive() - 1, &on_lease(Vote::Released), |votes| {
            assert!(quorum.released(votes).is_none(), "{nodes} nodes, {votes:?}");
        });
        let mut decided = 0;
        each(quorum.decisive(), &on_ask(), |votes| {
            decided += usize::from(quorum.asked(votes).is_some());
        });
        each(quorum.decisive(), &on_lease(Vote::Renewed), |votes| {
            decided += usize::from(quorum.renewed(votes).is_some());
        });
        assert!(decided > 0, "{nodes} nodes");
    }
}
