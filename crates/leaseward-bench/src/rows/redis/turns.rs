//! One name that many want, in several processes: how fast it goes from hand to hand, and how justly.

use std::{
    fmt::Write as _,
    fs,
    path::Path,
    process::Command,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::task::spawn_blocking;

use super::{
    argument,
    record::{Record, Turns},
};
use crate::{
    child::{self, Part},
    redis::{
        clients::{Client, Ours, Rslock},
        peers,
        queue::{LIST, Queue},
        server::Server,
    },
    row::{
        Row, Size, Target,
        Target::{AtLeast, AtMost, RatioAtLeast, RatioAtMost},
        Unit,
    },
    standby,
    stats::now,
    tasks::{self, Threads},
};

/// How long everybody wants it.
const SPAN: Duration = Duration::from_millis(1_500);
const PROCESSES: usize = 4;
/// Each run takes seconds, and waiting is a matter of thousands of hand-overs.
const ROUNDS: usize = 3;

pub(crate) const TURNS: Part = Part { name: "redis-turns", play };

/// Who takes part, and which commands are its requests: what it sends and its scripts do not call.
#[derive(Clone, Copy)]
struct Who {
    id: &'static str,
    requests: &'static [&'static str],
}

const STRICT: Who = Who { id: "ours-strict", requests: OURS };
const COHORTS: Who = Who { id: "ours", requests: OURS };
const QUEUE: Who = Who { id: "queue", requests: &["blpop", "rpush"] };
const RSLOCK: Who = Who { id: "rslock", requests: &["set", "evalsha", "eval"] };
const NODE: Who = Who { id: "node", requests: &["evalsha", "eval"] };
const PYTHON: Who = Who { id: "python", requests: &["set", "evalsha", "eval"] };
pub(super) const OURS: &[&str] =
    &["evalsha", "eval", "fcall", "wait", "ping", "subscribe", "ssubscribe"];

pub(super) fn rows(server: &Server) -> Vec<Row> {
    vec![
        few(server, "redis: hand-over, 2 tasks in 2 processes", 2),
        few(server, "redis: hand-over, 16 tasks in 4 processes", 16),
        many(server, "redis: hand-over, 100 tasks in 4 processes", 100),
        many(server, "redis: hand-over, 1,000 tasks in 4 processes", 1_000),
        cohorts(server, "redis: hand-over with cohorts, 100 tasks in 4 processes", 100),
        cohorts(server, "redis: hand-over with cohorts, 1,000 tasks in 4 processes", 1_000),
        inside(server),
    ]
}

/// Whether the work of a hand-over depends on how many wait.
fn few(server: &Server, name: &'static str, tasks: usize) -> Row {
    let run = |who| {
        experiment(server, who, tasks, PROCESSES, |turns| {
            vec![turns.requests, turns.per_second, turns.p50_us, turns.starved, turns.errors]
        })
    };
    Row::new(name, Unit::Count, &[AtMost(3.0)])
        .figure("requests each")
        .and("hand-overs", Unit::PerSecond, &[])
        .and("p50", Unit::Micros, &[])
        .and("starved", Unit::Count, &[AtMost(0.0)])
        .and("errors", Unit::Count, &[AtMost(0.0)])
        .rounds_max(ROUNDS)
        .ours("leaseward, strict order", run(STRICT))
        .raw("BLPOP of a token", run(QUEUE))
}

fn many(server: &Server, name: &'static str, tasks: usize) -> Row {
    let run = |who| {
        experiment(server, who, tasks, PROCESSES, |turns| {
            vec![
                turns.per_second,
                turns.p50_us,
                turns.p99_us,
                turns.requests,
                turns.starved,
                turns.jain,
                turns.longest_to_median,
                turns.errors,
            ]
        })
    };
    Row::new(name, Unit::PerSecond, &[RatioAtLeast(0.7)])
        .and("p50", Unit::Micros, &[RatioAtMost(1.5)])
        .and("p99", Unit::Micros, &[])
        .and("requests each", Unit::Count, &[AtMost(3.0)])
        .and("starved", Unit::Count, &[AtMost(0.0)])
        .and("Jain index", Unit::Count, &[AtLeast(0.99)])
        .and("longest wait to median", Unit::Count, &[AtMost(3.0)])
        .and("errors", Unit::Count, &[AtMost(0.0)])
        .rounds_max(ROUNDS)
        .ours("leaseward, strict order", run(STRICT))
        .raw("BLPOP of a token", run(QUEUE))
        .peer("rslock", run(RSLOCK))
        .peer("node-redlock", run(NODE))
        .peer("redis-py", run(PYTHON))
}

