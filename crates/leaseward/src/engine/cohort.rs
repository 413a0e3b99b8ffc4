//! Hand-over inside a process: no network at all, within bounds that keep it fair and fenced. Pure.
//!
//! A grant reserves a block of fences; each local holder takes the next one and inherits the *remote* deadline. The
//! cohort ends when the block is used up, or when the lease was passed on locally for over a second while another
//! process waits.

use std::time::Duration;

use crate::{
    Block, Fence,
    clock::Moment,
    rules::{self, Rule},
};

/// The most fences one grant reserves. A larger block makes a counter outrun the clock sooner (R13).
pub(crate) const BLOCK_MAX: u32 = 64;

/// How long a lease may be passed on locally while another process waits.
const TURN_MAX: Duration = Duration::from_secs(1);

/// The next block is reserved while this many fences are left, so that hand-overs do not stop for it: at the latest at
/// half of the block before.
const RESERVE_BELOW: u32 = 32;

/// The fences of one lease and its turn among processes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cohort {
    /// The fence of whoever holds it now.
    current: Fence,
    /// Fences of the block not yet used.
    left: u32,
    /// The next block, reserved ahead.
    spare: Option<Block>,
    /// When the lease was first passed on locally.
    turn_since: Moment,
    /// Somebody waits for it in the store.
    others_wait: bool,
    /// A reservation is under way.
    reserving: bool,
    /// How many fences were reserved last. The next block is twice as large, because this one is being used up: the
    /// counter still advances by holds, and a store that is far away is asked less often than it is waited for (R13).
    reserved: u32,
}

/// What becomes of a lease that its local holder gave back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandOver {
    /// The next local waiter has it, with the fence that is now the cohort's.
    Pass,
    /// The next local waiter has it as soon as fences have been reserved.
    Reserve,
    /// It goes back to the store.
    GiveBack,
}

/// How many fences an ask reserves for itself and the local waiters behind it (R13).
pub(crate) fn block_for(waiters: usize) -> u32 {
    u32::try_from(waiters.max(1)).unwrap_or(BLOCK_MAX).min(BLOCK_MAX)
}

impl Cohort {
    pub(crate) fn new(block: Block, waiters: u32, now: Moment) -> Self {
        Self {
            current: block.first,
            left: block.len - 1,
            spare: None,
            turn_since: now,
            others_wait: waiters > 0,
            reserving: false,
            reserved: block.len,
        }
    }

    pub(crate) fn fence(&self) -> Fence {
        self.current
    }

    /// Decides where the lease goes when its local holder gives it back and others wait here.
    pub(crate) fn hand_over(&mut self, now: Moment, deadline: Moment, reserves: bool) -> HandOver {
        // R11: the check is made at the hand-over itself, and the deadline is the lease's, not a fresh one.
        if now >= deadline && rules::on(Rule::R11) {
            return HandOver::GiveBack;
        }
        if self.others_wait && now.since(self.turn_since) > TURN_MAX {
            return HandOver::GiveBack;
        }
        if self.left == 0
            && let Some(block) = self.spare.take()
        {
            self.current = block.first;
            self.left = block.len - 1;
            return HandOver::Pass;
        }
        if self.left == 0 && rules::on(Rule::R10) {
            let can_reserve = reserves && !self.others_wait;
            return if can_reserve { HandOver::Reserve } else { HandOver::GiveBack };
        }
        self.left = self.left.saturating_sub(1);
        self.current = Fence::new(self.current.get() + 1);
        HandOver::Pass
    }

    /// How many fences to reserve ahead now, 0 for none; marks the reservation as under way.
    pub(crate) fn reserve(&mut self, waiters: usize, reserves: bool) -> u32 {
        let waiting = u32::try_from(waiters).unwrap_or(u32::MAX);
        let few = waiting.max(self.reserved / 2).min(RESERVE_BELOW);
        let enough = self.left >= few || self.spare.is_some();
        if !reserves || self.others_wait || self.reserving || waiting == 0 || enough {
            return 0;
        }
        self.reserving = true;
        self.reserved = block_for(waiters).max(2 * self.reserved).min(BLOCK_MAX);
        self.reserved
    }

