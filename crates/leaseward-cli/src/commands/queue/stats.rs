//! `leaseward queue stats`: all queues, from counters.

use clap::Args;
use leaseward_queue::QueueStats;

use super::Desk;
use crate::{exit::Exit, failure::Failure};

/// Show how many jobs each queue has, and has had
///
/// As quick with a million jobs as with none. With `--json` one array of objects: `name`, `paused`, `limit`, `key_limit`,
/// `ready`, `later`, `blocked`, `running`, `dead`, and since the queue was made `pushed`, `done`, `failed`, `interrupted`,
/// `cancelled`.
#[derive(Args, Debug)]
pub(crate) struct StatsArgs {
    /// Only this queue
    #[arg(long, short, value_name = "NAME")]
    queue: Option<String>,

    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

/// What stands above the columns of [`cells`].
pub(super) const HEAD: [&str; 10] = [
    "QUEUE",
    "READY",
    "RUNNING",
    "LATER",
    "BLOCKED",
    "DEAD",
    "PUSHED",
    "DONE",
    "FAILED",
    "INTERRUPTED",
];

/// Carries it out.
pub(crate) async fn run(args: &StatsArgs, desk: &mut Desk) -> Result<Exit, Failure> {
    if let Some(name) = &args.queue {
        desk.known(name).await?;
    }
    let queue = desk.queue.clone();
    let mut all = desk.answer(queue.stats()).await?;
    all.retain(|stats| args.queue.as_ref().is_none_or(|name| *name == stats.name));
    if args.json {
        desk.printer.json(&all)?;
    } else if all.is_empty() {
        let store = desk.settings.store.shown();
        desk.printer.say(&format!("there are no queues in {store}"));
    } else {
        desk.printer.table(&HEAD, all.iter().map(cells).collect())?;
    }
    Ok(Exit::Done)
}

/// A queue as a line of a table.
pub(super) fn cells(stats: &QueueStats) -> Vec<String> {
    let name = match (stats.paused, stats.limit) {
        (true, _) => format!("{} (paused)", stats.name),
        (false, Some(limit)) => format!("{} (at most {limit})", stats.name),
        (false, None) => stats.name.clone(),
    };
    let numbers = [
        stats.ready,
        stats.running,
        stats.later,
        stats.blocked,
        stats.dead,
        stats.pushed,
        stats.done,
        stats.failed,
        stats.interrupted,
    ];
    std::iter::once(name).chain(numbers.map(|number| number.to_string())).collect()
}