fn cohorts(server: &Server, name: &'static str, tasks: usize) -> Row {
    passed_on(server, name, tasks, PROCESSES, &[], &[])
}

fn inside(server: &Server) -> Row {
    let name = "redis: hand-over, 16 tasks in 1 process";
    passed_on(server, name, 16, 1, &[AtLeast(300_000.0)], &[AtMost(0.05)])
}

/// Hand-overs of which most stay in a process.
fn passed_on(
    server: &Server,
    name: &'static str,
    tasks: usize,
    processes: usize,
    rate: &[Target],
    requests: &[Target],
) -> Row {
    let run = |who| {
        experiment(server, who, tasks, processes, |turns| {
            vec![turns.per_second, turns.requests, turns.starved, turns.jain, turns.errors]
        })
    };
    Row::new(name, Unit::PerSecond, rate)
        .and("requests each", Unit::Count, requests)
        .and("starved", Unit::Count, &[AtMost(0.0)])
        .and("Jain index", Unit::Count, &[])
        .and("errors", Unit::Count, &[AtMost(0.0)])
        .rounds_max(ROUNDS)
        .ours("leaseward", run(COHORTS))
        .raw("BLPOP of a token", run(QUEUE))
}

fn experiment(
    server: &Server,
    who: Who,
    tasks: usize,
    processes: usize,
    figures: fn(Turns) -> Vec<f64>,
) -> impl FnMut(Size) -> Result<Vec<f64>, String> + 'static {
    let server = server.clone();
    move |size| contend(&server, who, tasks, processes, size).map(figures)
}

fn contend(
    server: &Server,
    who: Who,
    tasks: usize,
    processes: usize,
    size: Size,
) -> Result<Turns, String> {
    let span = size.span(SPAN);
    let mut requests = 0.0;
    let mut turns = contest(who.id, &server.url(), tasks, processes, span, |commands| {
        let outcome = server.run_prepared(commands, span, |control| match who.id {
            "queue" => control.ask(&["RPUSH", LIST, "t"]).map(drop),
            _ => Ok(()),
        })?;
        requests = outcome.spent.calls(who.requests);
        Ok(outcome.told)
    })?;
    turns.requests = requests / (turns.per_second * span.as_secs_f64());
    Ok(turns)
}

/// A contest of processes that somebody runs, and whose figures, the errors, he answers with.
pub(in crate::rows) fn contest(
    who: &str,
    url: &str,
    tasks: usize,
    processes: usize,
    span: Duration,
    run: impl FnOnce(Vec<Command>) -> Result<Vec<Vec<f64>>, String>,
) -> Result<Turns, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let processes = processes.min(tasks);
    let mut commands = Vec::new();
    let mut logs = Vec::new();
    for process in 0..processes {
        let (first, behind) = (tasks * process / processes, tasks * (process + 1) / processes);
        let log = folder.path().join(process.to_string());
        commands.push(command(who, url, first, behind - first, span, &log)?);
        logs.push(log);
    }
    let errors: f64 = run(commands)?.iter().flatten().sum();
    let mut record = Record::default();
    for log in logs {
        record.read(&fs::read_to_string(log).map_err(|error| error.to_string())?)?;
    }
    let mut turns = record.summary(tasks, span);
    turns.errors += errors;
    Ok(turns)
}

