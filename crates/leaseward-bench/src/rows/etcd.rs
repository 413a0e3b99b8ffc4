//! The etcd store on one member that writes to disk: beside the same transactions without a library, and beside etcd's
//! own lock API.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use leaseward_testkit::Etcd;
use tokio::task::spawn_blocking;

use super::redis::argument;
use crate::{
    child::{self, Part},
    etcd::{LockApi, Raw},
    redis::clients::{Client, Ours},
    row::{
        Row, Size,
        Target::{AtMost, RatioAtLeast, TimesAtLeast},
        Unit,
    },
    standby::{self, StandBy},
    tasks::{self, Threads},
};

/// How long each contender works.
const SPAN: Duration = Duration::from_secs(2);
const ROUNDS: usize = 3;

const THEIRS: &str = "etcd's lock API";

pub(crate) const CONTEST: Part = Part { name: "etcd-contest", play };

/// One server for all rows, started when the first needs it; on disk, with etcd's own settings.
#[derive(Clone, Default)]
struct Server(Arc<OnceLock<Etcd>>);

impl Server {
    fn address(&self) -> String {
        self.0.get_or_init(|| Etcd::builder().on_disk().start()).addresses().remove(0)
    }
}

/// What is wanted: a name for each task, or one that all want.
#[derive(Clone, Copy)]
struct Contest {
    names: &'static str,
    tasks: u32,
    processes: u32,
}

pub(crate) fn rows() -> Vec<Row> {
    let server = Server::default();
    let row = |name, targets: &[_]| {
        Row::new(name, Unit::PerSecond, targets)
            .and("errors", Unit::Count, &[AtMost(0.0)])
            .rounds_max(ROUNDS)
    };
    let own = |tasks| Contest { names: "own", tasks, processes: 1 };
    let one = |tasks, processes| Contest { names: "one", tasks, processes };
    let run = |who, contest| run(&server, who, contest);
    vec![
        row("etcd: acquire + release, 1 task", &[RatioAtLeast(0.8)])
            .ours("leaseward", run("ours", own(1)))
            .raw("the same transactions", run("raw", own(1)))
            .peer(THEIRS, run("theirs", own(1))),
        row("etcd: acquire + release, 64 tasks", &[RatioAtLeast(0.8), TimesAtLeast(THEIRS, 2.0)])
            .ours("leaseward", run("ours", own(64)))
            .raw("the same transactions", run("raw", own(64)))
            .peer(THEIRS, run("theirs", own(64))),
        row("etcd: hand-over, 16 tasks in 1 process", &[TimesAtLeast(THEIRS, 5.0)])
            .ours("leaseward", run("ours", one(16, 1)))
            .peer(THEIRS, run("theirs", one(16, 1))),
        row("etcd: hand-over, 4 tasks in 4 processes", &[TimesAtLeast(THEIRS, 1.0)])
            .ours("leaseward, strict order", run("ours-strict", one(1, 4)))
            .peer(THEIRS, run("theirs", one(1, 4))),
        row("etcd: hand-over, 64 tasks in 4 processes", &[TimesAtLeast(THEIRS, 1.0)])
            .ours("leaseward", run("ours", one(16, 4)))
            .peer("leaseward, strict order", run("ours-strict", one(16, 4)))
            .peer(THEIRS, run("theirs", one(16, 4))),
    ]
}

fn run(
    server: &Server,
    who: &'static str,
    contest: Contest,
) -> impl FnMut(Size) -> Result<Vec<f64>, String> + 'static {
    let server = server.clone();
    move |size| {
        let (address, span) = (server.address(), size.span(SPAN));
        let (tasks, millis) = (contest.tasks.to_string(), span.as_millis().to_string());
        let mut commands = Vec::new();
        for process in 0..contest.processes {
            let process = process.to_string();
            let args = [who, &address, &tasks, &millis, contest.names, &process];
            commands.push(child::command(CONTEST.name, &args)?);
        }
        let mut all = StandBy::start(commands)?;
        all.go()?;
        let told = all.figures()?;
        let sum = |at: usize| told.iter().filter_map(|told| told.get(at)).sum::<f64>();
        Ok(vec![sum(0) / span.as_secs_f64(), sum(1)])
    }
}

fn play(args: &[String]) -> Result<Vec<f64>, String> {
    let who: String = argument(args, 0)?;
    let address: String = argument(args, 1)?;
    let tasks: u32 = argument(args, 2)?;
    let span = Duration::from_millis(argument(args, 3)?);
    let names: String = argument(args, 4)?;
    let process: u32 = argument(args, 5)?;
    // A name for each task, or one for all.
    let name = move |task: u32| match names.as_str() {
        "one" => "one".to_owned(),
        _ => format!("{process}-{task}"),
    };
    let url = format!("etcd://{address}");
    tasks::in_task(Threads::One, async move {
        match who.as_str() {
            "ours" => work(&Ours::connect(&url, true).await?, tasks, name, span).await,
            "ours-strict" => work(&Ours::connect(&url, false).await?, tasks, name, span).await,
            "raw" => work(&Raw::connect(&address).await?, tasks, name, span).await,
            "theirs" => work(&LockApi::connect(&address).await?, tasks, name, span).await,
            _ => Err(format!("who is `{who}`?")),
        }
    })
}

/// Takes and gives back for a while; how often, and how often in vain.
async fn work<C: Client>(
    client: &C,
    tasks: u32,
    name: impl Fn(u32) -> String,
    span: Duration,
) -> Result<Vec<f64>, String> {
    let (done, failed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let is_over = Arc::new(AtomicBool::new(false));
    let mut all = Vec::new();
    for task in 0..tasks {
        let mut one = client.join(&name(task)).await?;
        // Whatever is made at the first use is made before.
        if name(0) != name(1) {
            let held = one.acquire().await?;
            one.release(held).await?;
        }
        all.push(one);
    }
    spawn_blocking(standby::ready).await.map_err(|error| error.to_string())??;
    let begin = Instant::now();
    let mut running = Vec::new();
    for mut one in all {
        let (done, failed, is_over) = (done.clone(), failed.clone(), is_over.clone());
        running.push(tokio::spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                let pair = async {
                    let held = one.acquire().await?;
                    one.release(held).await
                };
                let count = if pair.await.is_ok() { &done } else { &failed };
                count.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    tokio::time::sleep(span.saturating_sub(begin.elapsed())).await;
    is_over.store(true, Ordering::Relaxed);
    let figures = vec![done.load(Ordering::Relaxed), failed.load(Ordering::Relaxed)];
    // Whoever waits gets it, and gives it back: nothing is left for the next round.
    for task in running {
        task.await.map_err(|error| error.to_string())?;
    }
    Ok(figures.into_iter().map(|count| count as f64).collect())
}
