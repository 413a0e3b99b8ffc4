//! A command that never outlives the lease it runs under.
//!
//! Four processes take part. The *wrapper* (this tool) holds the lease and renews it. The *launcher* is the tool once
//! more: it makes itself known to the watchdog and then becomes the command, so there is no moment at which the
//! command runs and the watchdog has not heard of it. The *watchdog*, the tool a third time, reads each new deadline
//! from a pipe and ends the command's process group in time, also when the wrapper is killed with -9 or frozen.
//!
//! Not covered: processes that leave the group on purpose (`setsid`, daemons), and a machine on which wrapper and
//! watchdog are both killed. Fences are for those.

mod alarm;
mod crew;
mod group;
mod launcher;
mod leash;
mod sentence;
mod signals;
mod supervise;
mod terminal;
mod wards;
mod watchdog;

pub(crate) use crew::{Crew, Member, reap};
pub(crate) use group::{Ending, Group};
pub(crate) use sentence::Grace;
pub(crate) use signals::Signals;
pub(crate) use supervise::{Job, Tenure, Verdict, settle, supervise};

use std::{ffi::OsString, process::ExitCode};

/// The hidden first argument that makes this process a watchdog.
const WATCH: &str = "__watch";
/// The hidden first argument that makes this process become the command.
const LAUNCH: &str = "__launch";

/// Plays one of the hidden parts, if the arguments ask for one.
///
/// Looked at before anything else is loaded: these two start once for each command that is run.
pub(crate) fn hidden_part(arguments: &[OsString]) -> Option<ExitCode> {
    let (part, rest) = arguments.get(1..)?.split_first()?;
    if part == WATCH {
        Some(watchdog::main(rest))
    } else if part == LAUNCH {
        Some(launcher::main(rest))
    } else {
        None
    }
}

/// This program, to be started again. The link also works when the file was replaced or deleted meanwhile.
fn ourselves() -> std::process::Command {
    #[cfg(target_os = "linux")]
    let program = std::path::PathBuf::from("/proc/self/exe");
    #[cfg(not(target_os = "linux"))]
    let program = std::env::current_exe().unwrap_or_else(|_| "leaseward".into());
    std::process::Command::new(program)
}
