//! Randomness by seed: splitmix64, the same with every version of every crate.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;

#[derive(Clone, Debug)]
pub(crate) struct Dice(Arc<Mutex<u64>>);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(seed)))
    }

    /// Dice of its own for a part of the story, so that what one part does leaves the others as they are.
    pub(crate) fn split(&self) -> Self {
        Self::new(self.roll())
    }

    pub(crate) fn roll(&self) -> u64 {
        let mut state = self.0.lock();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = *state;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub(crate) fn below(&self, end: u64) -> u64 {
        self.roll() % end.max(1)
    }

    pub(crate) fn chance(&self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<T: Copy>(&self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).expect("below a length")]
    }

    pub(crate) fn ms(&self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from))
    }
}
