//! `leaseward show`: one name, its holders and its queue.

use clap::Args;
use leaseward::{
    Name,
    store::{HeldView, LockView, Query, WaiterView},
};
use serde::Serialize;

use crate::{
    commands::ls::{HeldRow, mode, mode_shown, remaining_shown},
    exit::Exit,
    failure::Failure,
    known,
    printer::{Printer, Tone},
    session::Session,
    units,
};

/// Show who holds a name and who waits for it, in order
#[derive(Args, Debug)]
#[command(after_long_help = AFTER)]
pub(crate) struct ShowArgs {
    /// The name
    name: String,

    /// Print JSON for programs: `name`, `holders` and `waiters`, next first
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Examples:
    leaseward show deploy
    leaseward show deploy --json | jq '.waiters | length'";

#[derive(Serialize)]
struct Shown<'a> {
    name: &'a str,
    holders: Vec<HeldRow<'a>>,
    waiters: Vec<WaiterRow<'a>>,
}

#[derive(Serialize)]
struct WaiterRow<'a> {
    who: &'a str,
    mode: &'static str,
    waited_ms: u64,
}

/// Carries it out.
pub(crate) async fn run(args: ShowArgs, session: &mut Session) -> Result<Exit, Failure> {
    let name = Name::new(&args.name)?;
    let locks = session.locks.clone();
    let found = session.answer(locks.inspect(Query::Name(name.clone()))).await?;
    let empty = LockView { name, holders: Vec::new(), waiters: Vec::new() };
    let view = found.into_iter().next().unwrap_or(empty);
    if args.json {
        session.printer.json(&for_programs(&view))?;
    } else {
        for_people(&view, session.printer)?;
    }
    Ok(Exit::Done)
}

fn for_programs(view: &LockView) -> Shown<'_> {
    Shown {
        name: view.name.as_str(),
        holders: view.holders.iter().map(|held| HeldRow::of(view, held)).collect(),
        waiters: view.waiters.iter().map(waiter_row).collect(),
    }
}

fn waiter_row(waiter: &WaiterView) -> WaiterRow<'_> {
    WaiterRow {
        who: &waiter.who,
        mode: mode(waiter.mode).0,
        waited_ms: units::millis(waiter.waited),
    }
}

fn for_people(view: &LockView, printer: Printer) -> Result<(), Failure> {
    let name = printer.out_tone(Tone::Strong, &view.name);
    if view.holders.is_empty() && view.waiters.is_empty() {
        return printer.line(&format!("{name} is free"));
    }
    match view.holders.len() {
        0 => printer.line(&format!("{name} is free, and about to go to the first who waits"))?,
        1 => printer.line(&format!("{name} is held by"))?,
        many => printer.line(&format!("{name} is held by {many}"))?,
    }
    if !view.holders.is_empty() {
        let head = ["  HOLDER", "MODE", "HELD", "EXPIRES IN", "TTL", "FENCE", "VALUE"];
        printer.table(&head, view.holders.iter().map(holder_cells).collect())?;
    }
    if view.waiters.is_empty() {
        return printer.line("nobody waits for it");
    }
    printer.line(&format!("{} waiting, next first", view.waiters.len()))?;
    let cells = view.waiters.iter().enumerate().map(|(at, waiter)| waiter_cells(at, waiter));
    printer.table(&["  #", "WAITER", "MODE", "WAITED"], cells.collect())
}

fn holder_cells(held: &HeldView) -> Vec<String> {
    vec![
        format!("  {}", held.who),
        mode_shown(held),
        known::cell(known::held_for(held), units::shown),
        remaining_shown(held),
        known::cell(known::ttl(held), units::shown),
        known::cell(known::fence(held), |fence| fence.to_string()),
        known::cell(held.value.as_ref(), leaseward::Value::to_text),
    ]
}

fn waiter_cells(at: usize, waiter: &WaiterView) -> Vec<String> {
    vec![
        format!("  {}", at + 1),
        waiter.who.to_string(),
        waiter.mode.to_string(),
        units::shown(waiter.waited),
    ]
}
