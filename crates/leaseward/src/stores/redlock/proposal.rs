//! Which ballots are proposed.

use std::{sync::atomic::Ordering, time::Duration};

use super::{ballot, client::Client, quorum::Ballot};
use crate::store::Ask;

/// What the clocks say, read once for a batch.
pub(super) struct Reading {
    clock_us: u64,
    ahead_us: Option<i64>,
    /// The highest floor of the nodes: with a ballot above it none refuses for that.
    floor: u64,
}

impl Client {
    pub(super) fn reading(&self) -> Reading {
        let voters = self.members.iter().filter_map(|member| member.voter(&self.config).ok());
        Reading {
            clock_us: self.clock.wall_us(),
            ahead_us: self.nodes_ahead_us(),
            floor: voters.map(|voter| voter.floor_us).max().unwrap_or(0),
        }
    }

    /// A ballot above a number, for the block that is asked for.
    pub(super) fn propose(&self, reading: &Reading, above: u64, ask: &Ask) -> Ballot {
        let (len, floor) = (u64::from(ask.block.max(1)), reading.floor);
        let mut first = ballot::propose(reading.clock_us, reading.ahead_us, above);
        if first <= floor {
            // Until the clock has reached the floor, no ballot of ours may be the one before.
            let next = |risen: u64| Some(risen.max(floor) + len);
            let risen = self.risen.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
            first = risen.unwrap_or(0).max(floor) + 1;
        }
        Ballot { first, last: first + len - 1 }
    }

    fn nodes_ahead_us(&self) -> Option<i64> {
        self.members.iter().filter_map(|member| member.ahead_us()).max()
    }

    /// How far the newest fence is ahead of the clock.
    pub(super) fn fence_lead(&self) -> Option<Duration> {
        let newest = self.newest.load(Ordering::Relaxed);
        let ahead = self.nodes_ahead_us().unwrap_or(0);
        let clock_us = self.clock.wall_us().saturating_add_signed(ahead);
        (newest > 0).then(|| Duration::from_micros(newest.saturating_sub(clock_us)))
    }
}
