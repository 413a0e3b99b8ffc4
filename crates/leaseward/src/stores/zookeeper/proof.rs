//! How long a session surely lives. Pure.
//!
//! The leader alone ends sessions, after their time without a word of them. A follower answers by itself what only reads,
//! pings too, and tells the leader from which sessions it has heard only when the leader asks, twice a tick. So a
//! follower that is cut off from the leader goes on answering while the leader ends its sessions, and what is heard from
//! it proves nothing. What the leader had a part in (writes, `sync`) proves that the follower and the leader were in
//! touch, hence that the leader has been told of whatever the follower had heard a tick before.

use std::{collections::VecDeque, time::Duration};

use crate::clock::Moment;

/// Touches nearer to each other than this share of a tick are one: what is remembered stays small.
const COALESCE: u32 = 4;

#[derive(Debug)]
pub(super) struct Proof {
    /// How long the leader keeps the session after it was told of it.
    timeout: Duration,
    tick: Duration,
    /// What was sent by this moment the leader has been told of.
    told: Moment,
    /// The newest request that the leader had a part in.
    led: Moment,
    /// When something was sent that the leader may not have been told of, oldest first.
    touches: VecDeque<Moment>,
}

impl Proof {
    /// A connection was made: the leader itself was asked.
    pub(super) fn connected(timeout: Duration, tick: Duration, sent: Moment) -> Self {
        Self { timeout, tick, told: sent, led: sent, touches: VecDeque::new() }
    }

    /// Something is being sent.
    pub(super) fn sending(&mut self, now: Moment) {
        if self.touches.back().is_none_or(|last| now.since(*last) >= self.tick / COALESCE) {
            self.touches.push_back(now);
        }
    }

    /// Something was answered that the leader had a part in.
    pub(super) fn answered(&mut self, sent: Moment) {
        self.led = self.led.max(sent);
        while let Some(touch) = self.touches.front().filter(|touch| **touch + self.tick <= sent) {
            self.told = self.told.max(*touch);
            self.touches.pop_front();
        }
    }

    /// From which moment a lease of this length may be counted: it ends before the session can.
    pub(super) fn counts_from(&self, ttl: Duration) -> Moment {
        self.led.min(self.told + self.timeout.saturating_sub(ttl))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(100);
    const TIMEOUT: Duration = Duration::from_millis(2_000);
    const TTL: Duration = Duration::from_millis(1_500);

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_lease_counts_from_what_the_leader_answered() {
        let mut proof = Proof::connected(TIMEOUT, TICK, at(0));
        assert_eq!(proof.counts_from(TTL), at(0));
        proof.sending(at(300));
        assert_eq!(proof.counts_from(TTL), at(0), "it is not answered yet");
        proof.answered(at(300));
        assert_eq!(proof.counts_from(TTL), at(300), "300 + 1500 is before 0 + 2000");
    }

    #[test]
    fn what_only_a_follower_may_know_of_counts_for_little() {
        let mut proof = Proof::connected(TIMEOUT, TICK, at(0));
        proof.sending(at(900));
        proof.answered(at(900));
        // The leader may end the session at 2000: it may have heard of nothing since the beginning.
        assert_eq!(proof.counts_from(TTL), at(500));
        proof.sending(at(950));
        proof.answered(at(950));
        assert_eq!(proof.counts_from(TTL), at(500), "too soon for the leader to have been told");
        proof.sending(at(1_000));
        proof.answered(at(1_000));
        assert_eq!(proof.counts_from(TTL), at(1_000), "it has been told of 900");
    }

    #[test]
    fn answers_out_of_order_take_nothing_back() {
        let mut proof = Proof::connected(TIMEOUT, TICK, at(0));
        for ms in [100, 200, 300] {
            proof.sending(at(ms));
        }
        proof.answered(at(300));
        proof.answered(at(100));
        assert_eq!(proof.counts_from(TTL), at(300));
    }

    #[test]
    fn remembers_little() {
        let mut proof = Proof::connected(TIMEOUT, TICK, at(0));
        for ms in 0..1_000 {
            proof.sending(at(ms));
        }
        assert!(proof.touches.len() <= 40, "{}", proof.touches.len());
    }
}
