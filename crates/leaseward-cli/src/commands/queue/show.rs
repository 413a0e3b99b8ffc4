//! `leaseward queue show`: one job with its history.

use clap::Args;
use leaseward_queue::{JobId, JobView};

use super::{
    Desk,
    view::{JobRow, age, failures, time, when, word},
};
use crate::{exit::Exit, failure::Failure};

/// Show one job, with the errors of its last attempts
///
/// Ends with 1 if there is no such job: it may have been done, and is not remembered unless its worker keeps ended jobs.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER)]
pub(crate) struct ShowArgs {
    /// The id, such as `1-8-1042`
    #[arg(value_name = "ID")]
    id: JobId,

    /// Print JSON for programs, as `ls --json` does
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Examples:
    leaseward queue show 1-8-1042
    leaseward queue show 1-8-1042 --json | jq -r '.history[-1].error'";

/// Carries it out.
pub(crate) async fn run(args: &ShowArgs, desk: &mut Desk) -> Result<Exit, Failure> {
    let queue = desk.queue.clone();
    let Some(job) = desk.answer(queue.job(args.id)).await? else {
        return Err(gone(args.id));
    };
    let name = desk.answer(queue.queue_of(args.id)).await?.unwrap_or_default();
    if args.json {
        desk.printer.json(&JobRow::of(&name, &job))?;
        return Ok(Exit::Done);
    }
    let mut rows = vec![
        ("id", job.id.to_string()),
        ("queue", name),
        ("state", format!("{} {}", word(&job), when(&job)).trim_end_matches(" -").to_owned()),
        ("priority", job.priority.to_string()),
        ("pushed", format!("{} ({} ago)", time(job.pushed_us), age(job.pushed_us))),
        ("failures", failures(&job)),
        ("payload", job.payload.get().to_owned()),
    ];
    rows.extend(rest(&job));
    desk.printer.pairs(&rows)?;
    Ok(Exit::Done)
}

/// What not every job has.
fn rest(job: &JobView) -> Vec<(&'static str, String)> {
    let json = |value: &Option<Box<serde_json::value::RawValue>>| {
        value.as_ref().map(|value| value.get().to_owned())
    };
    let single = [
        ("worker", job.worker.clone()),
        ("fence", job.fence.map(|fence| fence.to_string())),
        ("interrupted", (job.interruptions > 0).then(|| format!("{} times", job.interruptions))),
        ("key", job.key.clone()),
        ("trace", job.trace.clone()),
        ("progress", json(&job.progress)),
        ("result", json(&job.result)),
    ];
    let mut rows: Vec<_> =
        single.into_iter().filter_map(|(label, text)| text.map(|text| (label, text))).collect();
    for (at, failed) in job.history.iter().enumerate() {
        let label = if at == 0 { "history" } else { "" };
        let text = format!("attempt {}, {}: {}", failed.attempt, time(failed.at_us), failed.error);
        rows.push((label, text));
    }
    rows
}

/// There is no such job.
pub(super) fn gone(id: JobId) -> Failure {
    Failure::new(Exit::Other, format!("there is no job `{id}`"))
        .hint("it may have been done: `leaseward queue work --keep DURATION` remembers ended jobs")
}
