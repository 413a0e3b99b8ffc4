//! The watchdog: a small process that ends the groups of commands in time when the wrapper cannot. There is one for each
//! lease: one command under `run`, all commands of a worker of a queue.
//!
//! It reads deadlines from its stdin, a pipe whose other end the wrapper holds. The end of the pipe without a `done`
//! means that the wrapper died: nobody renews any more, so the group is asked to end at once and killed before the last
//! known deadline. It listens to no signal; it lives in a process group of its own, so that nothing sent to the
//! terminal's or the command's group reaches it.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Write},
    os::fd::{AsFd, OwnedFd},
    os::unix::process::CommandExt,
    process::{Command, ExitCode, Stdio},
    time::Duration,
};

use leaseward::clock::{Clock, Moment, SystemClock};
use nix::sys::signal::SigSet;
use rustix::{
    io::Errno,
    pipe::{PipeFlags, pipe_with},
    process::{Pid, Signal},
};

use super::{
    WATCH,
    alarm::Alarm,
    group::{Group, signal_process},
    leash::{Reader, Word},
    ourselves,
    sentence::{Due, Grace, Sentence},
};
use crate::config::PASSWORD_VARIABLE;

/// How much longer than the wrapper the watchdog waits with SIGTERM, so that a healthy wrapper is always first and the
/// command gets one SIGTERM, not two. An eighth of the grace if that is less.
const SLACK_MAX: Duration = Duration::from_millis(100);

/// How often a dying group is looked at: nobody tells the watchdog, it is not the parent.
const GLANCE: Duration = Duration::from_millis(20);

/// The watchdog's exit code when it had to act.
pub(super) const ACTED: u8 = 3;

/// The wrapper's end: a started watchdog and the pipe to it.
#[derive(Debug)]
pub(super) struct Watchdog {
    pid: Pid,
    pipe: File,
}

impl Watchdog {
    /// Starts a watchdog that already knows the first deadline.
    pub(super) fn start(deadline: Moment, grace: Grace) -> io::Result<Self> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        // Never wait for a watchdog that somebody froze: a deadline it misses is followed by the next.
        rustix::fs::fcntl_setfl(&write, rustix::fs::OFlags::NONBLOCK)?;
        let mut pipe = File::from(write);
        pipe.write_all(Word::Deadline(deadline).line().as_bytes())?;
        let pid = command(read, grace).spawn()?.id();
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("a process without a number"))?;
        Ok(Self { pid, pipe })
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// The end to write to, for the launcher to make itself known.
    pub(super) fn pipe(&self) -> &File {
        &self.pipe
    }

    /// Tells it something; one that is gone is noticed when it is reaped.
    pub(super) fn tell(&mut self, word: Word) {
        let _ = self.pipe.write_all(word.line().as_bytes());
    }

    /// Ends it without ceremony: there is no command to watch.
    pub(super) fn dismiss(self) {
        signal_process(self.pid, Signal::KILL);
    }
}

fn command(pipe: OwnedFd, grace: Grace) -> Command {
    let mut command = ourselves();
    command
        .arg0("leaseward-watchdog")
        .args([WATCH, &grace.get().as_nanos().to_string()])
        .env_remove(PASSWORD_VARIABLE)
        .stdin(Stdio::from(pipe))
        // The command's stdout and stderr must end when the command does: `out=$(leaseward run …)`.
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    command
}

/// The watchdog's own life.
pub(super) fn main(arguments: &[OsString]) -> ExitCode {
    let grace = arguments.first().and_then(|text| text.to_str()).and_then(|text| text.parse().ok());
    let Some(grace) = grace.map(Grace::from_nanos) else { return ExitCode::from(2) };
    // Blocked rather than ignored, because that needs no handler; SIGKILL and SIGSTOP cannot be.
    let _ = SigSet::all().thread_block();
    // A folder kept as working directory could not be unmounted.
    let _ = std::env::set_current_dir("/");
    match (Watch { grace, sentence: None, groups: Vec::new(), ended: false, acted: false }).keep() {
        Ok(false) => ExitCode::SUCCESS,
        Ok(true) => ExitCode::from(ACTED),
        Err(_) => ExitCode::FAILURE,
    }
}

/// What the pipe delivered.
enum Heard {
    Words(Vec<Word>),
    /// Nothing for now.
    Silence,
    /// The wrapper is gone.
    End,
}

