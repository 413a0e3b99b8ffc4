//! Hand-over inside a process: no network at all, within bounds that keep it fair and fenced. Pure.
//!
//! A grant reserves a block of fences, one for each caller that waits here; each local holder takes the next one and
//! inherits the deadline of the lease. The cohort ends when the block is used up, or when the lease was passed on for
//! over a second while another process waits.

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

/// The fences of one lease and its turn among processes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cohort {
    /// The fence of the present holder.
    fence: Fence,
    /// Fences of the block not yet used.
    left: u32,
    /// When the lease began.
    since: Moment,
    /// Another client waits for the name in the store.
    others_wait: bool,
}

/// How many fences an ask reserves for its caller and those behind it in this process (R13).
pub(super) fn block_for(callers: usize) -> u32 {
    u32::try_from(callers.max(1)).unwrap_or(BLOCK_MAX).min(BLOCK_MAX)
}

impl Cohort {
    pub(super) fn new(block: Block, waiters: u32, now: Moment) -> Self {
        Self { fence: block.first, left: block.len - 1, since: now, others_wait: waiters > 0 }
    }

    pub(super) fn fence(&self) -> Fence {
        self.fence
    }

    /// The store said whether another client waits.
    pub(super) fn others_wait(&mut self, do_wait: bool) {
        self.others_wait = do_wait;
    }

    /// Passes the lease on with the next fence, if it may be passed on at this moment.
    pub(super) fn pass_on(&mut self, now: Moment) -> bool {
        // R10: no hand-over past the end of the block.
        let is_used_up = self.left == 0 && rules::on(Rule::R10);
        let has_had_its_turn = self.others_wait && now.since(self.since) > TURN_MAX;
        if is_used_up || has_had_its_turn {
            return false;
        }
        self.left = self.left.saturating_sub(1);
        self.fence = Fence::new(self.fence.get() + 1);
        true
    }
}
