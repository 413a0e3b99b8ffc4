//! `leaseward queue pause` and `resume`.

use clap::Args;
use serde_json::json;

use super::{DEFAULT, Desk};
use crate::{exit::Exit, failure::Failure};

/// Have nothing of a queue claimed any more; what runs goes on
///
/// Jobs can still be pushed. `leaseward queue resume` goes on with it.
#[derive(Args, Debug)]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    which: Which,
}

/// Have a paused queue claimed again
#[derive(Args, Debug)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    which: Which,
}

#[derive(Args, Debug)]
struct Which {
    /// The queue [default: default]
    #[arg(value_name = "NAME", conflicts_with = "queue")]
    name: Option<String>,

    /// The same, as other commands take it
    #[arg(long, short, value_name = "NAME")]
    queue: Option<String>,

    /// Print JSON for programs: `queue` and `paused`
    #[arg(long)]
    json: bool,
}

impl Which {
    fn name(&self) -> &str {
        self.name.as_deref().or(self.queue.as_deref()).unwrap_or(DEFAULT)
    }
}

/// Carries it out.
pub(crate) async fn pause(args: &PauseArgs, desk: &mut Desk) -> Result<Exit, Failure> {
    let name = args.which.name();
    desk.known(name).await?;
    let queue = desk.queue.clone();
    desk.answer(queue.pause(name)).await?;
    said(&args.which, true, desk)
}

/// Carries it out.
pub(crate) async fn resume(args: &ResumeArgs, desk: &mut Desk) -> Result<Exit, Failure> {
    let name = args.which.name();
    desk.known(name).await?;
    let queue = desk.queue.clone();
    desk.answer(queue.resume(name)).await?;
    said(&args.which, false, desk)
}

fn said(which: &Which, is_paused: bool, desk: &Desk) -> Result<Exit, Failure> {
    let name = which.name();
    if which.json {
        desk.printer.json(&json!({ "queue": name, "paused": is_paused }))?;
    } else if is_paused {
        desk.printer.say(&format!("nothing of `{name}` is claimed any more; what runs goes on"));
    } else {
        desk.printer.say(&format!("`{name}` goes on"));
    }
    Ok(Exit::Done)
}
