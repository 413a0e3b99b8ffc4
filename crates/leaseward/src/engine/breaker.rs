//! The circuit breaker: when a store keeps failing, new asks fail at once with the reason. Pure.
//!
//! Renewals are always tried, whatever the breaker says; one that succeeds closes it.

use std::time::Duration;

use super::backoff;
use crate::{Error, ErrorKind, clock::Moment};

/// Failures in a row that open it.
const TRIP_AFTER: u32 = 5;
/// Fewer do, if they have gone on for this long: a store that says nothing takes seconds for each.
const TRIP_LASTING: Duration = Duration::from_secs(1);
/// The first pause, doubled with each failed probe.
const PAUSE: Duration = Duration::from_millis(500);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Whether the store is worth asking.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    failures: u32,
    /// When the first of them was.
    failing_since: Option<Moment>,
    state: State,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Closed,
    /// Refusing until a moment, because of this.
    Open { until: Moment, probes: u32, why: Error },
    /// One probe is under way.
    HalfOpen { probes: u32, why: Error },
}

/// What a result did to the breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    None,
    Opened,
    Closed,
}

impl Breaker {
    /// Whether an ask may go out now; lets one through as a probe when the pause is over.
    pub(crate) fn admit(&mut self, now: Moment) -> Result<(), Error> {
        match std::mem::take(&mut self.state) {
            State::Closed => Ok(()),
            State::Open { until, probes, why } if now >= until => {
                self.state = State::HalfOpen { probes, why };
                Ok(())
            }
            State::Open { until, probes, why } => {
                let refusal = refuse(&why, until.since(now));
                self.state = State::Open { until, probes, why };
                Err(refusal)
            }
            State::HalfOpen { probes, why } => {
                let refusal = refuse(&why, Duration::ZERO);
                self.state = State::HalfOpen { probes, why };
                Err(refusal)
            }
        }
    }

    /// Whether asks are refused at present.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.state, State::Closed)
    }

    /// The store answered.
    pub(crate) fn succeeded(&mut self) -> Change {
        (self.failures, self.failing_since) = (0, None);
        match std::mem::take(&mut self.state) {
            State::Closed => Change::None,
            State::Open { .. } | State::HalfOpen { .. } => Change::Closed,
        }
    }

    /// The store did not answer; `random` is between 0 and 1.
    pub(crate) fn failed(&mut self, why: &Error, now: Moment, random: f64) -> Change {
        self.failures = self.failures.saturating_add(1);
        let since = *self.failing_since.get_or_insert(now);
        let trips = self.failures >= TRIP_AFTER || now.since(since) >= TRIP_LASTING;
        let probes = match &self.state {
            State::Closed if !trips => return Change::None,
            State::Closed => 0,
            State::Open { .. } => return Change::None,
            State::HalfOpen { probes, .. } => probes + 1,
        };
        // Half of the pause is certain, so that a dead store is not asked at once by chance.
        let pause = PAUSE / 2 + backoff::full_jitter(PAUSE / 2, PAUSE_MAX, probes, random);
        self.state = State::Open { until: now + pause, probes, why: why.duplicate() };
        if probes == 0 { Change::Opened } else { Change::None }
    }
}

fn refuse(why: &Error, left: Duration) -> Error {
    Error::new(ErrorKind::Unavailable, format!("the store is not being asked: {}", why.message()))
        .hint(format!("it failed repeatedly and is tried again in {:.1}s", left.as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    fn down() -> Error {
        Error::new(ErrorKind::Unavailable, "connection refused")
    }

    fn tripped() -> Breaker {
        let mut breaker = Breaker::default();
        for _ in 1..TRIP_AFTER {
            assert_eq!(breaker.failed(&down(), at(0), 1.0), Change::None);
            assert!(breaker.admit(at(0)).is_ok());
        }
        assert_eq!(breaker.failed(&down(), at(0), 1.0), Change::Opened);
        breaker
    }

    #[test]
    fn opens_after_failures_in_a_row_and_says_why() {
        let error = tripped().admit(at(1)).expect_err("open");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.message().contains("connection refused"));
    }

    #[test]
    fn opens_when_failures_go_on_for_long() {
        let mut breaker = Breaker::default();
        assert_eq!(breaker.failed(&down(), at(0), 1.0), Change::None);
        assert_eq!(breaker.failed(&down(), at(999), 1.0), Change::None);
        assert_eq!(breaker.failed(&down(), at(1_000), 1.0), Change::Opened);
        breaker.succeeded();
        assert_eq!(breaker.failed(&down(), at(9_000), 1.0), Change::None, "a new count");
    }

    #[test]
    fn lets_one_probe_through() {
        let mut breaker = tripped();
        assert!(breaker.admit(at(600)).is_ok());
        assert!(breaker.admit(at(600)).is_err(), "only one");
        assert_eq!(breaker.succeeded(), Change::Closed);
        assert!(breaker.admit(at(600)).is_ok());
    }

    #[test]
    fn a_failed_probe_pauses_longer() {
        let mut breaker = tripped();
        assert!(breaker.admit(at(600)).is_ok());
        breaker.failed(&down(), at(600), 1.0);
        assert!(breaker.admit(at(600 + 700)).is_err());
        assert!(breaker.admit(at(600 + 751)).is_ok());
    }

    #[test]
    fn a_success_in_between_starts_the_count_anew() {
        let mut breaker = Breaker::default();
        for _ in 0..3 * TRIP_AFTER {
            breaker.failed(&down(), at(0), 1.0);
            breaker.succeeded();
        }
        assert!(!breaker.is_open());
    }
}
