//! The watchdog: a small process that ends the groups of commands in time when the wrapper cannot. There is one for each
//! wrapper: for the one command of `run`, for all commands of a worker of a queue.
//!
//! It reads deadlines from its stdin, a pipe whose other end the wrapper holds. The end of the pipe without a `done`
//! means that the wrapper died: nobody renews any more, so every group is asked to end at once and killed before the last
//! known deadline of its lease. It listens to no signal; it lives in a process group of its own, so that nothing sent to
//! the terminal's or the command's group reaches it.
//!
//! Before it sends a signal to a group it says so on its stdout, a pipe to the wrapper: when the wrapper finds that a
//! command has ended, it can tell the watchdog's act from the command's own end.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::{AsFd, OwnedFd},
    os::unix::process::CommandExt,
    process::{Command, ExitCode, Stdio},
    time::Duration,
};

use leaseward::clock::{Clock, Moment, SystemClock};
use nix::sys::signal::SigSet;
use rustix::{
    fs::{OFlags, fcntl_setfl},
    io::Errno,
    pipe::{PipeFlags, pipe_with},
    process::{Pid, Signal},
};

use super::{
    WATCH,
    alarm::Alarm,
    group::{Group, signal_process},
    leash::{LeaseId, Reader, Word},
    ourselves,
    sentence::Grace,
    wards::{Act, Wards},
};
use crate::config::PASSWORD_VARIABLE;

/// How much longer than the wrapper the watchdog waits with SIGTERM, so that a healthy wrapper is always first and the
/// command gets one SIGTERM, not two. An eighth of the grace if that is less.
const SLACK_MAX: Duration = Duration::from_millis(100);

/// How often a dying group is looked at: nobody tells the watchdog, it is not the parent.
const GLANCE: Duration = Duration::from_millis(20);

/// The wrapper's end: a started watchdog and the pipes to and from it.
#[derive(Debug)]
pub(super) struct Watchdog {
    pid: Pid,
    pipe: File,
    said: File,
    reader: Reader,
    /// Groups that it has sent a signal to.
    acted: Vec<Pid>,
}

impl Watchdog {
    /// Starts a watchdog that already knows the first deadline.
    pub(super) fn start(lease: LeaseId, deadline: Moment, grace: Grace) -> io::Result<Self> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        // Never wait for a watchdog that somebody froze: a deadline it misses is followed by the next.
        fcntl_setfl(&write, OFlags::NONBLOCK)?;
        let (said, says) = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setfl(&said, OFlags::NONBLOCK)?;
        let mut pipe = File::from(write);
        pipe.write_all(Word::Deadline(lease, deadline).line().as_bytes())?;
        let pid = command(read, says, grace).spawn()?.id();
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("a process without a number"))?;
        Ok(Self { pid, pipe, said: File::from(said), reader: Reader::default(), acted: Vec::new() })
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

    /// Whether it has sent a signal to a group. Asked when a command was found to have ended, this tells whether it ended
    /// by itself: the watchdog speaks before it acts.
    pub(super) fn has_acted(&mut self, group: Group) -> bool {
        let mut buffer = [0; 512];
        while let Ok(read @ 1..) = self.said.read(&mut buffer) {
            let words = self.reader.take(buffer.get(..read).unwrap_or_default());
            self.acted.extend(words.into_iter().filter_map(|word| match word {
                Word::Acted(leader) => Some(leader),
                _ => None,
            }));
        }
        self.acted.contains(&group.id())
    }

    /// Forgets a group, whose number may be another's soon.
    pub(super) fn forget(&mut self, group: Group) {
        self.acted.retain(|leader| *leader != group.id());
    }

    /// Ends it without ceremony: there is no command to watch.
    pub(super) fn dismiss(self) {
        signal_process(self.pid, Signal::KILL);
    }
}