    /// A renewal was answered: who waits, and perhaps the next fences.
    pub(crate) fn renewed(&mut self, waiters: u32, block: Option<Block>) {
        self.others_wait = waiters > 0;
        // An answer that came late or twice names fences that are in use already.
        if let Some(block) = block.filter(|block| block.first > self.current) {
            self.spare = Some(block);
        }
    }

    /// The reservation under way was answered, one way or the other.
    pub(crate) fn reserved(&mut self) {
        self.reserving = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAR: Moment = Moment::NEVER;

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    fn cohort(first: u64, len: u32, waiters: u32) -> Cohort {
        Cohort::new(Block { first: Fence::new(first), len }, waiters, at(0))
    }

    #[test]
    fn passes_the_fences_of_its_block_and_no_more() {
        let mut cohort = cohort(10, 3, 0);
        assert_eq!(cohort.hand_over(at(1), FAR, false), HandOver::Pass);
        assert_eq!(cohort.fence(), Fence::new(11));
        assert_eq!(cohort.hand_over(at(2), FAR, false), HandOver::Pass);
        assert_eq!(cohort.fence(), Fence::new(12));
        assert_eq!(cohort.hand_over(at(3), FAR, false), HandOver::GiveBack);
    }

    #[test]
    fn goes_on_with_a_reserved_block() {
        let mut cohort = cohort(10, 1, 0);
        assert_eq!(cohort.reserve(5, true), 5);
        assert_eq!(cohort.reserve(5, true), 0, "one reservation at a time");
        assert_eq!(cohort.hand_over(at(1), FAR, true), HandOver::Reserve);
        cohort.reserved();
        cohort.renewed(0, Some(Block { first: Fence::new(90), len: 5 }));
        assert_eq!(cohort.hand_over(at(1), FAR, true), HandOver::Pass);
        assert_eq!(cohort.fence(), Fence::new(90));
    }

    #[test]
    fn blocks_grow_while_they_are_used_up() {
        let mut cohort = cohort(10, 1, 0);
        let mut sizes = Vec::new();
        for turn in 1..=8 {
            let len = cohort.reserve(3, true);
            sizes.push(len);
            cohort.reserved();
            cohort.renewed(0, Some(Block { first: Fence::new(turn * 1_000), len }));
            while cohort.hand_over(at(1), FAR, true) == HandOver::Pass && cohort.left > 0 {}
        }
        assert_eq!(sizes, [3, 6, 12, 24, 48, 64, 64, 64]);
    }

    #[test]
    fn takes_no_fences_twice() {
        let mut cohort = cohort(10, 1, 0);
        let next = Some(Block { first: Fence::new(90), len: 1 });
        cohort.renewed(0, next);
        assert_eq!(cohort.hand_over(at(1), FAR, true), HandOver::Pass);
        assert_eq!(cohort.fence(), Fence::new(90));
        cohort.renewed(0, next);
        assert_eq!(cohort.hand_over(at(2), FAR, true), HandOver::Reserve);
    }

    #[test]
    fn ends_its_turn_when_another_process_waits() {
        let mut cohort = cohort(10, 64, 1);
        assert_eq!(cohort.hand_over(at(1_000), FAR, true), HandOver::Pass);
        assert_eq!(cohort.fence(), Fence::new(11));
        assert_eq!(cohort.hand_over(at(1_001), FAR, true), HandOver::GiveBack);
    }

    #[test]
    fn reserves_nothing_while_another_process_waits() {
        let mut cohort = cohort(10, 1, 1);
        assert_eq!(cohort.reserve(5, true), 0);
        assert_eq!(cohort.hand_over(at(1), FAR, true), HandOver::GiveBack);
    }

    #[test]
    fn never_passes_on_past_the_deadline() {
        let mut cohort = cohort(10, 64, 0);
        assert_eq!(cohort.hand_over(at(5), at(5), true), HandOver::GiveBack);
    }
}
