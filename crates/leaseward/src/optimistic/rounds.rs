//! Try after try, until one succeeds or none is left.

use std::time::{Duration, Instant};

use super::{Failure, GaveUp, HotLock, Retry, Why};
use crate::engine::backoff::full_jitter;

/// How a try ended that did not succeed. Every [`Failure`] and what becomes one is [`Ended::Failed`] with `?`.
#[derive(Debug)]
pub enum Ended {
    /// Nothing changed.
    Failed(Failure),
    /// The connection was lost, or there was none, before the commit was sent: nothing changed.
    Lost(Failure),
    /// The commit was sent and no answer came.
    Ambiguous(Failure),
}

impl<E: Into<Failure>> From<E> for Ended {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Whether an ambiguous commit may be tried again: only if a second one would be seen to be one. Whoever can do that can also
/// make new connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ambiguity {
    /// It ends all tries: [`Why::Ambiguous`].
    Ends,
    /// It is tried again: there is an idempotency key.
    IsTriedAgain,
}

/// The state of a run of tries. Decides; whoever runs it waits and takes the lock.
#[derive(Debug)]
pub(super) struct Rounds<'a> {
    retry: &'a Retry,
    ambiguity: Ambiguity,
    begin: Instant,
    tries: u32,
    conflicts: u32,
    /// A commit was sent to which no answer came.
    in_doubt: bool,
}

impl<'a> Rounds<'a> {
    pub(super) fn new(retry: &'a Retry, ambiguity: Ambiguity) -> Self {
        Self { retry, ambiguity, begin: Instant::now(), tries: 0, conflicts: 0, in_doubt: false }
    }

    /// The number of the try that begins now.
    pub(super) fn begin_try(&mut self) -> u32 {
        metrics::counter!("leaseward_optimistic_tries_total").increment(1);
        self.tries += 1;
        self.tries
    }

    /// The lock for the next try, if it is time for it.
    pub(super) fn hot_lock(&self) -> Option<&'a HotLock> {
        let hot = self.retry.hot.as_ref()?;
        (self.conflicts >= hot.after).then_some(&hot.lock)
    }

    /// How much time is left.
    pub(super) fn left(&self) -> Duration {
        self.retry.budget.saturating_sub(self.begin.elapsed())
    }

    /// How long to wait for the next try, or why there is none. A stale fence is a conflict under our own lock: the lease
    /// was lost, and is taken anew.
    pub(super) fn after(&mut self, ended: Ended, is_ours: bool) -> Result<Duration, GaveUp> {
        let (failure, again) = match ended {
            Ended::Failed(failure) => {
                let lost = is_ours && matches!(failure, Failure::Stale(_));
                let again = failure.is_conflict() || lost;
                (failure, again.then_some(()).ok_or(Why::Final))
            }
            Ended::Lost(failure) => (failure, self.if_keyed()),
            Ended::Ambiguous(failure) => {
                self.in_doubt = true;
                (failure, self.if_keyed())
            }
        };
        if again.is_ok() {
            metrics::counter!("leaseward_optimistic_conflicts_total").increment(1);
        }
        self.conflicts += 1;
        let why = match again {
            Err(why) => why,
            Ok(()) if self.tries >= self.retry.attempts => Why::Attempts,
            Ok(()) => {
                let Retry { base, cap, .. } = *self.retry;
                // Under the lock there is a queue already; waiting would only keep those behind.
                let bound = if self.hot_lock().is_some() { Duration::ZERO } else { cap };
                let wait = full_jitter(base.min(bound), bound, self.tries - 1, rand::random());
                if wait < self.left() {
                    return Ok(wait);
                }
                Why::Budget
            }
        };
        Err(self.give_up(why, failure))
    }

    fn if_keyed(&self) -> Result<(), Why> {
        match self.ambiguity {
            Ambiguity::Ends => Err(Why::Final),
            Ambiguity::IsTriedAgain => Ok(()),
        }
    }

    pub(super) fn give_up(&self, why: Why, last: Failure) -> GaveUp {
        let why = if self.in_doubt { Why::Ambiguous } else { why };
        metrics::counter!("leaseward_optimistic_gave_up_total").increment(1);
        GaveUp { why, tries: self.tries, last }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Fence,
        fenced::StaleFence,
        optimistic::{Conflict, Version},
    };

    fn changed() -> Ended {
        Conflict::Changed { current: Version::new(2) }.into()
    }

    fn tried<'a>(retry: &'a Retry, ambiguity: Ambiguity) -> Rounds<'a> {
        let mut rounds = Rounds::new(retry, ambiguity);
        rounds.begin_try();
        rounds
    }

    #[test]
    fn conflicts_are_tried_again_as_often_as_allowed() {
        let retry = Retry::new().attempts(3);
        let mut rounds = Rounds::new(&retry, Ambiguity::Ends);
        for number in 1..=2 {
            assert_eq!(rounds.begin_try(), number);
            let bound = retry.base * 2_u32.pow(number - 1);
            assert!(rounds.after(changed(), false).expect("another") <= bound);
        }
        rounds.begin_try();
        let gave_up = rounds.after(changed(), false).expect_err("the last one");
        assert_eq!((gave_up.why(), gave_up.tries()), (Why::Attempts, 3));
    }

    #[test]
    fn time_runs_out() {
        let retry = Retry::new().budget(Duration::ZERO);
        let gave_up = tried(&retry, Ambiguity::Ends).after(changed(), false).expect_err("no time");
        assert_eq!(gave_up.why(), Why::Budget);
    }

    #[test]
    fn what_another_try_cannot_mend_ends_it() {
        let retry = Retry::new();
        let other = || Ended::Failed(Failure::other("no money"));
        let gave_up = tried(&retry, Ambiguity::Ends).after(other(), false).expect_err("final");
        assert_eq!((gave_up.why(), gave_up.tries()), (Why::Final, 1));
        let stale = || Ended::from(StaleFence { given: Fence::ZERO, seen: Fence::new(1) });
        let gave_up = tried(&retry, Ambiguity::Ends).after(stale(), false).expect_err("final");
        assert_eq!(gave_up.why(), Why::Final);
        assert!(tried(&retry, Ambiguity::Ends).after(stale(), true).is_ok(), "our own lock");
    }

    #[test]
    fn an_ambiguous_commit_is_tried_again_only_with_a_key() {
        let retry = Retry::new();
        let lost = || Ended::Ambiguous(Failure::other("connection closed"));
        let gave_up = tried(&retry, Ambiguity::Ends).after(lost(), false).expect_err("no key");
        assert_eq!(gave_up.why(), Why::Ambiguous);
        let mut keyed = tried(&retry, Ambiguity::IsTriedAgain);
        assert!(keyed.after(lost(), false).is_ok());
        let final_one = Ended::Failed(Failure::other("no money"));
        let gave_up = keyed.after(final_one, false).expect_err("final");
        assert_eq!(gave_up.why(), Why::Ambiguous, "nobody knows what became of the first");
    }

    #[test]
    fn a_connection_lost_before_the_commit_leaves_no_doubt() {
        let retry = Retry::new();
        let lost = || Ended::Lost(Failure::other("connection closed"));
        let gave_up = tried(&retry, Ambiguity::Ends).after(lost(), false).expect_err("no other");
        assert_eq!(gave_up.why(), Why::Final);
        assert!(tried(&retry, Ambiguity::IsTriedAgain).after(lost(), false).is_ok());
    }
}
