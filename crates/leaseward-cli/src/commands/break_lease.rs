//! `leaseward break`: ends a lease against its holder's will.

use std::io::{self, Write};

use clap::Args;
use leaseward::{
    Name,
    store::{Broken, LockView, Query},
};

use crate::{
    exit::Exit,
    failure::Failure,
    known,
    printer::{Printer, Tone},
    session::{Session, interrupted},
    units,
};

/// Take a lock away from its holder
///
/// Refuses further renewals: the holder is told at its next renewal, ends its work, and the name comes free when its
/// lease ends, at the latest after one TTL. Nobody else starts before.
///
/// With `--now` the name is free at once. The old holder may then still be at work until its deadline, beside the new
/// one; only a resource that checks fences is protected.
///
/// Asks first on a terminal; elsewhere `--yes` is needed. Each break is written as a line of JSON to the file named by
/// `audit` in the configuration or by `LEASEWARD_AUDIT`, as is what `run`, `acquire`, `renew`, `release`, `elect` and
/// `queue work` do; if that cannot be written, nothing is broken.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER)]
pub(crate) struct BreakArgs {
    /// The name
    name: String,

    /// Free the name at once, while the old holder may still be at work
    #[arg(long)]
    now: bool,

    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

const AFTER: &str = "\
Examples:
    leaseward show deploy && leaseward break deploy
    LEASEWARD_AUDIT=/var/log/leaseward.jsonl leaseward break deploy --now --yes";

/// Carries it out.
pub(crate) async fn run(args: BreakArgs, session: &mut Session) -> Result<Exit, Failure> {
    let name = Name::new(&args.name)?;
    let printer = session.printer;
    if !args.yes && !printer.can_ask() {
        return Err(Failure::usage(format!("breaking `{name}` needs a yes"))
            .hint("there is no terminal to ask on: add `--yes`"));
    }
    let locks = session.locks.clone();
    let views = session.answer(locks.inspect(Query::Name(name.clone()))).await?;
    let Some(view) = views.into_iter().find(|view| !view.holders.is_empty()) else {
        printer.say(&format!("`{name}` is not held; there is nothing to break"));
        return Ok(Exit::Done);
    };
    if !args.yes && !agreed(&view, args.now, session).await? {
        printer.say("nothing was broken");
        return Ok(Exit::Other);
    }
    let broken = session.answer(locks.break_lease(name.as_str(), args.now)).await?;
    report(&name, args.now, &broken, printer);
    Ok(Exit::Done)
}

/// Says what would happen and asks.
async fn agreed(view: &LockView, now: bool, session: &mut Session) -> Result<bool, Failure> {
    let printer = session.printer;
    for held in &view.holders {
        let name = printer.tone(Tone::Strong, &view.name);
        let line = format!("{name} is held by {} {}", held.who, known::behind(held));
        printer.say(line.trim_end());
    }
    if now {
        printer.warning(STILL_RUNS);
    }
    let question = if now { "Free it at once? [y/N] " } else { "Refuse its renewals? [y/N] " };
    let asked = write!(io::stderr().lock(), "{question}").and_then(|()| io::stderr().flush());
    asked.map_err(|error| Failure::system("cannot ask", &error))?;
    // Read on another thread, so that Ctrl-C is heard meanwhile.
    let answer = tokio::task::spawn_blocking(|| {
        let mut answer = String::new();
        io::stdin().read_line(&mut answer).map(|_| answer)
    });
    let answer = tokio::select! {
        answer = answer => answer,
        signal = session.signals.ending() => {
            printer.say("");
            return Err(interrupted(signal));
        }
    };
    let answer = answer.map_err(io::Error::other).and_then(|answer| answer);
    let answer = answer.map_err(|error| Failure::system("cannot read the answer", &error))?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

const STILL_RUNS: &str = "the old holder may still be at work until its deadline, beside the next \
                          one: only fences protect what it writes to";

fn report(name: &Name, now: bool, broken: &Broken, printer: Printer) {
    if broken.holders.is_empty() {
        printer.say(&format!("`{name}` came free by itself; there was nothing to break"));
        return;
    }
    let who: Vec<&str> = broken.holders.iter().map(|held| &*held.who).collect();
    let who = who.join(", ");
    if now {
        printer.say(&format!("`{name}` is free; it was taken from {who}"));
        printer.warning(STILL_RUNS);
        return;
    }
    let longest = broken.holders.iter().filter_map(|held| held.remaining).max();
    let within = longest.map_or_else(String::new, |left| format!(" within {}", units::shown(left)));
    printer.say(&format!("renewals of {who} are refused; `{name}` comes free{within}"));
}
