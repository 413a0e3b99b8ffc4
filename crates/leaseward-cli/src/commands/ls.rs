//! `leaseward ls`: who holds what.

use clap::Args;
use leaseward::{
    Fence, Mode,
    store::{HeldView, LockView, Query},
};
use serde::Serialize;

use crate::{exit::Exit, failure::Failure, known, session::Session, units};

/// The most names listed: more than a person reads, less than hurts a store.
const LIMIT: usize = 100_000;

/// List what is held, by whom, and how many wait
///
/// With `--json` one array of objects with `name`, `mode`, `holder`, `fence`, `ttl_ms`, `remaining_ms`, `held_ms` and
/// `waiters`; a name with several holders has one object for each. What is not known, as of locks of other libraries, is
/// `null`; so is `remaining_ms` of a lock of which no expiry is known: it has none, or ends with its holder's session.
#[derive(Args, Debug)]
#[command(visible_alias = "list", after_long_help = AFTER)]
pub(crate) struct LsArgs {
    /// Only names that begin with this
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    prefix: String,

    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Examples:
    leaseward ls --prefix table:
    leaseward ls --json | jq -r '.[] | select(.waiters > 0) | .name'";

/// One lease, as programs see it.
#[derive(Debug, Serialize)]
pub(crate) struct HeldRow<'a> {
    name: &'a str,
    mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    capacity: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slot: Option<u32>,
    holder: &'a str,
    fence: Option<u64>,
    ttl_ms: Option<u64>,
    remaining_ms: Option<u64>,
    held_ms: Option<u64>,
    waiters: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    ending: bool,
}

impl<'a> HeldRow<'a> {
    pub(crate) fn of(view: &'a LockView, held: &'a HeldView) -> Self {
        let (mode, capacity) = mode(held.mode);
        Self {
            name: view.name.as_str(),
            mode,
            capacity,
            slot: held.slot,
            holder: &held.who,
            fence: known::fence(held).map(Fence::get),
            ttl_ms: known::ttl(held).map(units::millis),
            remaining_ms: held.remaining.map(units::millis),
            held_ms: known::held_for(held).map(units::millis),
            waiters: view.waiters.len(),
            value: held.value.as_ref().map(leaseward::Value::to_text),
            ending: held.ending,
        }
    }
}

/// A mode as one word, and the capacity of a semaphore.
pub(crate) fn mode(mode: Mode) -> (&'static str, Option<u32>) {
    match mode {
        Mode::Exclusive => ("exclusive", None),
        Mode::Shared => ("shared", None),
        Mode::Permit { capacity } => ("permit", Some(capacity)),
        _ => ("other", None),
    }
}

/// How a lease is held, for people.
pub(crate) fn mode_shown(held: &HeldView) -> String {
    match (held.mode, held.slot) {
        (Mode::Permit { capacity }, Some(slot)) => format!("permit {} of {capacity}", slot + 1),
        (mode, _) => mode.to_string(),
    }
}

/// How long a lease lasts yet, for people.
pub(crate) fn remaining_shown(held: &HeldView) -> String {
    let left = held.remaining.map_or_else(|| "not known".to_owned(), units::shown);
    if held.ending { format!("{left}, ending") } else { left }
}

/// Carries it out.
pub(crate) async fn run(args: LsArgs, session: &mut Session) -> Result<Exit, Failure> {
    let query = Query::Prefix { prefix: args.prefix.clone(), after: None, limit: LIMIT };
    let locks = session.locks.clone();
    let views = session.answer(locks.inspect(query)).await?;
    let printer = session.printer;
    if args.json {
        let rows: Vec<HeldRow<'_>> = views
            .iter()
            .flat_map(|view| view.holders.iter().map(|held| HeldRow::of(view, held)))
            .collect();
        printer.json(&rows)?;
        return Ok(Exit::Done);
    }
    let rows: Vec<Vec<String>> =
        views.iter().flat_map(|view| view.holders.iter().map(|held| row(view, held))).collect();
    if rows.is_empty() {
        printer.say(&nothing(&args.prefix, session.settings.store.shown()));
        return Ok(Exit::Done);
    }
    printer.table(&["NAME", "MODE", "HOLDER", "HELD", "EXPIRES IN", "WAITING", "FENCE"], rows)?;
    Ok(Exit::Done)
}

fn row(view: &LockView, held: &HeldView) -> Vec<String> {
    let waiting = match view.waiters.len() {
        0 => "-".to_owned(),
        waiting => waiting.to_string(),
    };
    vec![
        view.name.to_string(),
        mode_shown(held),
        held.who.to_string(),
        known::cell(known::held_for(held), units::shown),
        remaining_shown(held),
        waiting,
        known::cell(known::fence(held), |fence| fence.to_string()),
    ]
}

fn nothing(prefix: &str, store: &str) -> String {
    if prefix.is_empty() {
        format!("nothing is held in {store}")
    } else {
        format!("nothing that begins with `{prefix}` is held in {store}")
    }
}