/// What the watchdog knows.
struct Watch {
    grace: Grace,
    sentence: Option<Sentence>,
    groups: Vec<Group>,
    /// The command itself has ended: acting against what it left behind is not acting against it.
    ended: bool,
    acted: bool,
}

impl Watch {
    /// Watches until there is nothing left to watch; answers whether it had to act.
    fn keep(&mut self) -> io::Result<bool> {
        let mut ears = Ears::new()?;
        loop {
            match ears.listen(self.next_look())? {
                Heard::Words(words) => {
                    for word in words {
                        if word == Word::Done {
                            return Ok(self.acted);
                        }
                        self.learn(word);
                    }
                }
                Heard::Silence => {}
                Heard::End => return Ok(self.orphaned()),
            }
            self.enforce();
        }
    }

    fn learn(&mut self, word: Word) {
        match word {
            Word::Deadline(at) => {
                self.sentence.get_or_insert(Sentence::new(at, self.grace)).extend(at);
            }
            Word::Group(leader) => self.groups.push(Group::of(leader)),
            Word::Left(leader) => self.groups.retain(|group| group.id() != leader),
            Word::Asked(at) => {
                if let Some(sentence) = &mut self.sentence {
                    sentence.asked(at);
                }
            }
            Word::Ended => self.ended = true,
            Word::Done => {}
        }
    }

    fn slack(&self) -> Duration {
        (self.grace.get() / 8).min(SLACK_MAX)
    }

    /// When to wake up by itself; never while there is no group to end.
    fn next_look(&self) -> Option<Moment> {
        let sentence = self.sentence.as_ref().filter(|_| !self.groups.is_empty())?;
        let now = SystemClock.now();
        match sentence.due(now, self.slack()) {
            Due::Nothing(at) => Some(at),
            Due::Term | Due::Kill => Some(now),
        }
    }

    fn enforce(&mut self) {
        let slack = self.slack();
        let Some(sentence) = self.sentence.as_mut().filter(|_| !self.groups.is_empty()) else {
            return;
        };
        let now = SystemClock.now();
        match sentence.due(now, slack) {
            Due::Nothing(_) => {}
            Due::Term => {
                self.acted |= !self.ended;
                sentence.asked(now);
                self.groups.iter().for_each(|group| group.ask_to_end());
            }
            Due::Kill => {
                self.acted |= !self.ended;
                // Killed once is killed; what is left is to hear that the wrapper knows.
                self.groups.drain(..).for_each(|group| group.signal(Signal::KILL));
            }
        }
    }

    /// The wrapper died without a word: ends the groups, at the deadline at the latest.
    fn orphaned(&mut self) -> bool {
        let Some(sentence) = self.sentence.as_mut().filter(|_| !self.groups.is_empty()) else {
            return self.acted;
        };
        if !sentence.is_asked() {
            sentence.asked(SystemClock.now());
            self.groups.iter().for_each(|group| group.ask_to_end());
        }
        let kill_at = sentence.kill_at();
        loop {
            self.groups.retain(|group| !group.is_empty());
            let now = SystemClock.now();
            if self.groups.is_empty() || now >= kill_at {
                self.groups.iter().for_each(|group| group.signal(Signal::KILL));
                break;
            }
            std::thread::sleep(kill_at.since(now).min(GLANCE));
        }
        true
    }
}

/// Reads the pipe with a limit on the patience, by a clock that counts suspend.
struct Ears {
    stdin: io::Stdin,
    reader: Reader,
    alarm: Alarm,
}

impl Ears {
    fn new() -> io::Result<Self> {
        Ok(Self { stdin: io::stdin(), reader: Reader::default(), alarm: Alarm::new()? })
    }

    fn listen(&mut self, until: Option<Moment>) -> io::Result<Heard> {
        if !self.alarm.wait(self.stdin.as_fd(), until)? {
            return Ok(Heard::Silence);
        }
        let mut buffer = [0; 512];
        // Past the library's buffer, which would hide from the next poll what it holds back.
        let read = match rustix::io::read(&self.stdin, &mut buffer) {
            Ok(0) => return Ok(Heard::End),
            Ok(read) => read,
            Err(Errno::INTR | Errno::AGAIN) => return Ok(Heard::Silence),
            Err(error) => return Err(error.into()),
        };
        Ok(Heard::Words(self.reader.take(buffer.get(..read).unwrap_or_default())))
    }
}
