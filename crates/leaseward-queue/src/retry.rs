//! When a failed job is tried again.

use std::time::Duration;

/// Exponential backoff with full jitter: before attempt *n + 1* a random time up to `first · 2ⁿ⁻¹`, at most `last`.
///
/// Full jitter spreads what failed together; fixed pauses would bring it back together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    last: Duration,
}

impl Backoff {
    /// Up to `first` before the second attempt, doubled for each that follows, up to `last`.
    pub const fn new(first: Duration, last: Duration) -> Self {
        Self { first, last }
    }

    /// How long to wait at most after so many failures.
    pub fn bound(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        self.first.saturating_mul(1 << doublings).min(self.last)
    }

    /// How long to wait, given a random number from 0 to 1.
    pub(crate) fn pause(&self, failures: u32, random: f64) -> Duration {
        self.bound(failures).mul_f64(random.clamp(0.0, 1.0))
    }
}

impl Default for Backoff {
    /// From two seconds to an hour: 25 attempts take about half a day.
    fn default() -> Self {
        Self::new(Duration::from_secs(2), Duration::from_secs(3_600))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_the_last_and_is_jittered_in_full() {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
        let bounds: Vec<_> = [1, 2, 3, 7, 99].map(|n| backoff.bound(n).as_secs()).into();
        assert_eq!(bounds, [1, 2, 4, 60, 60]);
        assert_eq!(backoff.pause(3, 0.0), Duration::ZERO);
        assert_eq!(backoff.pause(3, 0.5), Duration::from_secs(2));
        assert_eq!(backoff.pause(3, 1.0), Duration::from_secs(4));
    }
}
