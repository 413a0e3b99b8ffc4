//! The commands of a worker of a queue: many at once under one session, with one watchdog for all of them.

use std::{ffi::OsString, fs::File, io};

use leaseward::clock::Moment;
use rustix::process::{Pid, WaitOptions, getpid, set_child_subreaper, waitpgid, waitpid};
use tokio::process::{Child, Command};

use super::{Grace, group::Group, launcher, leash::Word, sentence::Sentence, watchdog::Watchdog};

/// One command that runs.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) child: Child,
    pub(crate) group: Group,
    /// Under which watchdog it was started.
    watch: u64,
}

/// Starts commands, and sees to it that none of them outlives the session, also when this process is killed or frozen.
#[derive(Debug)]
pub(crate) struct Crew {
    grace: Grace,
    watchdog: Option<Watchdog>,
    /// How many watchdogs there have been.
    watch: u64,
    deadline: Moment,
    groups: Vec<Group>,
    /// Watchdogs that were told goodbye.
    dismissed: Vec<Pid>,
}

impl Crew {
    pub(crate) fn new(grace: Grace) -> Self {
        // Orphans of commands become children of this process, so that it can tell when the last is gone, also where
        // process 1 reaps nobody.
        let _ = set_child_subreaper(Some(getpid()));
        Self {
            grace,
            watchdog: None,
            watch: 0,
            deadline: Moment::from_nanos(0),
            groups: Vec::new(),
            dismissed: Vec::new(),
        }
    }

    /// Starts a command that is to be over by a deadline, which [`Crew::keep`] moves.
    pub(crate) fn start(
        &mut self,
        command: &[OsString],
        deadline: Moment,
        set_up: impl FnOnce(&mut std::process::Command),
    ) -> io::Result<Member> {
        self.keep(deadline)?;
        let until = Sentence::new(deadline, self.grace).kill_at();
        let pipe: &File = match &self.watchdog {
            Some(watchdog) => watchdog.pipe(),
            None => return Err(io::Error::other("there is no watchdog")),
        };
        let mut launcher = launcher::prepared(command, pipe, until, false);
        set_up(&mut launcher);
        let mut launcher = Command::from(launcher);
        let child = launcher::with_pipe(pipe, || launcher.spawn())?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("a process without a number"))?;
        let group = Group::of(pid);
        self.groups.push(group);
        Ok(Member { child, group, watch: self.watch })
    }

    /// Passes a deadline on to the watchdog, which is started if there is none, or none any more.
    pub(crate) fn keep(&mut self, deadline: Moment) -> io::Result<()> {
        self.dismissed.retain(|pid| !has_ended(*pid));
        if self.watchdog.as_ref().is_some_and(|watchdog| has_ended(watchdog.pid())) {
            self.watchdog = None;
        }
        match &mut self.watchdog {
            Some(watchdog) if deadline > self.deadline => watchdog.tell(Word::Deadline(deadline)),
            Some(_) => return Ok(()),
            none => {
                let mut watchdog = Watchdog::start(deadline, self.grace)?;
                self.groups.iter().for_each(|group| watchdog.tell(Word::Group(group.id())));
                *none = Some(watchdog);
                self.watch += 1;
            }
        }
        self.deadline = deadline;
        Ok(())
    }

    /// Nothing is left of a command.
    pub(crate) fn left(&mut self, group: Group) {
        self.groups.retain(|other| *other != group);
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.tell(Word::Left(group.id()));
        }
    }

    /// The session that a command ran under is over: its watchdog has no more to say. The next session has its own.
    pub(crate) fn over(&mut self, member: &Member) {
        if self.watch == member.watch {
            self.dismiss();
        }
    }

    /// Says goodbye to the watchdog.
    pub(crate) fn dismiss(&mut self) {
        if let Some(mut watchdog) = self.watchdog.take() {
            watchdog.tell(Word::Done);
            self.dismissed.push(watchdog.pid());
        }
    }

    /// Whether all watchdogs that were told goodbye have gone.
    pub(crate) fn is_alone(&mut self) -> bool {
        self.dismissed.retain(|pid| !has_ended(*pid));
        self.dismissed.is_empty()
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
