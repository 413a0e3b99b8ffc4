//! The controlling terminal: whose turn it is to read from it and to get its signals.

use std::{
    fs::{File, OpenOptions},
    io::{self, IsTerminal},
};

use nix::sys::signal::{SigSet, SigmaskHow, Signal as NixSignal};
use rustix::{
    fs::FileType,
    process::{Pid, getpgrp, getsid},
    termios::{tcgetpgrp, tcsetpgrp},
};

use super::group::Group;

/// The terminal this job belongs to.
#[derive(Debug)]
pub(super) struct Terminal {
    tty: File,
}

impl Terminal {
    /// The controlling terminal, if one of the standard streams is connected to one.
    pub(super) fn controlling() -> Option<Self> {
        let connected =
            io::stdin().is_terminal() || io::stdout().is_terminal() || io::stderr().is_terminal();
        if !connected {
            return None;
        }
        let tty = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        Some(Self { tty })
    }

    /// Whether this process' own group is in the foreground.
    pub(super) fn is_ours(&self) -> bool {
        tcgetpgrp(&self.tty).is_ok_and(|group| group == getpgrp())
    }

    /// Whether to hand it over before the command asks for it.
    ///
    /// In a pipeline other members of the job, such as a pager, need it as much as the command does; there it is given
    /// when the command is stopped for want of it.
    pub(super) fn give_at_once(&self) -> bool {
        self.is_ours() && !is_pipe(io::stdin()) && !is_pipe(io::stdout())
    }

    /// Puts a group in the foreground.
    pub(super) fn give_to(&self, group: Pid) {
        // Asked for from the background this would stop the asker, unless it blocks the signal that does so.
        let mut blocked = SigSet::empty();
        blocked.add(NixSignal::SIGTTOU);
        let Ok(before) = blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK) else { return };
        // Fails if the group is gone, or the terminal is: either way nobody needs it.
        let _ = tcsetpgrp(&self.tty, group);
        let _ = before.thread_set_mask();
    }

    /// Takes it back from a group, if that is in the foreground, or nobody is any more: a shell run as the command
    /// moves the foreground about and may die before it puts it back. A shell that took it for another job keeps it.
    pub(super) fn take_back_from(&self, group: Pid) {
        let Ok(current) = tcgetpgrp(&self.tty) else { return };
        if current == group || Group::of(current).is_empty() {
            self.give_to(getpgrp());
        }
    }

    /// Whether somebody could wake this job up again if it stopped: a shell that put it in a group of its own.
    pub(super) fn can_suspend() -> bool {
        getsid(None).is_ok_and(|session| session != getpgrp())
    }
}

fn is_pipe(stream: impl std::os::fd::AsFd) -> bool {
    rustix::fs::fstat(stream)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo)
}
