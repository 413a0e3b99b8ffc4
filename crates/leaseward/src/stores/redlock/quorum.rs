//! What follows from the answers of several nodes. Pure: votes in, a verdict out.
//!
//! Every function is asked again after each vote and says `None` as long as further votes could change the verdict; with
//! nobody left to hear from it always decides.

use smallvec::SmallVec;

use super::ballot;
use crate::{LostReason, store::Standing};

/// A block of fences, by its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ballot {
    /// The first fence.
    pub first: u64,
    /// The last one.
    pub last: u64,
}

/// What one node said about one operation.
#[derive(Clone, Debug)]
pub enum Vote {
    /// The lease is granted under this ballot; perhaps not for the first time.
    Granted(Ballot),
    /// Free, but only for ballots above this one.
    Low(u64),
    /// Held by somebody else, whose token begins like this.
    Busy(Standing, String),
    /// The token has a lease here that is ending against its will.
    Gone(LostReason),
    /// The lease was lengthened here.
    Renewed,
    /// The token holds nothing here; `free` if nobody does.
    NotYours {
        /// Why.
        reason: LostReason,
        /// Whether the name is free here.
        free: bool,
    },
    /// The lease was given back here.
    Released,
    /// It has to be put more carefully: nothing was changed.
    Odd,
    /// Nothing: not reached, not answered in time, not allowed to vote, or failed.
    Absent,
}

/// How many nodes there are.
#[derive(Clone, Copy, Debug)]
pub struct Quorum {
    nodes: usize,
}

/// What came of an ask.
#[derive(Clone, Debug)]
pub enum Asked {
    /// A majority granted it, under this ballot.
    Granted(Ballot),
    /// It would have been granted with ballots above this one.
    Low(u64),
    /// Somebody holds it, or may.
    Busy(Standing),
    /// Nobody can have it: votes went to several, as many rivals as said. Whoever asks again soon may win.
    Split(usize),
    /// The token had a lease that is ending.
    Gone(LostReason),
    /// It has to be put more carefully.
    Odd,
    /// Too few nodes answered.
    TooFew,
}

/// What came of a renewal or a release.
#[derive(Clone, Debug)]
pub enum Kept {
    /// A majority did it.
    Done,
    /// The token holds nothing.
    NotYours(LostReason),
    /// It has to be put more carefully.
    Odd,
    /// Too few nodes answered.
    TooFew,
}

impl Quorum {
    /// Of so many nodes.
    pub fn of(nodes: usize) -> Self {
        Self { nodes }
    }

    /// How many nodes there are.
    pub fn nodes(self) -> usize {
        self.nodes
    }

    /// How many votes decide.
    pub fn needed(self) -> usize {
        self.nodes / 2 + 1
    }

    /// With fewer votes than this nothing is decided, whatever they are: neither a majority for something, nor one that
    /// has become impossible.
    pub fn decisive(self) -> usize {
        self.needed().min(self.nodes - self.needed() + 1)
    }

    /// Of what nodes told of their clocks, the lowest that is not behind a majority's: by it, no majority refuses a ballot for
    /// its age, and a minority does not move it, however wrong its clocks are.
    pub fn clock_of_most(self, told: &mut [i64]) -> Option<i64> {
        told.sort_unstable();
        told.get(self.needed() - 1).or(told.last()).copied()
    }

    /// Whether so many losses make a majority impossible.
    fn is_lost_with(self, lost: usize) -> bool {
        self.nodes - lost.min(self.nodes) < self.needed()
    }

    /// The verdict on an ask.
    ///
    /// A grant counts only by the ballot it was made under: votes for the same token under different ballots are no
    /// majority, because no single one of them is known to a majority of nodes.
    pub fn asked(self, votes: &[Vote]) -> Option<Asked> {
        let open = self.nodes - votes.len();
        let most = self.most_granted(votes);
        if let Some((ballot, count)) = most
            && count >= self.needed()
        {
            return Some(Asked::Granted(ballot));
        }
        if most.map_or(0, |(_, count)| count) + open >= self.needed() && open > 0 {
            return None;
        }
        let absent = count(votes, |vote| matches!(vote, Vote::Absent));
        // Whoever has yet to be heard counts as absent: no more than a hope.
        if self.is_lost_with(absent + open) {
            return (open == 0).then_some(Asked::TooFew);
        }
        if has_odd(votes) {
            return Some(Asked::Odd);
        }
        if open > 0 && (self.may_be_free(votes, open) || self.hangs_on_a_far_one(votes, open)) {
            return None;
        }
        Some(self.refused(votes))
    }

    /// Whether it takes those that have yet to be heard to know that no majority is free: a few that lag behind still have
    /// the lease that the others have given back.
    fn may_be_free(self, votes: &[Vote], open: usize) -> bool {
        let free = bars(votes).len();
        free < self.needed() && free + open >= self.needed()
    }

    /// Whether a majority would have to follow a node that is far ahead, and would not if those that have yet to be heard
    /// grant what the others do.
    fn hangs_on_a_far_one(self, votes: &[Vote], open: usize) -> bool {
        let (bars, needed) = (bars(votes), self.needed());
        let hoped = (needed - 1).checked_sub(open).and_then(|at| bars.get(at));
        matches!((bars.get(needed - 1), hoped), (Some(sure), Some(hoped)) if ballot::is_far(*sure, *hoped))
    }

