//! `leaseward queue work`: a command for each job.

use std::{
    ffi::{OsStr, OsString},
    path::Path,
    sync::Arc,
    time::Duration,
};

use clap::Args;
use leaseward::{
    AuditLog,
    clock::{Clock as _, SystemClock},
};
use leaseward_queue::{
    Backoff, Builder, Event, EventKind, Failure as JobFailure, MAX_ATTEMPTS_DEFAULT, Queue,
    Summary, TTL_DEFAULT, TTL_MIN, Worker,
};
use serde_json::value::RawValue;
use tokio::sync::{oneshot, watch};

use super::{
    DEFAULT, Desk,
    attempt::{KILL_AFTER, Shop},
};
use crate::{
    child::Grace,
    exit::{CANNOT_RUN, Exit, NOT_FOUND},
    failure::Failure,
    printer::{Printer, Tone},
    units,
};

/// Beyond its own time to end commands, for what a database takes to write it down.
const MARGIN: Duration = Duration::from_secs(10);

/// Run a command for each job
///
/// The command gets the payload on stdin, one line of JSON, and finds in its environment `LEASEWARD_JOB_ID`,
/// `LEASEWARD_ATTEMPT` (from 1), `LEASEWARD_FENCE` (larger than that of every attempt at this job before: give it to
/// whatever you write to, and let that refuse smaller ones), `LEASEWARD_QUEUE`, `LEASEWARD_STORE` (never with a password)
/// and, if whoever pushed the job has left a trace, `TRACEPARENT`. stdout and stderr are the worker's own.
///
/// Its exit code decides:
///   0      the job is done
///   75     not now: again after `--snooze`; does not count as an attempt
///   65     never: the job is dead at once
///   other  the attempt has failed, and so has one that was ended by a signal: tried again after a random time that
///          doubles with each, until the job is dead after `--max-attempts`. The last of what it wrote to stderr is
///          kept with the job
///
/// A command never outlives the worker's lease on its job: if the worker cannot reach the store, or is killed with -9 or
/// frozen, a watchdog ends the command, SIGTERM first. Unless the worker is gone, such a job was interrupted: it is put back,
/// runs again after a pause, and has lost no attempt. Jobs of a worker that vanished run elsewhere within the TTL and a
/// second. When a command has ended, what it left running in its process group is ended too.
///
/// A store that is away, at the start or later, is waited for, however long that takes (with `--until-empty`, not at the
/// start).
///
/// SIGTERM, SIGINT and SIGHUP end the worker: it claims nothing more and lets commands finish, for `--grace`; then, or on a
/// second signal, they get SIGTERM, then SIGKILL, and their jobs are given back, without counting as attempts.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER)]
pub(crate) struct WorkArgs {
    /// The queue, which is made if it is not there
    #[arg(long, short, value_name = "NAME", default_value = DEFAULT)]
    queue: String,

    /// How many commands run at once
    #[arg(long, short = 'j', value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    concurrency: u16,

    /// End when no job of the queue is ready, due or leased to anyone, a worker that vanished included
    ///
    /// Jobs that are to run later, also after a failure, are not waited for, unless this worker has interrupted them.
    #[arg(long)]
    until_empty: bool,

    /// After how many failed attempts a job is dead that does not say so itself
    #[arg(long, value_name = "N", default_value_t = MAX_ATTEMPTS_DEFAULT, value_parser = clap::value_parser!(u32).range(1..))]
    max_attempts: u32,

    /// How long an attempt may take at a job that does not say so itself [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = units::duration, allow_hyphen_values = true)]
    timeout: Option<Duration>,

    /// The longest pause before the second attempt; doubled for each that follows, up to an hour
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "2s", allow_hyphen_values = true)]
    backoff: Duration,

    /// After how long a job runs again whose command ended with 75
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "1m", allow_hyphen_values = true)]
    snooze: Duration,

    /// Remember done and cancelled jobs for this long [default: not at all]
    #[arg(long, value_name = "DURATION", value_parser = units::duration, allow_hyphen_values = true)]
    keep: Option<Duration>,

    /// How long commands may take to finish once the worker is to end
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "30s", allow_hyphen_values = true)]
    grace: Duration,

    /// How long a worker that says nothing is taken for alive
    #[arg(long, value_name = "DURATION", value_parser = ttl, default_value = "15s", allow_hyphen_values = true)]
    ttl: Duration,

    /// Write a payload that is a text without its quotes
    #[arg(long, short)]
    raw: bool,

    /// Print one JSON object for each thing that happens; what commands write to stdout goes to stderr
    #[arg(long)]
    json: bool,

    /// The command and its arguments, behind `--`
    #[arg(value_name = "CMD", last = true, required = true)]
    command: Vec<OsString>,
}

