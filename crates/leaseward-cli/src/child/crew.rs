//! The commands of a worker of a queue: many at once, with one watchdog for all of them.

use std::{ffi::OsString, fs::File, io};

use leaseward::clock::Moment;
use rustix::process::{Pid, WaitOptions, getpid, set_child_subreaper, waitpgid, waitpid};
use tokio::process::{Child, Command};

use super::{
    Grace,
    group::Group,
    launcher,
    leash::{LeaseId, Word},
    sentence::Sentence,
    watchdog::Watchdog,
};

/// One command that runs.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) child: Child,
    pub(crate) group: Group,
}

/// Starts commands, and sees to it that none of them outlives its lease, also when this process is killed or frozen.
#[derive(Debug)]
pub(crate) struct Crew {
    grace: Grace,
    watchdog: Option<Watchdog>,
    /// The deadlines that the watchdog was told: of the leases of groups, and of the last one to be kept.
    leases: Vec<(LeaseId, Moment)>,
    groups: Vec<(LeaseId, Group)>,
    /// Groups that a watchdog sent a signal to which has itself ended since.
    acted: Vec<Group>,
}

impl Crew {
    pub(crate) fn new(grace: Grace) -> Self {
        // Orphans of commands become children of this process, so that it can tell when the last is gone, also where
        // process 1 reaps nobody.
        let _ = set_child_subreaper(Some(getpid()));
        Self { grace, watchdog: None, leases: Vec::new(), groups: Vec::new(), acted: Vec::new() }
    }

    /// Starts a command under a lease, to be over by its deadline, which [`Crew::keep`] moves.
    pub(crate) fn start(
        &mut self,
        command: &[OsString],
        lease: LeaseId,
        deadline: Moment,
        set_up: impl FnOnce(&mut std::process::Command),
    ) -> io::Result<Member> {
        self.keep(lease, deadline)?;
        let until = Sentence::new(deadline, self.grace).kill_at();
        let pipe: &File = match &self.watchdog {
            Some(watchdog) => watchdog.pipe(),
            None => return Err(io::Error::other("there is no watchdog")),
        };
        let mut launcher = launcher::prepared(command, pipe, lease, until, false);
        set_up(&mut launcher);
        let mut launcher = Command::from(launcher);
        let child = launcher::with_pipe(pipe, || launcher.spawn())?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("a process without a number"))?;
        let group = Group::of(pid);
        self.groups.push((lease, group));
        Ok(Member { child, group })
    }

    /// Passes the deadline of a lease on to the watchdog, which is started if there is none, or none any more.
    pub(crate) fn keep(&mut self, lease: LeaseId, deadline: Moment) -> io::Result<()> {
        let groups = &self.groups;
        self.leases
            .retain(|(known, _)| *known == lease || groups.iter().any(|(under, _)| under == known));
        let is_news = match self.leases.iter_mut().find(|(known, _)| *known == lease) {
            Some((_, told)) => std::mem::replace(told, deadline) != deadline,
            None => {
                self.leases.push((lease, deadline));
                true
            }
        };
        if let Some(dead) = self.watchdog.take_if(|watchdog| has_ended(watchdog.pid())) {
            self.bury(dead);
        }
        match &mut self.watchdog {
            Some(watchdog) if is_news => watchdog.tell(Word::Deadline(lease, deadline)),
            Some(_) => {}
            none => {
                let mut watchdog = Watchdog::start(lease, deadline, self.grace)?;
                for (lease, deadline) in &self.leases {
                    watchdog.tell(Word::Deadline(*lease, *deadline));
                }
                for (lease, group) in &self.groups {
                    watchdog.tell(Word::Group(*lease, group.id()));
                }
                *none = Some(watchdog);
            }
        }
        Ok(())
    }

    /// Keeps what a watchdog that has ended had said.
    fn bury(&mut self, mut dead: Watchdog) {
        let acted =
            self.groups.iter().map(|(_, group)| *group).filter(|group| dead.has_acted(*group));
        self.acted.extend(acted);
    }

    /// Whether a command that was found to have ended was made to end by the watchdog, because its lease was about to end.
    pub(crate) fn was_made_to_end(&mut self, group: Group) -> bool {
        self.acted.contains(&group)
            || self.watchdog.as_mut().is_some_and(|watchdog| watchdog.has_acted(group))
    }

    /// Nothing is left of a command.
    pub(crate) fn left(&mut self, group: Group) {
        self.groups.retain(|(_, other)| *other != group);
        self.acted.retain(|other| *other != group);
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.tell(Word::Left(group.id()));
            watchdog.forget(group);
        }
    }

    /// Says goodbye to the watchdog; whether it has gone.
    pub(crate) fn dismiss(&mut self) -> bool {
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.tell(Word::Done);
        }
        self.watchdog.take_if(|watchdog| has_ended(watchdog.pid()));
        self.watchdog.is_none()
    }
}

/// Whether a child has ended, which is reaped then.
fn has_ended(pid: Pid) -> bool {
    !matches!(waitpid(Some(pid), WaitOptions::NOHANG), Ok(None))
}

/// Reaps what a command left behind, and has ended.
pub(crate) fn reap(group: Group) {
    while let Ok(Some(_)) = waitpgid(group.id(), WaitOptions::NOHANG) {}
}
