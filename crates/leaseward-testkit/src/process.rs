//! A child that cannot outlive us.
//!
//! `setpriv --pdeathsig KILL` has the kernel kill it when its parent dies, which for the kernel is the *thread* that started
//! it. Tests run on threads that end early, so one thread that never ends starts all children.

use std::{
    io,
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus},
    sync::{OnceLock, mpsc},
    thread,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::wait::{PATIENCE, eventually};

/// A running child; killed and waited for when dropped, also if it is paused.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Starts what [`mortal`] made.
    pub(crate) fn start(command: Command) -> Self {
        match spawn(command) {
            Ok(child) => Self { child },
            Err(error) => panic!("no process could be started: {error}"),
        }
    }

    /// What it reads and what it writes, if its command said that they are piped.
    pub(crate) fn pipes(&mut self) -> (ChildStdin, ChildStdout) {
        let pipes = self.child.stdin.take().zip(self.child.stdout.take());
        pipes.expect("BUG: not piped, or taken before")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// Whether it is neither ended nor stopped.
    pub(crate) fn is_awake(&self) -> bool {
        let state = stat(self.pid()).map(|(state, _)| state);
        state.is_some_and(|state| !matches!(state, 'T' | 'Z' | 'X'))
    }

    /// Stops it in its tracks: connections stay, nothing is answered. Returns when it has stopped.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
        eventually("the process has stopped", PATIENCE, || (!self.is_awake()).then_some(()));
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal)
            .unwrap_or_else(|error| panic!("process {} got no signal: {error}", self.pid()));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL also ends a stopped process. It fails only if the child is waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The state of a process and its parent, if there is one of this id.
fn stat(pid: u32) -> Option<(char, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // They follow the name, which is in parentheses and may contain some.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// Whether a process has not ended yet.
pub(crate) fn is_there(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| !matches!(state, 'Z' | 'X'))
}

/// The processes that a process started itself.
pub(crate) fn children(parent: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| stat(*pid).is_some_and(|(_, of)| of == parent)).collect()
}

/// Signals a process that may have ended by itself.
pub(crate) fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id");
    let _ = kill_process(pid, signal);
}

/// A command that dies with its parent, still without arguments. The program replaces `setsid` and `setpriv`, so the process
/// id is its own.
///
/// In a session of its own, as a service is: Linux shares the processors between sessions first (`sched_autogroup`). In ours,
/// how much of them a server gets would depend on how many threads whoever uses it has.
///
/// # Panics
/// With the `package` to install if there is no such program.
pub(crate) fn mortal(program: &str, package: &str) -> Command {
    require("setsid", "util-linux");
    require("setpriv", "util-linux");
    require(program, package);
    let mut command = Command::new("setsid");
    command.args(["setpriv", "--pdeathsig", "KILL", "--", program]);
    command
}

/// Panics, with how to install it, if a program is not there.
pub(crate) fn require(program: &str, package: &str) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    assert!(
        there,
        "`{program}` is not installed\nhint: `cargo xtask test --install`, or `sudo apt-get install -y \
         --no-install-recommends {package}`"
    );
}

type Order = (Command, mpsc::Sender<io::Result<Child>>);

/// Starts a child on the thread that never ends.
fn spawn(command: Command) -> io::Result<Child> {
    static PARENT: OnceLock<mpsc::Sender<Order>> = OnceLock::new();
    let parent = PARENT.get_or_init(|| {
        let (orders, queue) = mpsc::channel::<Order>();
        let serve = move || {
            for (mut command, answer) in queue {
                // Who asked may have panicked since; then the child ends here.
                if let Err(mpsc::SendError(Ok(mut child))) = answer.send(command.spawn()) {
                    let _ = child.kill();
                    let _ = child.wait();
                }
            }
        };
        thread::Builder::new().name("parent".into()).spawn(serve).expect("a thread starts");
        orders
    });
    let (answer, child) = mpsc::channel();
    parent.send((command, answer)).expect("BUG: the parent thread never ends");
    child.recv().expect("BUG: the parent thread answers each order")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(
        expected = "`no-such-program` is not installed\nhint: `cargo xtask test --install`"
    )]
    fn what_is_missing_is_named_with_how_to_install_it() {
        let _ = mortal("no-such-program", "its-package");
    }
}