const AFTER: &str = "\
Examples:
  Four at a time, until there is nothing left:
    leaseward queue work --queue resize -j 4 --until-empty -- ./resize.sh

  One line of shell for each job:
    leaseward queue work --raw -- sh -c 'read -r file; gzip \"$file\"'

  A service that ends well with SIGTERM:
    leaseward queue work --queue mail --max-attempts 8 --timeout 1m -- ./send.py

  What failed for good, and once more after a repair:
    leaseward queue ls --queue mail --state dead
    leaseward queue retry --queue mail --all

Exit codes:
  0         ended as it was told to, whatever became of the jobs
  126, 127  the command cannot be run, or does not exist; no job was claimed
  69        the store refuses; with `--until-empty`, it cannot be reached at the beginning
  2         the command line cannot be used; nothing was changed";

/// Reads how long a worker is taken for alive.
fn ttl(text: &str) -> Result<Duration, String> {
    let parsed = units::duration(text)?;
    if parsed < TTL_MIN {
        let (least, usual) = (units::shown(TTL_MIN), units::shown(TTL_DEFAULT));
        return Err(format!("at least {least}\nhint: {usual} rides out what busy machines do"));
    }
    Ok(parsed)
}

impl WorkArgs {
    /// How the queue is opened.
    pub(super) fn builder(&self) -> Builder {
        Queue::builder().ttl(self.ttl)
    }

    /// Whether it goes on until it is told to end.
    pub(super) fn is_service(&self) -> bool {
        !self.until_empty
    }

    /// A command that is not there would cost every job an attempt.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let Some(program) = self.command.first() else { return Ok(()) };
        let shown = program.to_string_lossy();
        match find(program) {
            Found::Program => Ok(()),
            Found::Other => {
                let failure = format!("`{shown}` is not a program that may be executed");
                Err(Failure::new(Exit::Child(CANNOT_RUN), failure)
                    .hint("`chmod +x` makes a script one; its first line names its shell"))
            }
            Found::Nothing => {
                let failure = format!("`{shown}` does not exist");
                Err(Failure::new(Exit::Child(NOT_FOUND), failure)
                    .hint("is it installed, and in `PATH`?"))
            }
        }
    }

    fn worker(&self, queue: &Queue) -> Worker {
        let worker = Worker::new(queue, &self.queue)
            .concurrency(usize::from(self.concurrency))
            // A command takes far longer than a claim: there is nothing to be gained by claiming ahead.
            .prefetch(0)
            .max_attempts(self.max_attempts)
            .backoff(Backoff::new(self.backoff, self.backoff.max(Duration::from_secs(3_600))))
            .grace(self.grace + KILL_AFTER + MARGIN);
        let worker = match self.timeout {
            Some(timeout) => worker.timeout(timeout),
            None => worker,
        };
        match self.keep {
            Some(time) => worker.keep(time),
            None => worker,
        }
    }
}

enum Found {
    Program,
    Other,
    Nothing,
}