fn command(pipe: OwnedFd, says: OwnedFd, grace: Grace) -> Command {
    let mut command = ourselves();
    command
        .arg0("leaseward-watchdog")
        .args([WATCH, &grace.get().as_nanos().to_string()])
        .env_remove(PASSWORD_VARIABLE)
        .stdin(Stdio::from(pipe))
        // Not the command's stdout and stderr, which must end when the command does: `out=$(leaseward run …)`.
        .stdout(Stdio::from(says))
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
    let slack = (grace.get() / 8).min(SLACK_MAX);
    match (Watch { wards: Wards::new(grace, slack) }).keep() {
        Ok(()) => ExitCode::SUCCESS,
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

struct Watch {
    wards: Wards,
}

impl Watch {
    /// Watches until there is nothing left to watch.
    fn keep(&mut self) -> io::Result<()> {
        let mut ears = Ears::new()?;
        loop {
            match ears.listen(self.wards.next(SystemClock.now()))? {
                Heard::Words(words) => {
                    for word in words {
                        if word == Word::Done {
                            return Ok(());
                        }
                        self.learn(word);
                    }
                }
                Heard::Silence => {}
                Heard::End => {
                    self.orphaned();
                    return Ok(());
                }
            }
            self.enforce();
        }
    }

    fn learn(&mut self, word: Word) {
        match word {
            Word::Deadline(lease, at) => self.wards.extend(lease, at),
            Word::Group(lease, leader) => self.wards.add(lease, leader),
            // It is to be seen that it was not its own end.
            Word::Late(leader) => {
                self.wards.left(leader);
                act(Act::Kill(Group::of(leader)));
            }
            Word::Left(leader) => self.wards.left(leader),
            Word::Asked(at) => drop(self.wards.asked(at)),
            Word::Done | Word::Acted(_) => {}
        }
    }

    fn enforce(&mut self) {
        self.wards.due(SystemClock.now()).into_iter().for_each(act);
    }

    /// The wrapper died without a word: ends the groups, each before the deadline of its lease.
    fn orphaned(&mut self) {
        self.wards.asked(SystemClock.now()).into_iter().for_each(Group::ask_to_end);
        loop {
            self.wards.forget_empty();
            self.enforce();
            let now = SystemClock.now();
            let Some(next) = self.wards.next(now) else { return };
            std::thread::sleep(next.since(now).min(GLANCE));
        }
    }
}

/// Says what it is about to do, then does it.
fn act(act: Act) {
    let (Act::Term(group) | Act::Kill(group)) = act;
    // Past the library's buffer. A wrapper that does not read takes the group's end for its own.
    let _ = rustix::io::write(io::stdout(), Word::Acted(group.id()).line().as_bytes());
    match act {
        Act::Term(group) => group.ask_to_end(),
        Act::Kill(group) => group.signal(Signal::KILL),
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
        // Nor does it wait for a wrapper that is frozen.
        fcntl_setfl(io::stdin(), OFlags::NONBLOCK)?;
        fcntl_setfl(io::stdout(), OFlags::NONBLOCK)?;
        Ok(Self { stdin: io::stdin(), reader: Reader::default(), alarm: Alarm::new()? })
    }

    /// All there is to be heard: a watchdog that was frozen must not act on a deadline that was moved meanwhile.
    fn listen(&mut self, until: Option<Moment>) -> io::Result<Heard> {
        if !self.alarm.wait(self.stdin.as_fd(), until)? {
            return Ok(Heard::Silence);
        }
        let (mut words, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            // Past the library's buffer, which would hide from the next poll what it holds back.
            match rustix::io::read(&self.stdin, &mut buffer) {
                Ok(0) if words.is_empty() => return Ok(Heard::End),
                Ok(read @ 1..) => {
                    words.extend(self.reader.take(buffer.get(..read).unwrap_or_default()));
                }
                Ok(_) | Err(Errno::AGAIN) => return Ok(Heard::Words(words)),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
