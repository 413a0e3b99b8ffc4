//! Full-jitter backoff. Pure: the random number is given.

use std::time::Duration;

/// How long to wait before try number `attempt` (from 0): anywhere between nothing and an exponentially growing cap.
///
/// Full jitter spreads rivals best, see "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015).
pub(crate) fn full_jitter(base: Duration, cap: Duration, attempt: u32, random: f64) -> Duration {
    let grown = base.saturating_mul(1_u32.checked_shl(attempt.min(20)).unwrap_or(u32::MAX));
    grown.min(cap).mul_f64(random.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_up_to_the_cap() {
        let (base, cap) = (Duration::from_millis(10), Duration::from_millis(500));
        assert_eq!(full_jitter(base, cap, 0, 1.0), base);
        assert_eq!(full_jitter(base, cap, 3, 1.0), base * 8);
        assert_eq!(full_jitter(base, cap, 30, 1.0), cap);
        assert_eq!(full_jitter(base, cap, 30, 0.0), Duration::ZERO);
    }
}
