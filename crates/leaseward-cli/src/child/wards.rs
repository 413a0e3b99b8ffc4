//! The process groups that a watchdog looks after, each under a lease and with a sentence of its own: pure.
//!
//! Groups of one lease share its deadline. Everything else belongs to the group: that one command was asked to end says
//! nothing about a command that was started later, and the deadline of one lease moves no command of another.

use std::time::Duration;

use leaseward::clock::Moment;
use rustix::process::Pid;

use super::{
    group::Group,
    leash::LeaseId,
    sentence::{Due, Grace, Sentence},
};

/// A group that is due, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Term(Group),
    Kill(Group),
}

#[derive(Debug)]
struct Ward {
    group: Group,
    lease: LeaseId,
    sentence: Sentence,
}

#[derive(Debug)]
pub(super) struct Wards {
    grace: Grace,
    /// How much later than the grace SIGTERM comes.
    slack: Duration,
    /// The deadlines of leases, as far as they lie ahead.
    leases: Vec<(LeaseId, Moment)>,
    groups: Vec<Ward>,
}

impl Wards {
    pub(super) fn new(grace: Grace, slack: Duration) -> Self {
        Self { grace, slack, leases: Vec::new(), groups: Vec::new() }
    }

    /// A lease lasts until then.
    pub(super) fn extend(&mut self, lease: LeaseId, deadline: Moment) {
        match self.leases.iter_mut().find(|(known, _)| *known == lease) {
            Some((_, last)) => *last = deadline,
            None => self.leases.push((lease, deadline)),
        }
        for ward in self.groups.iter_mut().filter(|ward| ward.lease == lease) {
            ward.sentence.extend(deadline);
        }
    }

    /// A group runs under a lease. Under one whose deadline is not known, or has passed, it is killed at once.
    pub(super) fn add(&mut self, lease: LeaseId, leader: Pid) {
        let known = self.leases.iter().find(|(known, _)| *known == lease);
        let deadline = known.map_or(Moment::from_nanos(0), |(_, deadline)| *deadline);
        let sentence = Sentence::new(deadline, self.grace);
        self.groups.push(Ward { group: Group::of(leader), lease, sentence });
    }

    /// Nothing is left of a group.
    pub(super) fn left(&mut self, leader: Pid) {
        self.groups.retain(|ward| ward.group.id() != leader);
    }

    /// Forgets groups that have no members left.
    pub(super) fn forget_empty(&mut self) {
        self.groups.retain(|ward| !ward.group.is_empty());
    }

    /// SIGTERM was sent to every group that had not got it; answers to which.
    pub(super) fn asked(&mut self, at: Moment) -> Vec<Group> {
        let spared = self.groups.iter_mut().filter(|ward| !ward.sentence.is_asked());
        spared
            .map(|ward| {
                ward.sentence.asked(at);
                ward.group
            })
            .collect()
    }

    /// When something will be due.
    pub(super) fn next(&self, now: Moment) -> Option<Moment> {
        let next = |ward: &Ward| match ward.sentence.due(now, self.slack) {
            Due::Nothing(at) => at,
            Due::Term | Due::Kill => now,
        };
        self.groups.iter().map(next).min()
    }

    /// The acts that are due now. A group that is to be killed is forgotten.
    pub(super) fn due(&mut self, now: Moment) -> Vec<Act> {
        self.leases.retain(|(_, deadline)| *deadline > now);
        let (mut acts, slack) = (Vec::new(), self.slack);
        self.groups.retain_mut(|ward| match ward.sentence.due(now, slack) {
            Due::Nothing(_) => true,
            Due::Term => {
                ward.sentence.asked(now);
                acts.push(Act::Term(ward.group));
                true
            }
            Due::Kill => {
                acts.push(Act::Kill(ward.group));
                false
            }
        });
        acts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: LeaseId = 7;
    const NEW: LeaseId = 8;

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    fn group(number: i32) -> Group {
        Group::of(pid(number))
    }

    fn pid(number: i32) -> Pid {
        Pid::from_raw(number).expect("not zero")
    }

    /// A grace of 400 ms, so that SIGKILL comes 200 ms before the deadline.
    fn wards() -> Wards {
        Wards::new(Grace::from_nanos(400_000_000), Duration::ZERO)
    }

    #[test]
    fn a_group_that_was_never_asked_gets_the_time_of_a_later_deadline() {
        let mut wards = wards();
        wards.extend(OLD, at(1_000));
        wards.add(OLD, pid(1));
        assert_eq!(wards.due(at(600)), [Act::Term(group(1))]);
        wards.add(OLD, pid(2));
        wards.extend(OLD, at(3_000));
        assert_eq!(wards.due(at(900)), [], "the first has its grace, the second its lease");
        assert_eq!(wards.next(at(900)), Some(at(1_000)));
        assert_eq!(wards.due(at(1_000)), [Act::Kill(group(1))]);
        assert_eq!(wards.next(at(1_000)), Some(at(2_600)));
        assert_eq!(wards.due(at(2_600)), [Act::Term(group(2))]);
    }

    #[test]
    fn a_group_that_starts_after_another_was_asked_is_not_condemned() {
        let mut wards = wards();
        wards.extend(OLD, at(1_000));
        wards.add(OLD, pid(1));
        assert_eq!(wards.due(at(600)), [Act::Term(group(1))]);
        wards.left(pid(1));
        wards.extend(OLD, at(9_000));
        wards.add(OLD, pid(2));
        assert_eq!(wards.due(at(5_000)), []);
        assert_eq!(wards.next(at(5_000)), Some(at(8_600)));
    }

    #[test]
    fn a_group_is_ended_with_its_own_lease_whatever_becomes_of_another() {
        let mut wards = wards();
        wards.extend(OLD, at(1_000));
        wards.add(OLD, pid(1));
        wards.extend(NEW, at(9_000));
        wards.add(NEW, pid(2));
        assert_eq!(wards.due(at(700)), [Act::Term(group(1))]);
        assert_eq!(wards.due(at(800)), [Act::Kill(group(1))]);
        assert_eq!(wards.due(at(1_500)), []);
        // Its launcher was held up.
        wards.add(OLD, pid(3));
        assert_eq!(wards.due(at(1_501)), [Act::Kill(group(3))]);
        assert_eq!(wards.next(at(1_501)), Some(at(8_600)));
    }

    #[test]
    fn a_group_under_an_unknown_lease_is_killed() {
        let mut wards = wards();
        wards.add(NEW, pid(1));
        assert_eq!(wards.next(at(5)), Some(at(5)));
        assert_eq!(wards.due(at(5)), [Act::Kill(group(1))]);
        assert_eq!(wards.next(at(5)), None, "it is forgotten");
    }

    #[test]
    fn nobody_is_asked_twice() {
        let mut wards = wards();
        wards.extend(OLD, at(1_000));
        wards.add(OLD, pid(1));
        assert_eq!(wards.asked(at(100)), [group(1)]);
        wards.add(OLD, pid(2));
        assert_eq!(wards.asked(at(200)), [group(2)]);
        assert_eq!(wards.due(at(499)), []);
        assert_eq!(wards.due(at(500)), [Act::Kill(group(1))]);
    }
}
