//! `leaseward run`: a command under a lock.

use std::{collections::BTreeMap, ffi::OsString, time::Duration};

use clap::Args;
use leaseward::{Fence, LostReason, Name};

use crate::{
    child::{Ending, Grace, Job, Tenure as _, Verdict, settle, supervise},
    claim::{Claim, ClaimArgs},
    exit::Exit,
    failure::Failure,
    hold::{self, Hold},
    session::Session,
    units,
};

/// Run a command under a lock
///
/// Waits until the name is ours, without limit unless told otherwise, runs the command, and gives the name back when it
/// ends. The lease is renewed in the background as long as the command runs.
///
/// The command never outlives the lease. If the lease can no longer be renewed, or is lost, the command's process group
/// gets SIGTERM and, before the lease ends, SIGKILL; `run` then exits with 76. A small watchdog process does the same
/// when `leaseward` itself is killed with -9 or frozen. When the command has ended, whatever it left running in its
/// process group is ended too, SIGTERM first and SIGKILL after the grace, and only then the name is free; processes
/// that left the group (daemons, `setsid`) are out of reach.
///
/// The command finds in its environment `LEASEWARD_NAME`, `LEASEWARD_FENCE` (a number that grows with each acquisition:
/// give it to the resource you write to, and let that refuse smaller ones), with several names also `LEASEWARD_FENCES`
/// (a JSON object), and `LEASEWARD_STORE`, never with a password. stdin, stdout and stderr are the command's own.
/// Signals sent to `leaseward` are passed on to the command's process group. On a terminal that group has the
/// foreground; a job stopped with Ctrl-Z is not renewed and is ended if it is not resumed before its lease ends.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    claim: ClaimArgs,

    /// Hold the name at least this long, also when the command ends earlier
    ///
    /// For cron on several machines whose clocks differ: the second machine finds the name still held.
    #[arg(long, value_name = "DURATION", value_parser = units::duration, allow_hyphen_values = true)]
    min_hold: Option<Duration>,

    /// Time between SIGTERM and the end of the lease [default: `LEASEWARD_GRACE`, a quarter of the TTL, at most 10s]
    #[arg(long, value_name = "DURATION", value_parser = units::duration, allow_hyphen_values = true)]
    grace: Option<Duration>,

    /// Exit with this code instead of 75 when the name is busy or the wait timed out
    #[arg(long, value_name = "N")]
    busy_code: Option<u8>,

    /// What to lock, such as `deploy` or `table:42`; several are taken together
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,

    /// The command and its arguments, behind `--`
    #[arg(value_name = "CMD", last = true, required = true)]
    command: Vec<OsString>,
}

const AFTER: &str = "\
Examples:
  Deploy one at a time; whoever comes second waits:
    leaseward run deploy -- ./deploy.sh

  Cron on three machines, run once; skip quietly if it runs elsewhere:
    leaseward run --no-wait --busy-code 0 --min-hold 1m nightly -- backup --all

  Wait a minute at most, then do something else:
    leaseward run --wait 1m report -- ./report.sh; [ $? = 75 ] && echo busy

  Four at a time on the GPU; many readers, one writer:
    leaseward run --permits 4 gpu -- ./train.py
    leaseward run --shared doc -- ./read.sh

  Two names at once, in any order, without deadlock:
    leaseward run account:1 account:2 -- ./transfer.sh

  Let the database refuse a writer that was paused too long:
    leaseward run job -- sh -c 'psql -v fence=$LEASEWARD_FENCE -f write.sql'

Exit codes:
  the command's own, 128+n if it was ended by signal n
  126, 127  the command cannot be run, or does not exist
  75        busy, or not ours within the time given
  76        the lease was lost and the command was ended
  69        the store cannot be reached, or refuses
  2         the command line cannot be used; nothing was changed";

/// Carries it out.
pub(crate) async fn run(args: RunArgs, session: &mut Session) -> Result<Exit, Failure> {
    let mut claim = args.claim.claim(&args.names, session)?;
    claim.min_hold = args.min_hold;
    let grace = grace(args.grace.or(session.settings.grace), claim.ttl)?;
    let mut job = Job { command: args.command, environment: Vec::new(), grace, ttl: claim.ttl };
    let held = loop {
        let held = hold::obtain(&claim, session).await;
        let held = held.map_err(|failure| with_busy_code(failure, args.busy_code))?;
        settle(&job, &held).await;
        // Granted in the last moments of an outage, it may have ended before anything was done under it.
        if held.is_held() {
            break held;
        }
    };
    job.environment = environment(&held, session);
    let verdict = supervise(&job, &held, &mut session.signals).await;
    finish(verdict, held, &claim, session).await
}

