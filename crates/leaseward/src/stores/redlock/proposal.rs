//! Which ballots are proposed.

use std::{sync::atomic::Ordering, time::Duration};

use smallvec::SmallVec;

use super::{ballot, client::Client, quorum::Ballot};
use crate::store::Ask;

/// What the clocks say, read once for a batch.
pub(super) struct Reading {
    clock_us: u64,
    ahead_us: Option<i64>,
    /// The highest floor of the nodes, but for those that are far ahead: with a ballot above it none refuses for that.
    floor: u64,
}

impl Client {
    pub(super) fn reading(&self) -> Reading {
        let (clock_us, ahead_us) = (self.clock.wall_us(), self.nodes_ahead_us());
        let at = |ahead_us: Option<i64>| clock_us.saturating_add_signed(ahead_us.unwrap_or(0));
        let followed = self
            .members
            .iter()
            .filter(|member| !ballot::is_far(at(member.ahead_us()), at(ahead_us)));
        let voters = followed.filter_map(|member| member.voter(&self.config).ok());
        let floor = voters.map(|voter| voter.floor_us).max().unwrap_or(0);
        Reading { clock_us, ahead_us, floor }
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

    /// By how much the nodes' clock is ahead of ours: the one that most of them have.
    fn nodes_ahead_us(&self) -> Option<i64> {
        let mut told: SmallVec<[i64; 8]> =
            self.members.iter().filter_map(|member| member.ahead_us()).collect();
        self.quorum.clock_of_most(&mut told)
    }

    /// How far the newest fence is ahead of the clock.
    pub(super) fn fence_lead(&self) -> Option<Duration> {
        let newest = self.newest.load(Ordering::Relaxed);
        let ahead = self.nodes_ahead_us().unwrap_or(0);
        let clock_us = self.clock.wall_us().saturating_add_signed(ahead);
        (newest > 0).then(|| Duration::from_micros(newest.saturating_sub(clock_us)))
    }
}
