//! `leaseward events`: what happens to locks, by whomever.

use std::time::{Duration, UNIX_EPOCH};

use clap::Args;
use leaseward::{
    Error, Locks,
    store::{LockView, Observation, Observed, Query},
};
use serde_json::json;

use crate::{
    exit::Exit,
    failure::Failure,
    known,
    outage::{AGAIN, Outage},
    printer::{Printer, Tone},
    session::{Session, interrupted},
    units,
};

/// Show how things stand, and with `--follow` what happens next
///
/// Prints one line for each lease and each waiter there is, and with `--follow` goes on with everything any process
/// does: granted, handed over, released, expired, broken, queued, left. Where a store cannot push that, it is found by
/// comparing snapshots and marked `derived`; short holds may then go unseen.
///
/// With `--json` each line is an object with `at_us`, `name`, `what`, `who`, `fence` and `derived`; how things stood at
/// the start is `held` and `waiting`.
///
/// A store that goes away is waited for. Once it is back, a line `gap` says from when to when events may have been missed
/// (`from_us` and `to_us`); what has changed in between follows it.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER)]
pub(crate) struct EventsArgs {
    /// Go on until interrupted
    #[arg(long, short)]
    follow: bool,

    /// Only names that begin with this
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    prefix: String,

    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

impl EventsArgs {
    /// Whether it goes on with what happens next.
    pub(crate) fn follows(&self) -> bool {
        self.follow
    }
}

const AFTER: &str = "\
Examples:
    leaseward events --follow
    leaseward events --follow --json | jq -c 'select(.what == \"expired\")'";

/// Carries it out.
pub(crate) async fn run(args: EventsArgs, session: &mut Session) -> Result<Exit, Failure> {
    let printer = session.printer;
    let query = Query::Prefix { prefix: args.prefix.clone(), after: None, limit: 100_000 };
    if !args.follow {
        for view in session.locks.inspect(query).await? {
            stands(&view, args.json, printer)?;
        }
        return Ok(Exit::Done);
    }
    // Observing begins before the snapshot is taken, so that nothing falls between the two.
    let mut observations = session.locks.observe().await?;
    for view in session.locks.inspect(query).await? {
        stands(&view, args.json, printer)?;
    }
    loop {
        let next = tokio::select! {
            next = observations.next() => next,
            signal = session.signals.ending() => return Err(interrupted(signal)),
        };
        match next {
            Ok(Some(seen)) if seen.name.starts_with(&args.prefix) => {
                happened(&seen, args.json, printer)?;
            }
            Ok(Some(_)) => {}
            Ok(None) => {
                return Err(Failure::new(Exit::Unavailable, "the store stopped reporting"));
            }
            Err(error) => {
                let from_us = observations.complete_until_us();
                let back = until_back(error, &session.locks, printer);
                tokio::select! {
                    back = back => back?,
                    signal = session.signals.ending() => return Err(interrupted(signal)),
                }
                gap(from_us, now_us(), args.json, printer)?;
            }
        }
    }
}

/// Waits until a store that has just failed answers again.
async fn until_back(error: Error, locks: &Locks, printer: Printer) -> Result<(), Failure> {
    let mut outage = Outage::none_yet(printer);
    outage.failed(error)?;
    loop {
        tokio::time::sleep(AGAIN).await;
        match locks.health().await.round_trip {
            Ok(_) => {
                outage.answered();
                return Ok(());
            }
            Err(error) => outage.failed(error)?,
        }
    }
}

fn gap(from_us: u64, to_us: u64, as_json: bool, printer: Printer) -> Result<(), Failure> {
    if as_json {
        let gap = json!({ "at_us": to_us, "what": "gap", "from_us": from_us, "to_us": to_us });
        return printer.json(&gap);
    }
    let word = printer.out_tone(Tone::Bad, &format!("{:<11}", "gap"));
    let (from, to) = (at(from_us), at(to_us));
    printer.line(&format!("{to}  {word}  events may have been missed from {from} to {to}"))
}

fn stands(view: &LockView, as_json: bool, printer: Printer) -> Result<(), Failure> {
    for held in &view.holders {
        if as_json {
            printer.json(&json!({
                "at_us": now_us(),
                "name": view.name.as_str(),
                "what": "held",
                "who": *held.who,
                "fence": known::fence(held),
                "derived": false,
            }))?;
        } else {
            let since = known::behind(held);
            line(now_us(), "held", Tone::Faint, &view.name, &held.who, &since, printer)?;
        }
    }
    for waiter in &view.waiters {
        if as_json {
            printer.json(&json!({
                "at_us": now_us(),
                "name": view.name.as_str(),
                "what": "waiting",
                "who": *waiter.who,
                "fence": null,
                "derived": false,
            }))?;
        } else {
            let since = format!("for {}", units::shown(waiter.waited));
            line(now_us(), "waiting", Tone::Faint, &view.name, &waiter.who, &since, printer)?;
        }
    }
    Ok(())
}

fn happened(seen: &Observation, as_json: bool, printer: Printer) -> Result<(), Failure> {
    if as_json {
        return printer.json(seen);
    }
    let (word, tone) = match seen.what {
        Observed::Granted => ("granted", Tone::Good),
        Observed::HandedOver => ("handed over", Tone::Good),
        Observed::Released => ("released", Tone::Accent),
        Observed::Expired => ("expired", Tone::Bad),
        Observed::Broken => ("broken", Tone::Bad),
        Observed::Queued => ("queued", Tone::Careful),
        Observed::Left => ("left", Tone::Careful),
        _ => ("changed", Tone::Faint),
    };
    let mut rest = seen.fence.map(|fence| format!("fence {fence}")).unwrap_or_default();
    if seen.derived {
        rest.push_str(" (derived)");
    }
    line(seen.at_us, word, tone, &seen.name, &seen.who, &rest, printer)
}

fn line(
    at_us: u64,
    word: &str,
    tone: Tone,
    name: &str,
    who: &str,
    rest: &str,
    printer: Printer,
) -> Result<(), Failure> {
    let (at, word) = (at(at_us), printer.out_tone(tone, &format!("{word:<11}")));
    printer.line(format!("{at}  {word}  {name}  {who}  {rest}").trim_end())
}

fn at(us: u64) -> humantime::Rfc3339Timestamp {
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_micros(us))
}

fn now_us() -> u64 {
    leaseward::clock::Clock::wall_us(&leaseward::clock::SystemClock)
}
