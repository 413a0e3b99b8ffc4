//! `leaseward elect`: a command that runs on one machine at a time.

use std::{ffi::OsString, time::Duration};

use clap::Args;
use leaseward::Name;

use crate::{
    child::{Job, Verdict, supervise},
    claim::{Claim, Kind, Patience},
    commands::run::{exit_of, grace, lost},
    exit::Exit,
    failure::Failure,
    hold::patiently,
    outage,
    session::{Session, interrupted},
    units,
};

/// Run a command while this process is the leader
///
/// Campaigns for the name and runs the command once elected. If leadership is lost, the command is ended exactly as
/// `leaseward run` does it, before anybody else can be leader, and the campaign starts again, unless `--once` is given.
/// When the command ends by itself, leadership is given up and `elect` ends with the command's code.
///
/// A store that is away, at the start or later, is waited for, however long that takes: stderr says once that it is away
/// and once that it is back. What does not pass by itself, such as a wrong password, ends `elect` at once with 69.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER)]
pub(crate) struct ElectArgs {
    /// How long leadership lasts without renewal [default: `LEASEWARD_TTL`, `ttl` of the configuration, 30s]
    #[arg(long, value_name = "DURATION", value_parser = units::ttl, allow_hyphen_values = true)]
    ttl: Option<Duration>,

    /// Time between SIGTERM and the end of the lease [default: a quarter of the TTL, at most 10s]
    #[arg(long, value_name = "DURATION", value_parser = units::duration, allow_hyphen_values = true)]
    grace: Option<Duration>,

    /// What others see of the leader, such as its address; up to 1 KiB
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    value: String,

    /// End with 76 when leadership is lost, instead of campaigning again
    #[arg(long)]
    once: bool,

    /// What to be the leader of
    name: String,

    /// The command and its arguments, behind `--`
    #[arg(value_name = "CMD", last = true, required = true)]
    command: Vec<OsString>,
}

const AFTER: &str = "\
Examples:
  A scheduler that runs on one of many machines and moves when that one dies:
    leaseward elect scheduler --ttl 10s -- ./scheduler

  Tell the others where the leader is, and look it up:
    leaseward elect primary --value \"$(hostname):8080\" -- ./serve
    leaseward show primary --json | jq -r '.holders[0].value'";

/// Carries it out.
pub(crate) async fn run(args: ElectArgs, session: &mut Session) -> Result<Exit, Failure> {
    let claim = Claim {
        names: vec![Name::new(&args.name)?],
        kind: Kind::Exclusive,
        ttl: args.ttl.unwrap_or(session.settings.ttl),
        patience: Patience::Forever,
        min_hold: None,
    };
    leaseward::Value::new(&args.value)?;
    let _announcing = outage::announce(&session.locks, session.printer);
    let mut job = Job {
        command: args.command,
        environment: Vec::new(),
        grace: grace(args.grace.or(session.settings.grace), claim.ttl)?,
        ttl: claim.ttl,
    };
    loop {
        let Some(exit) = term(&claim, &mut job, &args.value, session).await? else {
            if args.once {
                return Ok(Exit::Lost);
            }
            // It came while the command was being ended anyway, and meant `elect` too.
            if let Some(signal) = session.signals.asked_to_end() {
                return Err(interrupted(signal));
            }
            continue;
        };
        return Ok(exit);
    }
}

/// One term of office; `None` if it ended against our will.
async fn term(
    claim: &Claim,
    job: &mut Job,
    value: &str,
    session: &mut Session,
) -> Result<Option<Exit>, Failure> {
    let printer = session.printer;
    let election = session.locks.election(claim_name(claim)).ttl(claim.ttl);
    let campaign = async { Ok(election.campaign(value).await?) };
    let leader = patiently(claim, session, campaign).await?;
    job.environment = vec![
        ("LEASEWARD_STORE", session.settings.store.shown().to_owned()),
        ("LEASEWARD_NAME", claim_name(claim)),
        ("LEASEWARD_FENCE", leader.fence().to_string()),
    ];
    let verdict = supervise(job, &leader, &mut session.signals).await;
    match verdict? {
        Verdict::Ended(ending) => {
            if let Err(error) = leader.resign().await {
                printer.warning(&format!("leadership was not given back: {error}"));
            }
            Ok(Some(exit_of(ending)))
        }
        Verdict::Lost(reason) => {
            // Said before anything is given back, which nobody waits for: the store may be what failed.
            printer.failure(&lost(claim, reason));
            drop(leader);
            Ok(None)
        }
    }
}

fn claim_name(claim: &Claim) -> String {
    claim.names.iter().map(ToString::to_string).collect()
}
