//! `leaseward queue cancel`: jobs that are not wanted any more.

use clap::Args;
use leaseward_queue::{Cancelled, JobId};
use serde_json::json;

use super::{Desk, bulk::Bar, show::gone, view::State};
use crate::{exit::Exit, failure::Failure};

/// Jobs read by one statement.
const PAGE: u32 = 500;

/// What is cancelled with `--all`, unless `--state` says otherwise: all that has not begun.
const WAITING: [State; 3] = [State::Ready, State::Later, State::Blocked];

/// Cancel jobs
///
/// One that has not begun is taken out at once; the worker of one that runs is told, and ends its command: SIGTERM, then
/// SIGKILL. Ends with 1 if one of the jobs named is not there. With `--json` one object for each job, `id` and `became`
/// (`taken_out`, `told`, `no_such_job`); with `--all` one object, `cancelled`: how many.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER)]
pub(crate) struct CancelArgs {
    /// Which jobs
    #[arg(value_name = "ID", required_unless_present = "all")]
    ids: Vec<JobId>,

    /// All jobs of the queue that have not begun
    #[arg(long, requires = "queue", conflicts_with = "ids")]
    all: bool,

    /// The queue whose jobs are meant
    #[arg(long, short, value_name = "NAME", requires = "all")]
    queue: Option<String>,

    /// With `--all`, only those in this state; may be given several times
    #[arg(long, short, value_name = "STATE", value_enum, requires = "all")]
    state: Vec<State>,

    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Examples:
    leaseward queue cancel 1-8-1042
    leaseward queue cancel --queue mail --all
    leaseward queue cancel --queue mail --all --state running";

/// Carries it out.
pub(crate) async fn run(args: CancelArgs, desk: &mut Desk) -> Result<Exit, Failure> {
    if let Some(name) = &args.queue {
        let states = if args.state.is_empty() { WAITING.to_vec() } else { args.state.clone() };
        let count = all(name, &states, desk).await?;
        if args.json {
            desk.printer.json(&json!({ "queue": name, "cancelled": count }))?;
        } else {
            desk.printer.say(&format!("{count} jobs of `{name}` were cancelled"));
        }
        return Ok(Exit::Done);
    }
    let queue = desk.queue.clone();
    let mut missing = None;
    for id in args.ids {
        let became = desk.answer(queue.cancel(id)).await?;
        let (word, sentence) = match became {
            Cancelled::TakenOut => ("taken_out", "will not run"),
            Cancelled::Told => ("told", "runs; its worker was told to end it"),
            Cancelled::NoSuchJob => ("no_such_job", "is not there"),
        };
        if args.json {
            desk.printer.json(&json!({ "id": id, "became": word }))?;
        } else if became != Cancelled::NoSuchJob {
            desk.printer.say(&format!("`{id}` {sentence}"));
        }
        if became == Cancelled::NoSuchJob {
            missing = Some(id);
        }
    }
    missing.map_or(Ok(Exit::Done), |id| Err(gone(id)))
}

async fn all(name: &str, states: &[State], desk: &mut Desk) -> Result<u64, Failure> {
    desk.known(name).await?;
    let queue = desk.queue.clone();
    let stats = desk.answer(queue.stats()).await?;
    let stats = stats.into_iter().find(|stats| stats.name == name).unwrap_or_default();
    let of = |state: &State| match state {
        State::Ready => stats.ready,
        State::Later => stats.later,
        State::Blocked => stats.blocked,
        State::Running => stats.running,
        State::Dead | State::Done | State::Cancelled => 0,
    };
    let bar = Bar::of(states.iter().map(of).sum(), "cancelling", desk.printer);
    let mut count = 0;
    for state in states {
        let mut after = None;
        loop {
            let page = desk.answer(queue.jobs(name, state.meant(), after, PAGE)).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.id);
            for job in page {
                let became = desk.answer(queue.cancel(job.id)).await?;
                count += u64::from(became != Cancelled::NoSuchJob);
                bar.step();
            }
        }
    }
    Ok(count)
}
