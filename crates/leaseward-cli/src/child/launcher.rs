//! The launcher: makes the command known to the watchdog, then becomes it.
//!
//! It is the leader of the new process group, and the command keeps its process number. Because it speaks on the
//! watchdog's own pipe, a wrapper that dies at any moment either never started the command or left a watchdog that
//! knows it.

use std::{
    ffi::OsString,
    fs::{File, OpenOptions},
    io::{self, Write},
    os::fd::AsRawFd,
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
    time::Duration,
};

use leaseward::clock::{Clock, Moment, SystemClock};
use rustix::{
    io::{FdFlags, fcntl_setfd},
    process::{Pid, getpid},
};

use super::{
    LAUNCH,
    leash::{LeaseId, Word},
    ourselves,
    supervise::Job,
    terminal::Terminal,
};
use crate::{
    config::PASSWORD_VARIABLE,
    exit::{CANNOT_RUN, Exit, LOST, NOT_FOUND},
    failure::Failure,
    printer::Printer,
};

/// How long a launcher that came too late waits for the watchdog to end it: one that is frozen does not.
const LATE: Duration = Duration::from_secs(1);

/// Starts the command in a process group of its own.
pub(super) fn start(
    job: &Job,
    pipe: &File,
    lease: LeaseId,
    until: Moment,
    foreground: bool,
) -> io::Result<Pid> {
    let mut command = prepared(&job.command, pipe, lease, until, foreground);
    command.envs(job.environment.iter().map(|(key, value)| (key, value)));
    let child = with_pipe(pipe, || command.spawn())?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| io::Error::other("a process without a number"))
}

/// Starts something that the pipe to the watchdog is passed on to as an open file; nothing else is started meanwhile that
/// could inherit it.
pub(super) fn with_pipe<T>(pipe: &File, spawn: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    fcntl_setfd(pipe, FdFlags::empty())?;
    let started = spawn();
    fcntl_setfd(pipe, FdFlags::CLOEXEC)?;
    started
}

/// The launcher of a command, not yet started.
pub(super) fn prepared(
    command: &[OsString],
    pipe: &File,
    lease: LeaseId,
    until: Moment,
    foreground: bool,
) -> Command {
    let mut launcher = ourselves();
    launcher
        .arg0("leaseward-launcher")
        .arg(LAUNCH)
        .arg(pipe.as_raw_fd().to_string())
        .arg(lease.to_string())
        .arg(until.as_nanos().to_string())
        .arg(if foreground { "foreground" } else { "background" })
        .args(command)
        // Of an outer `leaseward run` with several names; this one says its own, if it has any.
        .env_remove("LEASEWARD_FENCES")
        .env_remove(PASSWORD_VARIABLE)
        .process_group(0);
    launcher
}

/// The launcher's own short life.
pub(super) fn main(arguments: &[OsString]) -> ExitCode {
    let [pipe, lease, until, place, program, rest @ ..] = arguments else {
        return ExitCode::from(Exit::Usage);
    };
    let number = |text: &OsString| text.to_str().and_then(|text| text.parse::<u64>().ok());
    let (Some(pipe), Some(lease), Some(until)) = (number(pipe), number(lease), number(until))
    else {
        return ExitCode::from(Exit::Usage);
    };
    let mut watchdog = match make_known(pipe, lease) {
        Ok(watchdog) => watchdog,
        Err(error) => {
            let failure =
                Failure::system("cannot reach the watchdog, so the command was not run", &error)
                    .hint("the tool needs `/dev/fd`: is `/proc` mounted?");
            Printer::new().failure(&failure);
            return ExitCode::from(Exit::Other);
        }
    };
    // The machine may have slept since the lease was granted.
    if SystemClock.now() >= Moment::from_nanos(until) {
        // The watchdog ends this process, so that nobody takes it for the command's own end.
        let _ = watchdog.write_all(Word::Late(getpid()).line().as_bytes());
        std::thread::sleep(LATE);
        return ExitCode::from(LOST);
    }
    drop(watchdog);
    if place == "foreground"
        && let Some(terminal) = Terminal::controlling()
    {
        terminal.give_to(getpid());
    }
    ExitCode::from(became(program, rest))
}

/// Tells the watchdog, and answers the pipe to it, which the command does not inherit.
fn make_known(pipe: u64, lease: LeaseId) -> io::Result<File> {
    let mut watchdog = OpenOptions::new().write(true).open(format!("/dev/fd/{pipe}"))?;
    watchdog.write_all(Word::Group(lease, getpid()).line().as_bytes())?;
    let inherited = i32::try_from(pipe).map_err(io::Error::other)?;
    nix::unistd::close(inherited)?;
    Ok(watchdog)
}

/// Becomes the command; comes back only if that failed, with the code a shell would give.
fn became(program: &OsString, arguments: &[OsString]) -> u8 {
    let error = Command::new(program).args(arguments).exec();
    let shown = program.to_string_lossy();
    let printer = Printer::new();
    let (code, hint) = match error.kind() {
        io::ErrorKind::NotFound => (NOT_FOUND, "is it installed, and in `PATH`?"),
        _ => (CANNOT_RUN, "is it a program, and may it be executed?"),
    };
    printer.failure(&Failure::system(&format!("cannot run `{shown}`"), &error).hint(hint));
    code
}
