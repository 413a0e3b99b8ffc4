//! `leaseward queue ls`: jobs, next first.

use clap::Args;
use leaseward_queue::{JobState, JobView};

use super::{
    Desk,
    view::{JobRow, State, age, failures, when, word},
};
use crate::{exit::Exit, failure::Failure};

/// Jobs read by one statement.
const PAGE: u32 = 500;

/// How much of a payload fits into a table.
const PAYLOAD_CHARS: usize = 48;

/// List jobs, in the order of claims
///
/// With `--json` one object a line: `id`, `queue`, `state`, `priority`, `payload`, `pushed_us`, `at_us` (when it is due,
/// was claimed, or ended), `failures`, `interruptions` (which do not count), `max_attempts`, `key`, `fence`, `worker`,
/// `worker_vanished` (it gave no sign of life for its TTL; the job will run again), `history` (the last failures: `attempt`,
/// `at_us`, `fence`, `error`), `trace`, `progress`, `result`.
#[derive(Args, Debug)]
#[command(visible_alias = "list", after_long_help = AFTER)]
pub(crate) struct LsArgs {
    /// Only of this queue
    #[arg(long, short, value_name = "NAME")]
    queue: Option<String>,

    /// Only in this state; may be given several times
    #[arg(long, short, value_name = "STATE", value_enum)]
    state: Vec<State>,

    /// At most so many of each queue and state
    #[arg(long, short = 'n', value_name = "N", default_value_t = 100)]
    limit: u32,

    /// Print one JSON object for each job
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Examples:
    leaseward queue ls --queue mail --state dead
    leaseward queue ls --state running --json | jq -r .worker";

/// Carries it out.
pub(crate) async fn run(args: &LsArgs, desk: &mut Desk) -> Result<Exit, Failure> {
    let names = match &args.queue {
        Some(name) => {
            desk.known(name).await?;
            vec![name.clone()]
        }
        None => {
            let queue = desk.queue.clone();
            desk.answer(queue.stats()).await?.into_iter().map(|stats| stats.name).collect()
        }
    };
    let states = if args.state.is_empty() { State::ALL.to_vec() } else { args.state.clone() };
    let mut rows = Vec::new();
    for name in &names {
        for state in &states {
            for job in some(desk, name, state.meant(), args.limit).await? {
                if args.json {
                    desk.printer.json(&JobRow::of(name, &job))?;
                } else {
                    rows.push(row(name, &job));
                }
            }
        }
    }
    if args.json {
        return Ok(Exit::Done);
    }
    if rows.is_empty() {
        let store = desk.settings.store.shown();
        desk.printer.say(&format!("no such jobs in {store}"));
        return Ok(Exit::Done);
    }
    let head = ["ID", "QUEUE", "STATE", "WHEN", "PUSHED", "FAILURES", "WORKER", "PAYLOAD"];
    desk.printer.table(&head, rows)?;
    Ok(Exit::Done)
}

async fn some(
    desk: &mut Desk,
    name: &str,
    state: JobState,
    limit: u32,
) -> Result<Vec<JobView>, Failure> {
    let queue = desk.queue.clone();
    let (mut jobs, mut after) = (Vec::new(), None);
    let mut left = limit;
    while left > 0 {
        let page = desk.answer(queue.jobs(name, state, after, left.min(PAGE))).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.id);
        left = left.saturating_sub(u32::try_from(page.len()).unwrap_or(u32::MAX));
        jobs.extend(page);
    }
    Ok(jobs)
}

fn row(queue: &str, job: &JobView) -> Vec<String> {
    let payload = job.payload.get();
    let payload = match payload.char_indices().nth(PAYLOAD_CHARS) {
        Some((end, _)) => format!("{}…", &payload[..end]),
        None => payload.to_owned(),
    };
    vec![
        job.id.to_string(),
        queue.to_owned(),
        word(job).to_owned(),
        when(job),
        format!("{} ago", age(job.pushed_us)),
        failures(job),
        job.worker.clone().unwrap_or_else(|| "-".to_owned()),
        payload,
    ]
}
