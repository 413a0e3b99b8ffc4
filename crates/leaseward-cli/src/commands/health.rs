//! `leaseward health`: whether a store answers, for probes.

use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tokio::time::{Instant, timeout_at};

use crate::{config::Settings, exit::Exit, failure::Failure, printer::Printer, units};

/// Ask the store once whether it answers
///
/// Connects as every other command does and makes one round trip. Prints one line, and ends within `--timeout`: with 0 if the
/// store answers, with 69 if it does not, or refuses. For liveness and readiness probes and for monitoring; `leaseward doctor`
/// looks more closely.
///
/// With `--json` one object with `store`, `healthy`, `round_trip_us` and `error` (`message`, `hint`).
#[derive(Args, Debug)]
#[command(after_long_help = AFTER)]
pub(crate) struct HealthArgs {
    /// How long all of it may take
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "1s")]
    timeout: Duration,

    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Examples:
    leaseward health --store redis://cache-1
    leaseward health --timeout 300ms > /dev/null || echo 'no locks'

Exit codes:
    0     the store answers
    69    it does not, or it refuses
    2     the command line or the configuration cannot be used";

/// The answer, as programs read it.
#[derive(Serialize)]
struct Report<'a> {
    store: &'a str,
    healthy: bool,
    round_trip_us: Option<u64>,
    error: Option<Trouble<'a>>,
}

#[derive(Serialize)]
struct Trouble<'a> {
    message: &'a str,
    hint: Option<&'a str>,
}

/// Carries it out.
pub(crate) async fn run(
    args: &HealthArgs,
    settings: &Settings,
    printer: Printer,
) -> Result<Exit, Failure> {
    let until = Instant::now() + args.timeout;
    let asked = timeout_at(until, ask(settings.store.reveal(), until));
    let answer = asked.await.unwrap_or_else(|_| {
        let message = format!("no answer within {}", units::shown(args.timeout));
        Err(Failure::new(Exit::Unavailable, message))
    });
    match answer {
        // A URL that means nothing is no statement about a store.
        Err(failure) if failure.exit == Exit::Usage => Err(failure),
        answer => {
            print(&answer, args, settings, printer)?;
            Ok(if answer.is_ok() { Exit::Done } else { Exit::Unavailable })
        }
    }
}

async fn ask(url: &str, until: Instant) -> Result<Duration, Failure> {
    let locks = leaseward::connect(url).await?;
    let round_trip = locks.health().await.round_trip?;
    // Some stores keep a session, which would outlast the probe. Whether it ends in time says nothing about the answer.
    let _ = timeout_at(until, locks.shutdown()).await;
    Ok(round_trip)
}

fn print(
    answer: &Result<Duration, Failure>,
    args: &HealthArgs,
    settings: &Settings,
    printer: Printer,
) -> Result<(), Failure> {
    let store = settings.store.shown();
    if !args.json {
        return printer.line(&match answer {
            Ok(round_trip) => format!("{store} answers in {}", units::fine(*round_trip)),
            Err(failure) => format!("{store}: {}", failure.message),
        });
    }
    let failure = answer.as_ref().err();
    printer.json(&Report {
        store,
        healthy: answer.is_ok(),
        round_trip_us: answer.as_ref().ok().copied().map(units::micros),
        error: failure
            .map(|failure| Trouble { message: &failure.message, hint: failure.hint.as_deref() }),
    })
}
