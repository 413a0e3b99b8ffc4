//! `leaseward queue retry`: dead letters back into their queues.

use clap::Args;
use leaseward_queue::{JobId, JobState};
use serde_json::json;

use super::{Desk, bulk::Bar, show::gone, view::word};
use crate::{exit::Exit, failure::Failure};

/// Dead letters read by one statement.
const PAGE: u32 = 500;

/// Put dead jobs back into their queues
///
/// With all attempts before them again; their ids and their history stay. Ends with 1 if one of the jobs named is not dead.
/// With `--json` one object for each job, `id` and `retried`; with `--all` one object, `retried`: how many.
#[derive(Args, Debug)]
#[command(visible_alias = "replay", after_long_help = AFTER)]
pub(crate) struct RetryArgs {
    /// Which jobs
    #[arg(value_name = "ID", required_unless_present = "all")]
    ids: Vec<JobId>,

    /// All dead jobs of the queue
    #[arg(long, requires = "queue", conflicts_with = "ids")]
    all: bool,

    /// The queue whose dead jobs are meant
    #[arg(long, short, value_name = "NAME", requires = "all")]
    queue: Option<String>,

    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Examples:
    leaseward queue retry 1-8-1042
    leaseward queue retry --queue mail --all";

/// Carries it out.
pub(crate) async fn run(args: RetryArgs, desk: &mut Desk) -> Result<Exit, Failure> {
    if let Some(name) = args.queue {
        let count = all(&name, desk).await?;
        if args.json {
            desk.printer.json(&json!({ "queue": name, "retried": count }))?;
        } else {
            desk.printer.say(&format!("{count} dead jobs are back in `{name}`"));
        }
        return Ok(Exit::Done);
    }
    let queue = desk.queue.clone();
    let mut last = None;
    for id in args.ids {
        let is_back = desk.answer(queue.replay(id)).await?;
        if args.json {
            desk.printer.json(&json!({ "id": id, "retried": is_back }))?;
        } else if is_back {
            desk.printer.say(&format!("`{id}` is back in its queue"));
        }
        if !is_back {
            last = Some(id);
        }
    }
    let Some(id) = last else { return Ok(Exit::Done) };
    match desk.answer(queue.job(id)).await? {
        None => Err(gone(id)),
        Some(job) => {
            let state = word(&job);
            Err(Failure::new(Exit::Other, format!("`{id}` is not dead, but {state}"))
                .hint("a job that failed and is not dead is tried again by itself"))
        }
    }
}

/// All dead jobs there are now: one that dies again meanwhile is not put back a second time.
async fn all(name: &str, desk: &mut Desk) -> Result<u64, Failure> {
    desk.known(name).await?;
    let queue = desk.queue.clone();
    let stats = desk.answer(queue.stats()).await?;
    let total = stats.iter().find(|stats| stats.name == name).map_or(0, |stats| stats.dead);
    let bar = Bar::of(total, "retrying", desk.printer);
    let (mut count, mut after) = (0, None);
    loop {
        let page = desk.answer(queue.jobs(name, JobState::Dead, after, PAGE)).await?;
        let Some(last) = page.last() else { return Ok(count) };
        after = Some(last.id);
        for job in page {
            count += u64::from(desk.answer(queue.replay(job.id)).await?);
            bar.step();
        }
    }
}
