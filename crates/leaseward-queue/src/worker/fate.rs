//! What becomes of a job, decided from what its handler said: pure.

use std::time::Duration;

use leaseward::Fence;

use crate::{
    Backoff, Ending, Failure, backend::Fate, body::Body, ending::Again, events::EventKind,
    job::micros, worker::MAX_ATTEMPTS_DEFAULT,
};

/// So often the pause after an interruption grows: an outage is over some time, and it was not the job.
const GROWTH_MAX: u32 = 5;

/// How a worker treats jobs that do not say so themselves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    pub(crate) backoff: Backoff,
    pub(crate) max_attempts: u32,
    pub(crate) timeout: Option<Duration>,
    pub(crate) keep: Option<Duration>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            backoff: Backoff::default(),
            max_attempts: MAX_ATTEMPTS_DEFAULT,
            timeout: None,
            keep: None,
        }
    }
}

/// The moment, and a random number from 0 to 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chance {
    pub(crate) now_us: u64,
    pub(crate) random: f64,
}

impl Policy {
    pub(crate) fn ended(&self, body: Body, ending: Ending, chance: Chance) -> (EventKind, Fate) {
        match (ending, self.keep) {
            (Ending::Interrupted, _) => self.interrupted(body, chance),
            (Ending::Snooze(time), _) => {
                (EventKind::Snoozed, Fate::Snoozed { body: body.encode(), after_us: micros(time) })
            }
            (Ending::Cancel, _) => (EventKind::Cancelled, self.cancelled(&body)),
            (Ending::Done | Ending::Result(_), None) => (EventKind::Done, Fate::Done),
            (ending, Some(time)) => {
                let result = match ending {
                    Ending::Result(result) => Some(result.get().as_bytes().to_vec()),
                    _ => None,
                };
                (EventKind::Done, Fate::Kept { body: body.encode(), result, for_us: micros(time) })
            }
        }
    }

    /// The attempt was broken off, and not by the job: it is tried again, and has lost no attempt.
    pub(crate) fn interrupted(&self, mut body: Body, chance: Chance) -> (EventKind, Fate) {
        body.interruptions += 1;
        let pause = self.backoff.pause(body.interruptions.min(GROWTH_MAX), chance.random);
        let fate = Fate::Interrupted { body: body.encode(), after_us: micros(pause) };
        (EventKind::Interrupted, fate)
    }

    pub(crate) fn cancelled(&self, body: &Body) -> Fate {
        Fate::Cancelled { kept: self.keep.map(|time| (body.encode(), micros(time))) }
    }

    /// `alone` if the worker vanished with it: then it is run again only where it can run at once, so that others are not
    /// pulled along if it does so again.
    pub(crate) fn failed(
        &self,
        mut body: Body,
        fence: Fence,
        failure: &Failure,
        alone: bool,
        chance: Chance,
    ) -> (EventKind, Fate) {
        body.failed(chance.now_us, fence, &failure.message);
        let is_last = body.failures >= body.max_attempts.unwrap_or(self.max_attempts);
        if is_last || failure.again == Again::Never {
            return (EventKind::Dead, Fate::Dead { body: body.encode() });
        }
        let pause = match failure.again {
            Again::After(pause) => pause,
            // Most often it was not the job: it has waited long enough for its worker to be taken for dead.
            Again::ByPolicy if alone && body.failures == 1 => Duration::ZERO,
            Again::ByPolicy | Again::Never => self.backoff.pause(body.failures, chance.random),
        };
        (EventKind::Failed, Fate::Retry { body: body.encode(), after_us: micros(pause), alone })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    fn body(max_attempts: Option<u32>) -> Body {
        Body {
            payload: RawValue::from_string("1".into()).expect("json"),
            pushed_us: 1,
            failures: 0,
            interruptions: 0,
            max_attempts,
            timeout_ms: None,
            unique: None,
            trace: None,
            history: Vec::new(),
        }
    }

    const CHANCE: Chance = Chance { now_us: 9, random: 0.5 };

    #[test]
    fn the_jobs_own_number_of_attempts_comes_first() {
        let policy = Policy { max_attempts: 1, ..Policy::default() };
        let failure = Failure::new("no");
        let (kind, fate) = policy.failed(body(Some(2)), Fence::new(3), &failure, false, CHANCE);
        assert_eq!(kind, EventKind::Failed);
        let Fate::Retry { after_us, alone: false, body: kept } = fate else { panic!("{fate:?}") };
        assert_eq!(after_us, 1_000_000, "half of two seconds");
        let again = Body::decode(&kept).expect("its own");
        assert_eq!((again.failures, again.history[0].error.as_str()), (1, "no"));
        let (kind, fate) = policy.failed(again, Fence::new(4), &failure, false, CHANCE);
        assert!(kind == EventKind::Dead && matches!(fate, Fate::Dead { .. }));
        let (kind, _) = policy.failed(body(None), Fence::new(3), &failure, false, CHANCE);
        assert_eq!(kind, EventKind::Dead, "the worker's");
    }

    #[test]
    fn a_failure_says_when_and_whether() {
        let policy = Policy::default();
        let wait = Failure::new("busy").retry_after(Duration::from_secs(7));
        let (_, fate) = policy.failed(body(None), Fence::new(1), &wait, true, CHANCE);
        assert!(matches!(fate, Fate::Retry { after_us: 7_000_000, alone: true, .. }), "{fate:?}");
        let (kind, _) = policy.failed(body(None), Fence::new(1), &wait.fatal(), false, CHANCE);
        assert_eq!(kind, EventKind::Dead);
    }

    #[test]
    fn the_first_time_that_a_worker_vanishes_its_job_waits_no_longer() {
        let (policy, failure) = (Policy::default(), Failure::new("its worker vanished"));
        let (_, fate) = policy.failed(body(None), Fence::new(1), &failure, true, CHANCE);
        let Fate::Retry { after_us: 0, alone: true, body } = fate else { panic!("{fate:?}") };
        let again = Body::decode(&body).expect("its own");
        let (_, fate) = policy.failed(again, Fence::new(2), &failure, true, CHANCE);
        assert!(matches!(fate, Fate::Retry { after_us: 2_000_000, .. }), "{fate:?}");
    }

    #[test]
    fn an_interrupted_job_loses_no_attempt_and_waits_longer_each_time() {
        let policy = Policy { max_attempts: 1, ..Policy::default() };
        let (mut body, mut pauses) = (body(Some(1)), Vec::new());
        for _ in 0..7 {
            let (kind, fate) = policy.ended(body, Ending::Interrupted, CHANCE);
            assert_eq!(kind, EventKind::Interrupted);
            let Fate::Interrupted { body: kept, after_us } = fate else { panic!("{fate:?}") };
            body = Body::decode(&kept).expect("its own");
            pauses.push(after_us / 1_000_000);
        }
        assert_eq!((body.failures, body.interruptions), (0, 7));
        assert_eq!(pauses, [1, 2, 4, 8, 16, 16, 16], "half of the longest");
    }

    #[test]
    fn only_what_is_kept_is_written() {
        let (kind, fate) = Policy::default().ended(body(None), Ending::Done, CHANCE);
        assert!(kind == EventKind::Done && matches!(fate, Fate::Done));
        let keeps = Policy { keep: Some(Duration::from_secs(1)), ..Policy::default() };
        let ending = Ending::result(&7).unwrap_or_default();
        let (_, fate) = keeps.ended(body(None), ending, CHANCE);
        assert!(
            matches!(fate, Fate::Kept { result: Some(result), for_us: 1_000_000, .. } if result == b"7")
        );
    }
}