    /// Why an ask that enough nodes answered has not been granted.
    fn refused(self, votes: &[Vote]) -> Asked {
        if let Some(reason) = votes.iter().find_map(|vote| match vote {
            Vote::Gone(reason) => Some(*reason),
            _ => None,
        }) {
            return Asked::Gone(reason);
        }
        let busy: Vec<_> = votes
            .iter()
            .filter_map(|vote| match vote {
                Vote::Busy(standing, whose) => Some((standing, whose)),
                _ => None,
            })
            .collect();
        let bars = bars(votes);
        if let Some(above) = self.above(&bars, busy.is_empty())
            && votes.iter().any(|vote| matches!(vote, Vote::Low(_)))
        {
            return Asked::Low(above);
        }
        let granted = count(votes, |vote| matches!(vote, Vote::Granted(_)));
        let held_by = |whose: &String| busy.iter().filter(|(_, other)| *other == whose).count();
        let strongest = busy.iter().max_by_key(|(_, whose)| held_by(whose));
        let Some((standing, whose)) = strongest else { return Asked::Split(1) };
        // Nodes that did not vote may be the rest of its majority.
        let silent = self.nodes - bars.len() - busy.len();
        if held_by(whose) + silent >= self.needed() {
            return Asked::Busy((*standing).clone());
        }
        let mut rivals: Vec<_> = busy.iter().map(|(_, whose)| whose).collect();
        rivals.sort_unstable();
        rivals.dedup();
        Asked::Split(rivals.len() + usize::from(granted > 0))
    }

    /// Above what a majority of nodes would grant, with the others that are not far ahead of it; of these one is followed
    /// only if there is no other way, because whoever follows it has all nodes remember ballots until their clocks are there.
    fn above(self, bars: &[u64], is_all: bool) -> Option<u64> {
        let (least, enough) = (bars.first()?, bars.get(self.needed() - 1)?);
        if !is_all && ballot::is_far(*enough, *least) {
            // Whoever is busy may be free soon.
            return None;
        }
        bars.iter().filter(|bar| !ballot::is_far(**bar, *enough)).max().copied()
    }

    fn most_granted(self, votes: &[Vote]) -> Option<(Ballot, usize)> {
        let granted = votes.iter().filter_map(|vote| match vote {
            Vote::Granted(ballot) => Some(*ballot),
            _ => None,
        });
        let with_count =
            |ballot: Ballot| (ballot, granted.clone().filter(|other| *other == ballot).count());
        granted.clone().map(with_count).max_by_key(|(_, count)| *count)
    }

    /// The verdict on a renewal: a majority must have lengthened it.
    pub fn renewed(self, votes: &[Vote]) -> Option<Kept> {
        let open = self.nodes - votes.len();
        let renewed = count(votes, |vote| matches!(vote, Vote::Renewed));
        if renewed >= self.needed() {
            return Some(Kept::Done);
        }
        let denied = count(votes, |vote| matches!(vote, Vote::NotYours { .. }));
        if self.is_lost_with(denied) {
            return Some(Kept::NotYours(reason(votes)));
        }
        if has_odd(votes) && self.is_lost_with(self.nodes - renewed - open) {
            return Some(Kept::Odd);
        }
        (open == 0).then_some(Kept::TooFew)
    }

    /// The verdict on a release.
    ///
    /// Where a majority can no longer be heard, one node that had the lease is enough: nobody else's was taken.
    pub fn released(self, votes: &[Vote]) -> Option<Kept> {
        let open = self.nodes - votes.len();
        let released = count(votes, |vote| matches!(vote, Vote::Released));
        if released >= self.needed() {
            return Some(Kept::Done);
        }
        let denied = count(votes, |vote| matches!(vote, Vote::NotYours { .. }));
        if denied >= self.needed() {
            return Some(Kept::NotYours(reason(votes)));
        }
        let is_undecidable = released.max(denied) + open < self.needed();
        if has_odd(votes) && (is_undecidable || open == 0) {
            return Some(Kept::Odd);
        }
        if open > 0 {
            return None;
        }
        Some(match released + denied {
            heard if heard < self.needed() => Kept::TooFew,
            _ if released > 0 => Kept::Done,
            _ => Kept::NotYours(reason(votes)),
        })
    }
}

/// Up to where nodes that are free for an ask refuse ballots, once its attempts are taken back; the lowest first.
fn bars(votes: &[Vote]) -> SmallVec<[u64; 8]> {
    let bar = |vote: &Vote| match vote {
        Vote::Low(bar) => Some(*bar),
        Vote::Granted(ballot) => Some(ballot.last),
        _ => None,
    };
    let mut bars: SmallVec<[u64; 8]> = votes.iter().filter_map(bar).collect();
    bars.sort_unstable();
    bars
}

fn has_odd(votes: &[Vote]) -> bool {
    votes.iter().any(|vote| matches!(vote, Vote::Odd))
}

fn count(votes: &[Vote], is: impl Fn(&Vote) -> bool) -> usize {
    votes.iter().filter(|vote| is(vote)).count()
}

/// What most plainly says why it is not ours: broken, then somebody else's, then run out.
fn reason(votes: &[Vote]) -> LostReason {
    let has = |wanted| {
        votes.iter().any(|vote| matches!(vote, Vote::NotYours { reason, .. } if *reason == wanted))
    };
    [LostReason::Broken, LostReason::NotOurs]
        .into_iter()
        .find(|reason| has(*reason))
        .unwrap_or(LostReason::Expired)
}

#[cfg(test)]
mod far;
#[cfg(test)]
mod tests;
