//! `leaseward doctor`: what silently breaks locks in a store.

mod report;
mod shown;

use std::time::Duration;

use clap::Args;
use leaseward::Locks;

use self::report::{Report, RoundTrips};
use crate::{
    config::Settings,
    exit::Exit,
    failure::Failure,
    looking::Need,
    printer::Printer,
    session::{Session, interrupted},
    units,
};

/// How many round trips are measured: enough for a median, few enough for a store on another continent.
const PINGS: usize = 9;

/// To open a store takes several answers.
const OPENING: Duration = Duration::from_secs(1);

/// What to do where the store's own error does not say.
const ADVICE: &str =
    "check that the store runs, that this machine reaches it, and that the password is right";

/// Check what silently breaks locks in a store
///
/// Connects as every other command and the library do, and looks at the store without changing a lock: whether it
/// answers and how fast, what it promises as it is set up, what would break that, and what in its setting is about to
/// do so, such as a full disk, data that may be thrown away, or a clock that went back.
///
/// A finding is a danger if it can break a promise (two holders, a fence given out twice, leases lost), a warning if it
/// costs speed or leaves little room, a note if it is good to know. Each says what it means and what to do. Dangers come
/// first.
///
/// How fast the store must answer depends on the TTL: the one of the configuration is taken, else 30s.
///
/// With `--json` one object with `store`, `answers`, `round_trip_us` (`min`, `median`, `max`), `guarantee`
/// (`exclusion`, `fences`, `reach`, `breaks_when`), `fence_lead_ms`, `findings` (`severity`, `what`, `meaning`, `advice`),
/// `dangers` and `error` (`message`, `hint`); also where the store cannot be reached.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER)]
pub(crate) struct DoctorArgs {
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Examples:
    leaseward doctor
    leaseward doctor --store sqlite:/var/lib/leaseward/leases.db
    leaseward doctor --json | jq -r '.findings[] | select(.severity == \"danger\") | .what'
    leaseward doctor > /dev/null || echo 'do not deploy'

Exit codes:
    0     no danger was found; there may be warnings
    1     at least one danger was found
    69    the store cannot be reached, or refuses; what was learnt until then is printed
    2     the command line or the configuration cannot be used";

/// Opens the store within the time that its URL has for an answer, and a little: a store that stands still is a finding,
/// and whoever asks for one is not to wait as long as a lock may be worth.
pub(crate) async fn open(settings: Settings, printer: Printer) -> Result<Session, Failure> {
    let Some(patience) = settings.store.timeout().map(|timeout| timeout + OPENING) else {
        return Session::open(settings, Need::Found, None, printer).await;
    };
    let shown = settings.store.shown().to_owned();
    match tokio::time::timeout(patience, Session::open(settings, Need::Found, None, printer)).await
    {
        Ok(opened) => opened,
        Err(_) => {
            let patience = units::shown(patience);
            let message = format!("{shown} did not answer within {patience}");
            Err(Failure::new(Exit::Unavailable, message)
                .hint("is it overloaded or stopped? `timeout` in the URL says how long is waited"))
        }
    }
}

/// Carries it out.
pub(crate) async fn run(args: DoctorArgs, session: &mut Session) -> Result<Exit, Failure> {
    let (locks, ttl) = (session.locks.clone(), session.settings.ttl);
    // The URL shows more than the store's own name for itself: its settings.
    let mut report = Report::new(session.settings.store.shown());
    let failure = tokio::select! {
        examined = examine(&locks, ttl, &mut report) => examined.err().map(Failure::from),
        signal = session.signals.ending() => return Err(interrupted(signal)),
    };
    match failure {
        Some(failure) => Err(cut_short(report, &args, failure, session.printer)),
        None => {
            print(&report, &args, session.printer)?;
            Ok(report.exit())
        }
    }
}

/// Reports a store that could not even be opened; answers what ends the command.
pub(crate) fn not_opened(
    args: &DoctorArgs,
    store: &str,
    failure: Failure,
    printer: Printer,
) -> Failure {
    match failure.exit {
        Exit::Unavailable => cut_short(Report::new(store), args, failure, printer),
        // A URL that means nothing is no statement about a store, and a signal wants silence.
        _ => failure,
    }
}

async fn examine(
    locks: &Locks,
    ttl: Duration,
    report: &mut Report,
) -> Result<(), leaseward::Error> {
    report.guarantee = Some(locks.guarantee());
    let mut trips = RoundTrips::default();
    for _ in 0..PINGS {
        let health = locks.health().await;
        trips.push(health.round_trip?);
        report.fence_lead = health.fence_lead;
        report.round_trips = Some(trips.clone());
    }
    // What was learnt since connecting may change it.
    report.guarantee = Some(locks.guarantee());
    report.findings = locks.diagnose().await?;
    report.findings.extend(trips.finding(ttl));
    Ok(())
}

/// Prints what was learnt before something failed.
fn cut_short(
    mut report: Report,
    args: &DoctorArgs,
    mut failure: Failure,
    printer: Printer,
) -> Failure {
    failure.hint.get_or_insert_with(|| ADVICE.to_owned());
    report.failed(&failure);
    match print(&report, args, printer) {
        Ok(()) => failure,
        Err(unwritten) => unwritten,
    }
}

fn print(report: &Report, args: &DoctorArgs, printer: Printer) -> Result<(), Failure> {
    if args.json { printer.json(&report.for_programs()) } else { shown::print(report, printer) }
}
