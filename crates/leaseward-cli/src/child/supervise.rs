//! The wrapper's part: starts the command, passes signals on, and ends its group before the lease does.

use std::{ffi::OsString, future::Future, io, time::Duration};

use leaseward::{
    LostReason,
    clock::{Clock, Moment, SystemClock},
};
use rustix::process::{Signal as S, getpgrp, getpid, kill_process_group, set_child_subreaper};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{
    Grace, Signals,
    group::{Change, Ending, Group, next_change},
    launcher,
    leash::{LeaseId, Word},
    sentence::{Due, Sentence},
    signals::stop_ourselves,
    terminal::Terminal,
    watchdog::Watchdog,
};
use crate::{
    exit::{CANNOT_RUN, Exit},
    failure::Failure,
};

/// How often a dying group is looked at where no signal announces its end.
const GLANCE: Duration = Duration::from_millis(20);

/// How long a fresh lease may take to reach its full length before the command is started on what there is, if that is more
/// than the grace.
const SETTLE_MAX: Duration = Duration::from_secs(1);
/// How often that is looked at.
const SETTLE_GLANCE: Duration = Duration::from_millis(2);

/// How long the watchdog may take to say goodbye before it is sent away: only a frozen one takes any time.
const GOODBYE: Duration = Duration::from_secs(1);

/// There is one lease, or several that end together.
const LEASE: LeaseId = 0;

/// A hold on something for a while: what the command runs under.
pub(crate) trait Tenure {
    /// Until when it lasts, as far as is known; moves with each renewal.
    fn deadline(&self) -> Moment;
    /// Whether it still lasts.
    fn is_held(&self) -> bool;
    /// Resolves when it ended against our will.
    fn lost(&self) -> impl Future<Output = LostReason>;
}

/// A command to run.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) command: Vec<OsString>,
    pub(crate) environment: Vec<(&'static str, String)>,
    pub(crate) grace: Grace,
    /// The TTL of the lease.
    pub(crate) ttl: Duration,
}

/// How it went.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The command ended by itself, the lease still held.
    Ended(Ending),
    /// The lease was lost, or about to be; the command was made to end. With the reason if the store gave one.
    Lost(Option<LostReason>),
}

/// Runs a command and comes back when nothing of its process group is left.
///
/// # Errors
/// If the command could not be started at all. A program that does not exist is not an error here: the launcher says
/// so and ends with 127.
pub(crate) async fn supervise<T: Tenure>(
    job: &Job,
    tenure: &T,
    signals: &mut Signals,
) -> Result<Verdict, Failure> {
    settle(job, tenure).await;
    let mut supervisor = Supervisor::start(job, tenure).map_err(|error| {
        let exit = Exit::Child(CANNOT_RUN);
        Failure { exit, ..Failure::system("cannot start the command", &error) }
    })?;
    supervisor.until_ended(signals).await;
    let held_at_the_end = tenure.is_held();
    supervisor.clear_the_rest(signals).await;
    Ok(supervisor.finish(held_at_the_end).await)
}

/// Waits for the first renewal of a lease that was handed over.
///
/// Such a lease lasts ten seconds at most until then, which may be less than the grace: the command would be asked to
/// end the moment it starts, and is not started before. The engine sends that renewal within a tenth of a second.
pub(crate) async fn settle<T: Tenure>(job: &Job, tenure: &T) {
    let needed = job.grace.worth_starting();
    let limit = SystemClock.now() + SETTLE_MAX;
    loop {
        let now = SystemClock.now();
        let left = tenure.deadline().since(now);
        let is_enough = left >= needed || (now >= limit && left > job.grace.get());
        if is_enough || !tenure.is_held() {
            return;
        }
        tokio::time::sleep(SETTLE_GLANCE).await;
    }
}

struct Supervisor<'a, T> {
    job: &'a Job,
    tenure: &'a T,
    watchdog: Watchdog,
    group: Group,
    sentence: Sentence,
    terminal: Option<Terminal>,
    children: Signal,
    ending: Option<Ending>,
    lost: Option<LostReason>,
    /// The command was made to end because its lease did.
    interfered: bool,
    watchdog_gone: bool,
    /// The next stop signal is the one this process sent to its own job.
    swallow_stop: bool,
}

impl<'a, T: Tenure> Supervisor<'a, T> {
    fn start(job: &'a Job, tenure: &'a T) -> io::Result<Self> {
        let children = signal(SignalKind::child())?;
        // Orphans of the command become children of this process, so that it can tell when the last is gone, also where
        // process 1 reaps nobody.
        let _ = set_child_subreaper(Some(getpid()));
        let sentence = Sentence::new(tenure.deadline(), job.grace);
        let watchdog = Watchdog::start(LEASE, sentence.deadline(), job.grace)?;
        let terminal = Terminal::controlling();
        let foreground = terminal.as_ref().is_some_and(Terminal::give_at_once);
        let started = launcher::start(job, watchdog.pipe(), LEASE, sentence.kill_at(), foreground);
        let leader = match started {
            Ok(leader) => leader,
            Err(error) => {
                watchdog.dismiss();
                return Err(error);
            }
        };
        Ok(Self {
            job,
            tenure,
            watchdog,
            group: Group::of(leader),
            sentence,
            terminal,
            children,
            ending: None,
            lost: None,
            interfered: false,
            watchdog_gone: false,
            swallow_stop: false,
        })
    }