fn command(
    who: &str,
    url: &str,
    first: usize,
    tasks: usize,
    span: Duration,
    log: &Path,
) -> Result<Command, String> {
    let (tasks, millis) = (tasks.to_string(), span.as_millis().to_string());
    let (first, log) = (first.to_string(), log.display().to_string());
    let args = [who, url, &tasks, &millis, &first, &log];
    let other = ["turns", args[1], args[2], args[3], args[4], args[5]];
    match who {
        "node" => Ok(peers::node(&other)),
        "python" => Ok(peers::python(&other)),
        _ => child::command(TURNS.name, &args),
    }
}

fn play(args: &[String]) -> Result<Vec<f64>, String> {
    let who: String = argument(args, 0)?;
    let url: String = argument(args, 1)?;
    let ours = Contest {
        tasks: argument(args, 2)?,
        span: Duration::from_millis(argument(args, 3)?),
        first: argument(args, 4)?,
        log: argument(args, 5)?,
        held: Duration::from_micros(args.get(6).map_or(Ok(0), |_| argument(args, 6))?),
    };
    // One thread a process, for all: there are more processes than cores, and Node and Python have no more either.
    tasks::in_task(Threads::One, async move {
        match who.as_str() {
            "ours" => ours.hold(&Ours::connect(&url, true).await?).await,
            "ours-strict" => ours.hold(&Ours::connect(&url, false).await?).await,
            "queue" => ours.hold(&Queue::at(url.trim_start_matches("redis://"))).await,
            "rslock" => ours.hold(&Rslock::connect(url.split(',').collect())).await,
            _ => Err(format!("who is `{who}`?")),
        }
    })
}

/// The part of one process.
struct Contest {
    tasks: usize,
    span: Duration,
    first: usize,
    log: String,
    /// How long each holds it.
    held: Duration,
}

/// What one task did.
#[derive(Default)]
struct Done {
    asked: f64,
    visits: Vec<[f64; 3]>,
    errors: u32,
}

impl Contest {
    async fn hold<C: Client>(&self, client: &C) -> Result<Vec<f64>, String> {
        let mut all = Vec::new();
        for _ in 0..self.tasks {
            all.push(client.join("one").await?);
        }
        spawn_blocking(standby::ready).await.map_err(|error| error.to_string())??;
        let mut done = Vec::new();
        let mut running = Vec::new();
        for client in all {
            let own = Arc::new(Mutex::new(Done::default()));
            done.push(own.clone());
            running.push(tokio::spawn(take_turns(client, self.held, own)));
        }
        tokio::time::sleep(self.span).await;
        let end = now();
        running.iter().for_each(tokio::task::JoinHandle::abort);
        self.write(&done, end)
    }

    fn write(&self, done: &[Arc<Mutex<Done>>], end: f64) -> Result<Vec<f64>, String> {
        let mut text = format!("end {end}\n");
        let mut errors = 0;
        for (task, done) in (self.first..).zip(done) {
            let done = done.lock().unwrap_or_else(PoisonError::into_inner);
            errors += done.errors;
            for [asked, came, left] in done.visits.iter().filter(|visit| visit[1] <= end) {
                let _ = writeln!(text, "{task} {asked} {came} {left}");
            }
            let _ = writeln!(text, "{task} {}", done.asked);
        }
        fs::write(&self.log, text).map_err(|error| format!("`{}`: {error}", self.log))?;
        Ok(vec![errors.into()])
    }
}

async fn take_turns<C: Client>(mut client: C, hold: Duration, done: Arc<Mutex<Done>>) {
    loop {
        let asked = now();
        done.lock().unwrap_or_else(PoisonError::into_inner).asked = asked;
        let visit = async {
            let held = client.acquire().await?;
            let came = now();
            if !hold.is_zero() {
                tokio::time::sleep(hold).await;
            }
            let left = now();
            client.release(held).await?;
            Ok::<_, String>([asked, came, left])
        };
        let outcome = visit.await;
        {
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            match outcome {
                Ok(visit) => done.visits.push(visit),
                Err(_) => done.errors += 1,
            }
        }
    }
}
