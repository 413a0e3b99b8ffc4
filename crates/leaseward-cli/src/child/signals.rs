//! Signals that reach the tool: passed on to the command, or the reason to give up waiting.

use std::{fs, io};

use rustix::process::Signal;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

/// What is passed on to the command's group. Not in it: those that cannot be caught, and those that report a fault of
/// the process itself.
const FORWARDED: &[Signal] = &[
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::USR1,
    Signal::USR2,
    Signal::ALARM,
    Signal::WINCH,
    Signal::CONT,
    Signal::TSTP,
];

/// Signals as they come in, one after the other.
#[derive(Debug)]
pub(crate) struct Signals {
    incoming: mpsc::UnboundedReceiver<Signal>,
    /// The last that came of those that ask a program to end.
    asked_to_end: Option<Signal>,
}

impl Signals {
    /// Starts to listen. What was ignored when the tool was started stays ignored, for the command too: `nohup`.
    pub(crate) fn listen() -> io::Result<Self> {
        let (sender, incoming) = mpsc::unbounded_channel();
        let ignored = ignored();
        let heard = FORWARDED.iter().filter(|signal| !has(ignored, **signal));
        for &which in heard {
            let mut stream = signal(SignalKind::from_raw(which.as_raw()))?;
            let sender = sender.clone();
            tokio::spawn(async move {
                while stream.recv().await.is_some() && sender.send(which).is_ok() {}
            });
        }
        Ok(Self { incoming, asked_to_end: None })
    }

    /// The next signal.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn next(&mut self) -> Signal {
        match self.incoming.recv().await {
            Some(signal) => {
                if matches!(signal, Signal::INT | Signal::QUIT | Signal::TERM) {
                    self.asked_to_end = Some(signal);
                }
                signal
            }
            // Everything was ignored: nothing will ever come.
            None => std::future::pending().await,
        }
    }

    /// The last signal so far that asked for the end, though it may have been passed on to a command.
    pub(crate) fn asked_to_end(&self) -> Option<Signal> {
        self.asked_to_end
    }

    /// The next signal that asks the tool to end. A stop asked for from the terminal is obeyed on the way.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn ending(&mut self) -> Signal {
        loop {
            match self.next().await {
                end @ (Signal::HUP | Signal::INT | Signal::QUIT | Signal::TERM) => return end,
                // Caught, so it has to be carried out by hand.
                Signal::TSTP => stop_ourselves(),
                _ => {}
            }
        }
    }
}

/// Stops this process until somebody continues it.
pub(super) fn stop_ourselves() {
    super::group::signal_process(rustix::process::getpid(), Signal::STOP);
}

fn has(mask: u64, signal: Signal) -> bool {
    u32::try_from(signal.as_raw() - 1).is_ok_and(|bit| mask >> bit & 1 == 1)
}

/// The signals this process was started to ignore, as a bit mask.
///
/// Read from `/proc`, because asking the system needs `unsafe`. Where that is not there nothing counts as ignored.
fn ignored() -> u64 {
    let Ok(status) = fs::read_to_string("/proc/self/status") else { return 0 };
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
