//! Fences: numbers that let the protected resource refuse a late writer.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::rules::{self, Rule};

/// A number that grows with every acquisition of a name.
///
/// The protected resource remembers the highest fence it has seen and refuses a smaller one, so a holder that was
/// paused past its deadline cannot overwrite what its successor wrote. Fences are on one scale in every store,
/// microseconds since the epoch (`max(last + 1, clock)`), and stay below 2⁵³ until the year 2255. Not a secret.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Fence(u64);

impl Fence {
    /// Below every fence ever given out.
    pub const ZERO: Self = Self(0);

    /// A fence read back from where it was kept.
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// The number itself.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A run of fences reserved by one grant: the first for whoever asked, the rest for waiters in the same process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The first fence of the run.
    pub first: Fence,
    /// How many there are, at least one.
    pub len: u32,
}

impl Block {
    /// The next block on the one scale: above `last`, and not below the store's clock.
    ///
    /// The store records [`Block::last`] as its newest fence. Recording the *end* is what keeps blocks of different
    /// sizes apart (rule R9).
    pub fn after(last: Fence, clock_us: u64, len: u32) -> Self {
        Self { first: Fence(clock_us.max(last.0 + 1)), len: len.max(1) }
    }

    /// The last fence of the run.
    pub fn last(self) -> Fence {
        let len = if rules::on(Rule::R9) { self.len } else { 1 };
        Fence(self.first.0 + u64::from(len) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_different_sizes_never_meet() {
        let big = Block::after(Fence(5), 3, 64);
        assert_eq!((big.first, big.last()), (Fence(6), Fence(69)));
        let small = Block::after(big.last(), 7, 1);
        assert_eq!((small.first, small.last()), (Fence(70), Fence(70)));
    }

    #[test]
    fn the_clock_is_a_floor() {
        assert_eq!(Block::after(Fence(5), 1_000, 1).first, Fence(1_000));
    }
}
