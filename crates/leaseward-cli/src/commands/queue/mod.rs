//! `leaseward queue`: jobs, each of which has one owner at a time. One file a verb.

mod add;
mod attempt;
mod bulk;
mod cancel;
mod ls;
mod pause;
mod retry;
mod show;
mod source;
mod stats;
mod top;
mod view;
mod work;

use clap::{Args, Subcommand};
use leaseward_queue::{Builder, Queue};

use crate::{
    child::Signals,
    config::Settings,
    exit::Exit,
    failure::Failure,
    looking::{Looked, Need},
    outage,
    printer::Printer,
    session::interrupted,
};

/// The queue that is meant where none is named.
const DEFAULT: &str = "default";

/// Push jobs, work on them, look at them
///
/// A queue is the right tool where a lock would only spread work over workers: each job has one owner at a time. A
/// worker's jobs are a lease: those of one that is killed come back, and one that was frozen cannot complete what has been
/// given to another. Jobs are kept in PostgreSQL or, without any server, in a SQLite file: the same `--store` as for locks.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER, arg_required_else_help = true, disable_help_subcommand = true)]
pub(crate) struct QueueArgs {
    #[command(subcommand)]
    command: QueueCommand,
}

const AFTER: &str = "\
Examples:
    leaseward queue add --queue mail '{\"to\":\"a@example.org\"}'
    find . -name '*.jpg' | jq -R . | leaseward queue add --queue resize -
    leaseward queue work --queue resize --concurrency 4 --until-empty -- ./resize.sh
    leaseward queue stats
    leaseward queue retry --queue mail --all";

/// One variant a verb.
#[derive(Debug, Subcommand)]
enum QueueCommand {
    Add(add::AddArgs),
    Work(work::WorkArgs),
    Ls(ls::LsArgs),
    Show(show::ShowArgs),
    Retry(retry::RetryArgs),
    Cancel(cancel::CancelArgs),
    Pause(pause::PauseArgs),
    Resume(pause::ResumeArgs),
    Stats(stats::StatsArgs),
    Top(top::TopArgs),
}

/// What commands about jobs work with.
struct Desk {
    settings: Settings,
    queue: Queue,
    printer: Printer,
    signals: Signals,
    /// The store at hand, if it is a temporary one that goes with this.
    _looked: Looked,
}

impl Desk {
    /// Opens the database that the settings name.
    async fn open(
        settings: Settings,
        need: Need,
        printer: Printer,
        builder: impl Fn() -> Builder,
    ) -> Result<Self, Failure> {
        let mut signals = Signals::listen()
            .map_err(|error| Failure::system("cannot listen to signals", &error))?;
        let opened = async {
            let looked = Looked::at(&settings.store, need, printer).await?;
            #[cfg(feature = "sqlite")]
            if need.makes() {
                share_with_locks(&looked.url).await;
            }
            let connect = async || builder().connect(&looked.url).await;
            Ok::<_, Failure>((outage::connect(need, printer, connect).await?, looked))
        };
        let (queue, looked) = tokio::select! {
            opened = opened => opened?,
            signal = signals.ending() => return Err(interrupted(signal)),
        };
        Ok(Self { settings, queue, printer, signals, _looked: looked })
    }

    /// Waits for an answer, or for a signal that ends the tool.
    async fn answer<T>(
        &mut self,
        request: impl Future<Output = Result<T, leaseward_queue::Error>>,
    ) -> Result<T, Failure> {
        tokio::select! {
            answer = request => Ok(answer?),
            signal = self.signals.ending() => Err(interrupted(signal)),
        }
    }

    /// A queue that somebody has used before: a slip of the keyboard is not to make another.
    async fn known(&mut self, name: &str) -> Result<(), Failure> {
        let queue = self.queue.clone();
        let all = self.answer(queue.stats()).await?;
        if all.iter().any(|stats| stats.name == name) {
            return Ok(());
        }
        let names: Vec<&str> = all.iter().map(|stats| stats.name.as_str()).collect();
        let there = match names.as_slice() {
            [] => "there is none yet; `leaseward queue add` makes it".to_owned(),
            names => format!("there is {}", names.join(", ")),
        };
        let store = self.settings.store.shown();
        Err(Failure::usage(format!("there is no queue `{name}` in {store}")).hint(there))
    }
}

/// Locks take a SQLite file only if it is new or their own, so they have to be the first in a file that both are to use.
#[cfg(feature = "sqlite")]
async fn share_with_locks(url: &str) {
    let Some(rest) = url.strip_prefix("sqlite:") else { return };
    let path = rest.split('?').next().unwrap_or_default();
    if std::fs::metadata(path).is_ok_and(|file| file.len() > 0) {
        return;
    }
    // What is wrong with the place is told when the queue is opened.
    if let Ok(locks) = leaseward::connect(url).await {
        locks.shutdown().await;
    }
}

/// Carries it out.
pub(crate) async fn run(
    args: QueueArgs,
    settings: Settings,
    printer: Printer,
) -> Result<Exit, Failure> {
    let builder = || match &args.command {
        QueueCommand::Work(args) => args.builder(),
        _ => Queue::builder(),
    };
    let mut audit = None;
    if let QueueCommand::Work(args) = &args.command {
        args.check()?;
        audit = settings.audit()?;
    }
    let need = match &args.command {
        QueueCommand::Work(args) if args.is_service() => Need::Service,
        QueueCommand::Add(_) | QueueCommand::Work(_) => Need::Made,
        QueueCommand::Top(args) if args.is_endless() => Need::Awaited,
        _ => Need::Found,
    };
    let mut desk = Desk::open(settings, need, printer, builder).await?;
    let done = match args.command {
        QueueCommand::Add(args) => add::run(args, &mut desk).await,
        QueueCommand::Work(args) => return work::run(args, desk, audit).await,
        QueueCommand::Ls(args) => ls::run(&args, &mut desk).await,
        QueueCommand::Show(args) => show::run(&args, &mut desk).await,
        QueueCommand::Retry(args) => retry::run(args, &mut desk).await,
        QueueCommand::Cancel(args) => cancel::run(args, &mut desk).await,
        QueueCommand::Pause(args) => pause::pause(&args, &mut desk).await,
        QueueCommand::Resume(args) => pause::resume(&args, &mut desk).await,
        QueueCommand::Stats(args) => stats::run(&args, &mut desk).await,
        QueueCommand::Top(args) => top::run(&args, &mut desk).await,
    };
    desk.queue.close().await;
    done
}