    /// Until the command itself has ended.
    async fn until_ended(&mut self, signals: &mut Signals) {
        // Often enough that the watchdog hears of a renewal long before it would act on the deadline before it.
        let tick = (self.job.ttl / 20).max(Duration::from_millis(5));
        while self.ending.is_none() {
            self.refresh();
            let wake = self.enforce().min(SystemClock.now() + tick);
            tokio::select! {
                _ = self.children.recv() => self.reap(),
                signal = signals.next() => self.forward(signal),
                reason = self.tenure.lost(), if self.lost.is_none() => self.on_loss(reason),
                () = SystemClock.sleep_until(wake) => {}
            }
        }
    }

    /// Passes a moved deadline on to the watchdog.
    fn refresh(&mut self) {
        let deadline = self.tenure.deadline();
        if self.lost.is_none() && deadline != self.sentence.deadline() {
            self.sentence.extend(deadline);
            self.watchdog.tell(Word::Deadline(LEASE, deadline));
        }
    }

    /// Does what is due; answers when to look again.
    fn enforce(&mut self) -> Moment {
        let now = SystemClock.now();
        match self.sentence.due(now, Duration::ZERO) {
            Due::Nothing(at) => at,
            Due::Term => {
                self.interfered = true;
                self.ask_to_end(now);
                self.sentence.kill_at()
            }
            Due::Kill => {
                self.interfered |= self.ending.is_none();
                self.group.signal(S::KILL);
                now + GLANCE
            }
        }
    }

    fn on_loss(&mut self, reason: LostReason) {
        self.lost = Some(reason);
        self.interfered = true;
        self.ask_to_end(SystemClock.now());
    }

    fn ask_to_end(&mut self, now: Moment) {
        if !self.sentence.is_asked() {
            self.sentence.asked(now);
            self.watchdog.tell(Word::Asked(now));
            self.group.ask_to_end();
        }
    }

    fn forward(&mut self, signal: S) {
        if signal == S::TSTP && std::mem::take(&mut self.swallow_stop) {
            return;
        }
        self.group.signal(signal);
    }

    /// Takes note of what children did since.
    fn reap(&mut self) {
        while let Some((pid, change)) = next_change() {
            match change {
                Change::Ended(ending) if pid == self.group.id() => {
                    self.interfered |= self.watchdog.has_acted(self.group);
                    self.ending = Some(ending);
                }
                Change::Ended(_) if pid == self.watchdog.pid() => self.without_watchdog(),
                Change::Stopped(signal) if pid == self.group.id() => self.on_stop(signal),
                // An orphan of the command, adopted.
                Change::Ended(_) | Change::Stopped(_) => {}
            }
        }
    }

    /// A watchdog that is gone while the command runs is replaced.
    fn without_watchdog(&mut self) {
        self.watchdog_gone = true;
        if self.ending.is_some() {
            return;
        }
        self.interfered |= self.watchdog.has_acted(self.group);
        if let Ok(mut next) = Watchdog::start(LEASE, self.sentence.deadline(), self.job.grace) {
            next.tell(Word::Group(LEASE, self.group.id()));
            self.watchdog = next;
            self.watchdog_gone = false;
        }
    }

    /// The command was stopped. On a terminal the whole job stops with it, so that the shell gets its prompt back; the
    /// lease is not renewed meanwhile, and the watchdog ends the command if it is not resumed in time.
    fn on_stop(&mut self, signal: i32) {
        let Some(terminal) = &self.terminal else { return };
        let wants_terminal = signal == S::TTIN.as_raw() || signal == S::TTOU.as_raw();
        if wants_terminal && terminal.is_ours() {
            terminal.give_to(self.group.id());
            self.group.signal(S::CONT);
            return;
        }
        if !Terminal::can_suspend() {
            if signal == S::TSTP.as_raw() {
                self.group.signal(S::CONT);
            }
            return;
        }
        terminal.take_back_from(self.group.id());
        self.swallow_stop = true;
        let _ = kill_process_group(getpgrp(), S::TSTP);
        stop_ourselves();
        // Here the job goes on, in the foreground or not.
        if terminal.is_ours() {
            terminal.give_to(self.group.id());
        }
        self.group.signal(S::CONT);
    }

    /// Ends what the command left behind in its group: it may not outlive the lease, which ends with the command.
    async fn clear_the_rest(&mut self, signals: &mut Signals) {
        let mut killed = false;
        while !self.group.is_empty() {
            let now = SystemClock.now();
            self.ask_to_end(now);
            if now >= self.sentence.kill_at() && !std::mem::replace(&mut killed, true) {
                self.group.signal(S::KILL);
            }
            // Somebody who cannot be killed is stuck in the kernel; the lease ends without him.
            if killed && now >= self.sentence.deadline() {
                return;
            }
            self.refresh();
            tokio::select! {
                _ = self.children.recv() => self.reap(),
                signal = signals.next() => self.forward(signal),
                () = tokio::time::sleep(GLANCE) => {}
            }
        }
    }

    async fn finish(mut self, held_at_the_end: bool) -> Verdict {
        if let Some(terminal) = &self.terminal {
            terminal.take_back_from(self.group.id());
        }
        self.watchdog.tell(Word::Done);
        let _ = tokio::time::timeout(GOODBYE, async {
            while !self.watchdog_gone {
                self.reap();
                if !self.watchdog_gone {
                    self.children.recv().await;
                }
            }
        })
        .await;
        if !self.watchdog_gone {
            self.watchdog.dismiss();
        }
        match self.ending {
            Some(ending) if held_at_the_end && !self.interfered => Verdict::Ended(ending),
            _ => Verdict::Lost(self.lost),
        }
    }
}