/// The grace that was asked for, or the default.
pub(crate) fn grace(asked: Option<Duration>, ttl: Duration) -> Result<Grace, Failure> {
    let Some(asked) = asked else { return Ok(Grace::default_for(ttl)) };
    Grace::chosen(asked, ttl).ok_or_else(|| {
        Failure::usage(format!(
            "a grace of {} is more than half of the TTL of {}",
            units::shown(asked),
            units::shown(ttl)
        ))
        .hint("give a longer `--ttl` or a shorter `--grace`")
    })
}

fn with_busy_code(mut failure: Failure, code: Option<u8>) -> Failure {
    if let (Exit::Busy(_), Some(code)) = (failure.exit, code) {
        failure.exit = Exit::Busy(code);
    }
    failure
}

/// What the command is told about its lease.
fn environment(held: &Hold, session: &Session) -> Vec<(&'static str, String)> {
    let fences = held.fences();
    let mut variables = vec![("LEASEWARD_STORE", session.settings.store.shown().to_owned())];
    if let Some((name, fence)) = fences.first() {
        variables.push(("LEASEWARD_NAME", name.to_string()));
        variables.push(("LEASEWARD_FENCE", fence.to_string()));
    }
    if fences.len() > 1 {
        variables.push(("LEASEWARD_FENCES", as_json(&fences)));
    }
    variables
}

fn as_json(fences: &[(Name, Fence)]) -> String {
    let object: BTreeMap<&str, u64> =
        fences.iter().map(|(name, fence)| (name.as_str(), fence.get())).collect();
    serde_json::to_string(&object).unwrap_or_default()
}

/// Gives the names back and says how it went.
async fn finish(
    verdict: Result<Verdict, Failure>,
    held: Hold,
    claim: &Claim,
    session: &Session,
) -> Result<Exit, Failure> {
    match verdict {
        Ok(Verdict::Ended(ending)) => {
            if let Err(error) = held.release().await {
                session.printer.warning(&format!("{} was not given back: {error}", claim.shown()));
                session.printer.hint(&format!("it comes free within {}", units::shown(claim.ttl)));
            }
            Ok(exit_of(ending))
        }
        Ok(Verdict::Lost(reason)) => {
            // Said before anything is given back, which nobody waits for: the store may be what failed.
            session.printer.failure(&lost(claim, reason));
            drop(held);
            Ok(Exit::Lost)
        }
        Err(failure) => {
            let _ = held.release().await;
            Err(failure)
        }
    }
}

/// What a script sees of the way a command ended.
pub(crate) fn exit_of(ending: Ending) -> Exit {
    match ending {
        Ending::Code(0) => Exit::Done,
        Ending::Code(code) => Exit::Child(code),
        Ending::Signal(number) => Exit::Signal(number),
    }
}

/// The command was ended because its lease was.
pub(crate) fn lost(claim: &Claim, reason: Option<LostReason>) -> Failure {
    let why = match reason {
        Some(reason) => reason.to_string(),
        None => "it could not be renewed in time".to_owned(),
    };
    let failure = Failure::new(
        Exit::Lost,
        format!("the lease on {} was lost, so the command was ended: {why}", claim.shown()),
    );
    match reason {
        Some(LostReason::Broken) => {
            failure.hint("who broke it stands in the audit file, if one is set up")
        }
        // A store that answers had no outage.
        Some(LostReason::NotOurs) => failure.hint(
            "was it freed with `leaseward break --now`? the audit file says so, if one is set up; else `leaseward doctor` looks for what takes leases away: a restart that loses them, eviction, other programs",
        ),
        _ => failure.hint(
            "a longer `--ttl` rides out longer outages of the store and pauses of the machine",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_follow_the_shell() {
        assert_eq!(exit_of(Ending::Code(0)).code(), 0);
        assert_eq!(exit_of(Ending::Code(3)).code(), 3);
        assert_eq!(exit_of(Ending::Signal(9)).code(), 137);
    }

    #[test]
    fn only_busy_takes_the_busy_code() {
        let busy = with_busy_code(Failure::new(Exit::Busy(75), ""), Some(0));
        assert_eq!(busy.exit.code(), 0);
        let down = with_busy_code(Failure::new(Exit::Unavailable, ""), Some(0));
        assert_eq!(down.exit.code(), 69);
    }

    #[test]
    fn several_fences_are_one_object() {
        let names = [("b", 2), ("a", 1)];
        let fences: Vec<_> = names
            .iter()
            .map(|(name, fence)| (Name::new(name).expect("good"), Fence::new(*fence)))
            .collect();
        assert_eq!(as_json(&fences), r#"{"a":1,"b":2}"#);
    }
}