/// Looks for a program as a shell does.
fn find(program: &OsStr) -> Found {
    use std::os::unix::fs::PermissionsExt as _;
    let look = |path: &Path| match std::fs::metadata(path) {
        Ok(file) if file.is_file() && file.permissions().mode() & 0o111 != 0 => Found::Program,
        Ok(_) => Found::Other,
        Err(_) => Found::Nothing,
    };
    if program.as_encoded_bytes().contains(&b'/') {
        return look(Path::new(program));
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut best = Found::Nothing;
    for folder in std::env::split_paths(&folders) {
        match look(&folder.join(program)) {
            Found::Program => return Found::Program,
            Found::Other => best = Found::Other,
            Found::Nothing => {}
        }
    }
    best
}

/// Carries it out.
pub(crate) async fn run(
    args: WorkArgs,
    desk: Desk,
    audit: Option<AuditLog>,
) -> Result<Exit, Failure> {
    let Desk { settings, queue, printer, mut signals, .. } = desk;
    let worker = args.worker(&queue);
    let as_json = args.json;
    queue.on_event(move |event| told(event, as_json, printer));
    if let Some(log) = audit.clone() {
        let store = settings.store.shown().to_owned();
        queue.on_event(move |event| log.record(&store, event));
    }
    let (hurry, hurried) = watch::channel(false);
    let shop = Arc::new(Shop::new(
        args.command,
        settings.store.shown().to_owned(),
        (args.raw, args.json),
        args.snooze,
        Grace::default_for(args.ttl),
        hurried,
    ));
    let (end, ended) = oneshot::channel::<()>();
    let grace = args.grace;
    let signalled = tokio::spawn(async move {
        signals.ending().await;
        printer.say(&format!(
            "ending: commands may finish for {}; the next signal ends them",
            units::shown(grace)
        ));
        drop(end);
        tokio::select! {
            () = tokio::time::sleep(grace) => {}
            _ = signals.ending() => {}
        }
        let _ = hurry.send(true);
        // Kept open: a channel that is closed would be taken for another word.
        std::future::pending::<()>().await;
    });
    let keeping = tokio::spawn(shop.clone().keep(args.ttl / 20));
    let ended = async move { drop(ended.await) };
    let handler = {
        let shop = shop.clone();
        move |payload: Box<RawValue>, context| shop.clone().attempt(payload, context)
    };
    let summary = if args.until_empty {
        worker.drain(ended, handler).await
    } else {
        worker.run_until(ended, handler).await
    };
    shop.close().await;
    keeping.abort();
    signalled.abort();
    queue.close().await;
    if let Some(audit) = audit {
        audit.written().await;
    }
    report(summary?, printer);
    Ok(Exit::Done)
}

/// Says what happened, as far as anybody wants to know.
fn told(event: &Event, as_json: bool, printer: Printer) {
    if as_json {
        // Whoever read it has gone; the jobs are still to be done.
        let _ = printer.json(event);
        return;
    }
    let (word, tone) = match event.kind {
        EventKind::Failed => ("failed", Tone::Careful),
        EventKind::Interrupted => {
            ("was interrupted: the store was not reached in time; it will run again", Tone::Careful)
        }
        EventKind::Dead => ("is dead", Tone::Bad),
        EventKind::Lost => ("was lost: this worker was taken for dead", Tone::Bad),
        EventKind::Stale => ("came too late: it was given to another worker", Tone::Bad),
        EventKind::Cancelled => ("was cancelled", Tone::Faint),
        _ => return,
    };
    let job = event.job.map(|id| id.to_string()).unwrap_or_default();
    let attempt = event.attempt.map_or_else(String::new, |number| format!(", attempt {number},"));
    let why = event.message.as_ref().map_or_else(String::new, |message| format!(": {message}"));
    printer.say(&format!("job {job}{attempt} {}{why}", printer.tone(tone, word)));
}

fn report(summary: Summary, printer: Printer) {
    let Summary { done, failed, dead, other, interrupted, lost, .. } = summary;
    let mut parts = vec![format!("{done} done")];
    let rest = [
        (failed, "attempts failed"),
        (dead, "dead"),
        (other, "given back"),
        (interrupted, "interrupted"),
        (lost, "lost"),
    ];
    parts.extend(rest.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")));
    printer.say(&parts.join(", "));
}

/// A failure of a job in words, from whatever could not be done for it.
pub(super) fn not_done(what: &str, error: &dyn std::error::Error) -> JobFailure {
    JobFailure::new(format!("{what}: {error}"))
}

/// The clock that deadlines are by.
pub(super) fn now() -> leaseward::clock::Moment {
    SystemClock.now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        assert!(matches!(find(OsStr::new("sh")), Found::Program));
        assert!(matches!(find(OsStr::new("/bin/sh")), Found::Program));
        assert!(matches!(find(OsStr::new("/etc/passwd")), Found::Other));
        assert!(matches!(find(OsStr::new("no-such-program")), Found::Nothing));
        assert!(matches!(find(OsStr::new("./no-such-program")), Found::Nothing));
    }

    #[test]
    fn too_short_a_life_is_refused() {
        assert!(ttl("199ms").is_err_and(|error| error.contains("hint: ")));
        assert!(ttl("200ms").is_ok());
    }
}
