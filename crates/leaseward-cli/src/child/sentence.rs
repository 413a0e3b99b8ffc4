//! When a command is asked to end, and when it is made to: pure arithmetic over the lease's deadline.

use std::time::Duration;

use leaseward::clock::Moment;

/// The most time a command gets between SIGTERM and SIGKILL unless told otherwise.
const DEFAULT_MAX: Duration = Duration::from_secs(10);

/// SIGKILL comes half the grace before the deadline, within these bounds: a killed process still has to be scheduled
/// once to die.
const KILL_LEAD_MIN: Duration = Duration::from_millis(5);
const KILL_LEAD_MAX: Duration = Duration::from_millis(250);

/// How long a command has between SIGTERM and the end of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grace(Duration);

impl Grace {
    /// A quarter of the TTL, at most ten seconds.
    pub(crate) fn default_for(ttl: Duration) -> Self {
        Self((ttl / 4).min(DEFAULT_MAX))
    }

    /// A grace that was asked for: at most half the TTL.
    ///
    /// Renewals happen at a third of the TTL; with more than half of it as grace the command would be asked to end
    /// before a single slow renewal could come back.
    pub(crate) fn chosen(grace: Duration, ttl: Duration) -> Option<Self> {
        (grace <= ttl / 2).then_some(Self(grace))
    }

    /// A grace read back from a hidden argument.
    pub(crate) const fn from_nanos(nanos: u64) -> Self {
        Self(Duration::from_nanos(nanos))
    }

    pub(crate) const fn get(self) -> Duration {
        self.0
    }

    /// How long a lease has to last for a command to be started under it: with less it would be asked to end the moment it
    /// starts.
    pub(crate) fn worth_starting(self) -> Duration {
        self.0 + self.0 / 2
    }

    fn kill_lead(self) -> Duration {
        (self.0 / 2).clamp(KILL_LEAD_MIN, KILL_LEAD_MAX)
    }
}

/// What is due now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing before this moment.
    Nothing(Moment),
    /// SIGTERM.
    Term,
    /// SIGKILL.
    Kill,
}

/// The times that hang over one command; each renewal of its lease moves them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sentence {
    grace: Grace,
    deadline: Moment,
    asked: Option<Moment>,
}

impl Sentence {
    pub(super) fn new(deadline: Moment, grace: Grace) -> Self {
        Self { grace, deadline, asked: None }
    }

    /// The lease now lasts until then.
    pub(super) fn extend(&mut self, deadline: Moment) {
        self.deadline = deadline;
    }

    /// SIGTERM was sent. From here on a renewal gives no more time than the grace.
    pub(super) fn asked(&mut self, at: Moment) {
        self.asked.get_or_insert(at);
    }

    /// Whether SIGTERM was sent.
    pub(super) fn is_asked(&self) -> bool {
        self.asked.is_some()
    }

    pub(super) fn deadline(&self) -> Moment {
        self.deadline
    }

    /// The last moment at which the command may still run.
    pub(super) fn kill_at(&self) -> Moment {
        let by_lease = self.deadline.before(self.grace.kill_lead());
        match self.asked {
            Some(asked) => by_lease.min(asked + self.grace.get()),
            None => by_lease,
        }
    }

    /// What is due, with SIGTERM later by `slack`: the watchdog leaves the wrapper the first word.
    pub(super) fn due(&self, now: Moment, slack: Duration) -> Due {
        let kill_at = self.kill_at();
        if now >= kill_at {
            return Due::Kill;
        }
        if self.is_asked() {
            return Due::Nothing(kill_at);
        }
        let term_at = (self.deadline.before(self.grace.get()) + slack).min(kill_at);
        if now >= term_at { Due::Term } else { Due::Nothing(term_at) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Grace = Grace(Duration::from_millis(400));

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn term_comes_a_grace_before_the_deadline_and_kill_before_it() {
        let mut sentence = Sentence::new(at(1_000), GRACE);
        assert_eq!(sentence.due(at(599), Duration::ZERO), Due::Nothing(at(600)));
        assert_eq!(sentence.due(at(600), Duration::ZERO), Due::Term);
        sentence.asked(at(600));
        assert_eq!(sentence.due(at(601), Duration::ZERO), Due::Nothing(at(800)));
        assert_eq!(sentence.due(at(800), Duration::ZERO), Due::Kill);
    }

    #[test]
    fn a_renewal_moves_both_until_term_was_sent() {
        let mut sentence = Sentence::new(at(1_000), GRACE);
        sentence.extend(at(2_000));
        assert_eq!(sentence.due(at(1_000), Duration::ZERO), Due::Nothing(at(1_600)));
        sentence.asked(at(1_600));
        sentence.extend(at(9_000));
        assert_eq!(sentence.kill_at(), at(2_000), "asked to end, it gets the grace and no more");
    }

    #[test]
    fn the_watchdog_waits_a_little_longer_but_kills_at_the_same_moment() {
        let sentence = Sentence::new(at(1_000), GRACE);
        let slack = Duration::from_millis(50);
        assert_eq!(sentence.due(at(600), slack), Due::Nothing(at(650)));
        assert_eq!(sentence.due(at(650), slack), Due::Term);
        assert_eq!(sentence.due(at(800), slack), Due::Kill);
    }

    #[test]
    fn without_a_grace_it_is_killed_and_still_before_the_deadline() {
        let sentence = Sentence::new(at(1_000), Grace(Duration::ZERO));
        assert_eq!(sentence.due(at(994), Duration::ZERO), Due::Nothing(at(995)));
        assert_eq!(sentence.due(at(995), Duration::ZERO), Due::Kill);
    }

    #[test]
    fn a_deadline_already_past_kills_at_once() {
        assert_eq!(Sentence::new(at(5), GRACE).due(at(6), Duration::ZERO), Due::Kill);
    }

    #[test]
    fn the_default_is_a_quarter_up_to_ten_seconds_and_never_more_than_half() {
        let secs = Duration::from_secs;
        assert_eq!(Grace::default_for(secs(30)).get(), Duration::from_millis(7_500));
        assert_eq!(Grace::default_for(secs(3_600)).get(), secs(10));
        assert_eq!(Grace::chosen(secs(16), secs(30)), None);
        assert_eq!(Grace::chosen(secs(15), secs(30)), Some(Grace(secs(15))));
        assert!(Grace::chosen(Duration::ZERO, secs(30)).is_some());
    }
}
