//! The library's decisions, and the same with one check taken out.

use std::time::Duration;

use leaseward::stores::redlock::{
    Amnesia,
    amnesia::{self, Life, Right},
    ballot,
    quorum::{Asked, Ballot, Kept, Quorum, Vote},
};

use super::{
    bounds::{Bounds, TICK_US, clock_us},
    state::{Block, Lock},
};

/// A check that is taken out, to see what it prevents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Without {
    /// A node grants only *above* what it has granted (R14): here also the same.
    Larger,
    /// It records the end of the block: here its beginning.
    EndOfBlock,
    /// The record outlives the lock: here they end together.
    Memory,
    /// A node without a record refuses what it may have forgotten: here it refuses nothing.
    ClockFloor,
    /// A node that lost its memory refuses what it may have granted before (R15b): here it refuses nothing for that.
    Floor,
    /// Such a node waits before it votes (R15a): here it votes at once.
    Wait,
    /// Grants count by ballot: here by token.
    ByBallot,
    /// A lease that is put where it was not never lowers what the node refuses: here it does.
    Highest,
    /// A node that lost its memory refuses what it may have granted before, also if it found an old snapshot: here it
    /// trusts that.
    OldSnapshot,
    /// More than half of the nodes must agree: here one fewer.
    Majority,
    /// A lease counts from the first sending: here from the last answer.
    FirstSending,
    /// An attempt is taken back by its ballot: here whatever the token has.
    UndoByBallot,
    /// What is sent to a node later is carried out later (R16): here requests overtake each other.
    InOrder,
}

/// The decisions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) without: Option<Without>,
    pub(crate) quorum: Quorum,
}

/// One second less than leases last, because the guard adds a second for uptimes that are rounded.
const ROUNDED_US: u64 = 1_000_000;

/// By how much clients' clocks may be ahead of the nodes'.
const SKEW: Duration = Duration::from_secs(1);

impl Rules {
    fn lacks(self, check: Without) -> bool {
        self.without == Some(check)
    }

    /// Up to where a node refuses ballots.
    pub(crate) fn bar(self, record: Option<u64>, now: u8, floor: u64) -> u64 {
        let clock = if self.lacks(Without::ClockFloor) { 0 } else { clock_us(now) };
        let trusts = self.lacks(Without::OldSnapshot) && record.is_some();
        ballot::bar(record, clock, if trusts { 0 } else { floor })
    }

    pub(crate) fn may_grant(self, first: u64, bar: u64) -> bool {
        ballot::may_grant(first + u64::from(self.lacks(Without::Larger)), bar)
    }

    /// What a node writes down of a block.
    pub(crate) fn recorded(self, block: Block) -> u64 {
        if self.lacks(Without::EndOfBlock) { block.first } else { block.last }
    }

    /// The end of a lease that is put where ballots up to a bar are refused.
    pub(crate) fn healed(self, block: Block, bar: u64) -> u64 {
        if self.lacks(Without::Highest) { block.last } else { block.last.max(bar) }
    }

    /// Whether the record goes with the lock.
    pub(crate) fn forgets_with_lock(self) -> bool {
        self.lacks(Without::Memory)
    }

    /// Whether a node may come to grant what it refused before.
    pub(crate) fn lowers_bars(self) -> bool {
        matches!(
            self.without,
            Some(Without::Memory | Without::ClockFloor | Without::Highest | Without::OldSnapshot)
        )
    }

    /// Whether a node may vote, and its floor.
    fn right(self, begun: Option<u8>, now: u8, ttl: u8) -> Option<u64> {
        let uptime = begun.map(|begun| Duration::from_micros(u64::from(now - begun) * TICK_US));
        let life = Life {
            keeps_all: begun.is_none(),
            uptime,
            clock_us: clock_us(now),
            ago: Duration::ZERO,
        };
        let amnesia = if self.lacks(Without::Wait) { Amnesia::Trust } else { Amnesia::Wait };
        let max_ttl = Duration::from_micros(u64::from(ttl) * TICK_US - ROUNDED_US);
        match amnesia::right(&life, amnesia, max_ttl, SKEW) {
            Right::Votes { .. } if self.lacks(Without::Floor) => Some(0),
            Right::Votes { floor_us } => Some(floor_us),
            Right::Waits(_) => None,
        }
    }

    /// The verdict on an ask under a ballot.
    pub(crate) fn asked(self, votes: &[Vote], proposed: Block) -> Option<Asked> {
        if self.lacks(Without::ByBallot) {
            let proposed = Ballot { first: proposed.first, last: proposed.last };
            let by_token = |vote: &Vote| match vote {
                Vote::Granted(_) => Vote::Granted(proposed),
                other => other.clone(),
            };
            return self.quorum.asked(&votes.iter().map(by_token).collect::<Vec<_>>());
        }
        if self.lacks(Without::Majority)
            && let Some(grant) = enough(votes, self.quorum, |vote| matches!(vote, Vote::Granted(_)))
        {
            return Quorum::of(1).asked(&[grant]);
        }
        self.quorum.asked(votes)
    }

    pub(crate) fn renewed(self, votes: &[Vote]) -> Option<Kept> {
        if self.lacks(Without::Majority)
            && let Some(vote) = enough(votes, self.quorum, |vote| matches!(vote, Vote::Renewed))
        {
            return Quorum::of(1).renewed(&[vote]);
        }
        self.quorum.renewed(votes)
    }

    pub(crate) fn released(self, votes: &[Vote]) -> Option<Kept> {
        self.quorum.released(votes)
    }

    /// Until when a lease that was sent for then, and is decided now, counts.
    pub(crate) fn deadline(self, sent: u8, now: u8, ttl: u8) -> u8 {
        let from = if self.lacks(Without::FirstSending) { now } else { sent };
        from.saturating_add(ttl)
    }

    /// Whether a lock is what an attempt was granted; it is the token's.
    pub(crate) fn is_of_attempt(self, lock: Lock, first: u64) -> bool {
        lock.block.first == first || self.lacks(Without::UndoByBallot)
    }
}

/// One of as many votes as would be a majority less one.
fn enough(votes: &[Vote], quorum: Quorum, is: impl Fn(&Vote) -> bool) -> Option<Vote> {
    let matching: Vec<_> = votes.iter().filter(|vote| is(vote)).collect();
    (matching.len() + 1 >= quorum.needed()).then(|| matching.first().copied().cloned()).flatten()
}

/// Which nodes may vote when, worked out once: they are asked at every step.
#[derive(Clone, Debug)]
pub(crate) struct Rights {
    /// For a node that kept its memory.
    kept: Option<u64>,
    /// For one that lost it, by when that was and by the time since.
    lost: Vec<Vec<Option<u64>>>,
}

impl Rights {
    pub(crate) fn new(rules: Rules, bounds: &Bounds) -> Self {
        let max_ttl = bounds.lease.max_ttl();
        let since = |begun: u8| {
            (begun..=bounds.ticks).map(|now| rules.right(Some(begun), now, max_ttl)).collect()
        };
        Self { kept: rules.right(None, 0, max_ttl), lost: (0..=bounds.ticks).map(since).collect() }
    }

    /// The floor of a node that may vote.
    pub(crate) fn at(&self, begun: Option<u8>, now: u8) -> Option<u64> {
        match begun {
            None => self.kept,
            Some(begun) => self.lost[usize::from(begun)][usize::from(now - begun)],
        }
    }
}
