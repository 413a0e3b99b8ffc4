//! A process group: whom signals go to, and whether anybody is left in it.

use rustix::{
    io::Errno,
    process::{
        Pid, Signal, WaitOptions, kill_process, kill_process_group, test_kill_process_group,
    },
};

/// The process group of a command. Its number is that of the command itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group(Pid);

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// With this code.
    Code(u8),
    /// By this signal.
    Signal(u8),
}

/// Something a child of this process did.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    Ended(Ending),
    Stopped(i32),
}

impl Group {
    pub(crate) const fn of(leader: Pid) -> Self {
        Self(leader)
    }

    pub(crate) fn id(self) -> Pid {
        self.0
    }

    /// Sends a signal to everybody in the group; nobody being there is fine.
    ///
    /// The number cannot have passed to a stranger: while the leader is not reaped or anybody is left in the group, the
    /// system keeps it, and afterwards only a full turn of the process numbers brings it back.
    pub(crate) fn signal(self, signal: Signal) {
        let _ = kill_process_group(self.0, signal);
    }

    /// SIGTERM, and SIGCONT so that stopped processes hear it.
    pub(crate) fn ask_to_end(self) {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
    }

    /// Whether the group has no members left. Members that ended but were not reaped count as members.
    pub(crate) fn is_empty(self) -> bool {
        test_kill_process_group(self.0) == Err(Errno::SRCH)
    }
}

/// Signals one process.
pub(super) fn signal_process(pid: Pid, signal: Signal) {
    let _ = kill_process(pid, signal);
}

/// The next thing a child of this process did, if there is one. Reaps it if it ended.
pub(super) fn next_change() -> Option<(Pid, Change)> {
    loop {
        let (pid, status) =
            rustix::process::wait(WaitOptions::NOHANG | WaitOptions::UNTRACED).ok()??;
        let byte = |number: i32| u8::try_from(number).unwrap_or(u8::MAX);
        if let Some(code) = status.exit_status() {
            return Some((pid, Change::Ended(Ending::Code(byte(code)))));
        }
        if let Some(signal) = status.terminating_signal() {
            return Some((pid, Change::Ended(Ending::Signal(byte(signal)))));
        }
        if let Some(signal) = status.stopping_signal() {
            return Some((pid, Change::Stopped(signal)));
        }
    }
}
