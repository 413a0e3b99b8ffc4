//! Acquire and release of names that nobody else wants.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use tokio::task::spawn_blocking;

use super::argument;
use crate::{
    child::{self, Part},
    redis::{
        clients::{Client, Common, Ours, Rslock, Work, requests},
        peers,
        queue::Waited,
        raw::{ACQUIRE, Driven, FREE, RELEASE, RawRedis, Requests, VOTE, request},
        raw_quorum::RawQuorum,
        server::Server,
    },
    row::{
        Row, Size,
        Target::{self, AtMost, RatioAtLeast, RatioAtMost, TimesAtLeast},
        Unit,
    },
    standby,
    stats::quantile,
    tasks::{self, Threads},
};

/// How long each contender works.
const SPAN: Duration = Duration::from_secs(1);

/// So long it works before anything is measured: bursts are faster than what lasts. The programs in `peers` do the same.
const WARM_UP: Duration = Duration::from_millis(200);

/// What a pair may cost where many gather.
const CLIENT_CPU: &[Target] = &[AtMost(4.0)];
const SERVER_CPU: &[Target] = &[RatioAtMost(0.5)];

pub(crate) const PAIRS: Part = Part { name: "redis-pairs", play };

pub(super) fn rows(server: &Server) -> Vec<Row> {
    vec![
        alone(server),
        at_once(server, "redis: acquire + release, 16 tasks", 16, [&[], &[], &[]]),
        at_once(
            server,
            "redis: acquire + release, 64 tasks",
            64,
            [&[RatioAtLeast(1.3), TimesAtLeast("rslock", 2.0)], CLIENT_CPU, SERVER_CPU],
        ),
        at_once(
            server,
            "redis: acquire + release, 512 tasks",
            512,
            [&[RatioAtLeast(2.0), TimesAtLeast("rslock", 4.0)], CLIENT_CPU, SERVER_CPU],
        ),
    ]
}

fn alone(server: &Server) -> Row {
    let run = |who: &'static str| {
        let server = server.clone();
        move |size: Size| {
            let pairs = Pairs::run(&server, who, 1, size)?;
            Ok(vec![pairs.p50_us, pairs.per_second, pairs.errors])
        }
    };
    Row::new("redis: acquire + release, 1 task", Unit::Micros, &[RatioAtMost(1.1)])
        .figure("p50")
        .and("pairs", Unit::PerSecond, &[])
        .and("errors", Unit::Count, &[AtMost(0.0)])
        .ours("leaseward", run("ours"))
        .raw("redis crate, same work", run("common-same"))
        .raw("bare socket, same work", run("raw-same"))
        .raw("bare socket, SET NX", run("raw"))
        .raw("redis crate, SET NX", run("common"))
        .peer("rslock", run("rslock"))
        .peer("node-redlock", run("node"))
        .peer("redis-py", run("python"))
}

/// The targets are those of the rate, and of what a pair costs the client and the server.
fn at_once(server: &Server, name: &'static str, tasks: u32, targets: [&[Target]; 3]) -> Row {
    let [rate, client, server_cpu] = targets;
    let run = |who: &'static str| {
        let server = server.clone();
        move |size: Size| {
            let pairs = Pairs::run(&server, who, tasks, size)?;
            Ok(vec![pairs.per_second, pairs.client_us, pairs.server_us, pairs.errors])
        }
    };
    Row::new(name, Unit::PerSecond, rate)
        .and("client CPU a pair", Unit::Micros, client)
        .and("server CPU a pair", Unit::Micros, server_cpu)
        .and("errors", Unit::Count, &[AtMost(0.0)])
        .ours("leaseward", run("ours"))
        .raw("bare socket, same work", run("raw-same"))
        .raw("bare socket, SET NX", run("raw"))
        .raw("redis crate, same work", run("common-same"))
        .raw("redis crate, SET NX", run("common"))
        .peer("rslock", run("rslock"))
        .peer("node-redlock", run("node"))
        .peer("redis-py", run("python"))
}

/// What tasks came to that acquire and release.
pub(in crate::rows) struct Pairs {
    pub(in crate::rows) per_second: f64,
    pub(in crate::rows) p50_us: f64,
    pub(in crate::rows) p99_us: f64,
    pub(in crate::rows) client_us: f64,
    pub(in crate::rows) server_us: f64,
    pub(in crate::rows) errors: f64,
}

impl Pairs {
    fn run(server: &Server, who: &str, tasks: u32, size: Size) -> Result<Self, String> {
        let span = size.span(SPAN);
        let command = command(who, &server.url(), tasks, span)?;
        let outcome = server.run(vec![command], span)?;
        Self::read(&outcome.told[0], outcome.spent.cpu_seconds)
    }

    /// From what a process told: pairs, seconds, p50 and p99 of a pair, processor seconds and errors.
    pub(in crate::rows) fn read(told: &[f64], server_seconds: f64) -> Result<Self, String> {
        let [pairs, seconds, p50_us, p99_us, client_seconds, errors] = *told else {
            return Err(format!("{} figures instead of 6", told.len()));
        };
        Ok(Self {
            per_second: pairs / seconds,
            p50_us,
            p99_us,
            client_us: client_seconds * 1e6 / pairs,
            server_us: server_seconds * 1e6 / pairs,
            errors,
        })
    }
}

/// The process of a contender.
pub(in crate::rows) fn command(
    who: &str,
    url: &str,
    tasks: u32,
    span: Duration,
) -> Result<Command, String> {
    let (tasks, millis) = (tasks.to_string(), span.as_millis().to_string());
    let args = ["pairs", url, &tasks, &millis];
    match who {
        "node" => Ok(peers::node(&args)),
        "python" => Ok(peers::python(&args)),
        _ => child::command(PAIRS.name, &[who, url, &tasks, &millis]),
    }
}

fn play(args: &[String]) -> Result<Vec<f64>, String> {
    let who: String = argument(args, 0)?;
    let url: String = argument(args, 1)?;
    let tasks = argument(args, 2)?;
    let span = Duration::from_millis(argument(args, 3)?);
    match who.as_str() {
        "raw" => raw(&url, Work::Plain, tasks, span),
        "raw-same" => raw(&url, Work::Same, tasks, span),
        "raw-quorum" => raw_quorum(&url, Work::Plain, tasks, span),
        "raw-quorum-same" => raw_quorum(&url, Work::Vote, tasks, span),
        _ => tasks::in_task(Threads::Two, async move {
            match who.as_str() {
                "ours" => pairs(&Ours::connect(&url, true).await?, tasks, span).await,
                "rslock" => pairs(&Rslock::connect(url.split(',').collect()), tasks, span).await,
                "common" => pairs(&Common::connect(&url, Work::Plain).await?, tasks, span).await,
                "common-same" => {
                    pairs(&Common::connect(&url, Work::Same).await?, tasks, span).await
                }
                "waited" => {
                    pairs(&Waited::at(url.trim_start_matches("redis://"))?, tasks, span).await
                }
                _ => Err(format!("who is `{who}`?")),
            }
        }),
    }
}

/// The requests of tasks, each with a name of its own.
fn all_requests(work: Work, scripts: &[String; 3], tasks: usize) -> Vec<Requests> {
    (0..tasks)
        .map(|task| {
            let words = requests(work, scripts, &format!("pair:{task}"));
            let [acquire, release] =
                words.map(|words| request(&words.iter().map(String::as_str).collect::<Vec<_>>()));
            Requests { acquire, release }
        })
        .collect()
}

/// A majority of several servers, with no library around it.
fn raw_quorum(urls: &str, work: Work, tasks: usize, span: Duration) -> Result<Vec<f64>, String> {
    let addresses: Vec<_> = urls.split(',').map(|url| url.trim_start_matches("redis://")).collect();
    let mut raw = RawQuorum::connect(&addresses)?;
    let scripts = [raw.load(FREE)?, raw.load(VOTE)?, String::new()];
    let all = all_requests(work, &scripts, tasks);
    raw.drive(&all, WARM_UP)?;
    standby::ready()?;
    let cpu = child::cpu_seconds();
    let driven = raw.drive(&all, span)?;
    let cpu = child::cpu_seconds() - cpu;
    Ok(told(driven.micros, driven.seconds, cpu, driven.errors))
}

fn raw(url: &str, work: Work, tasks: usize, span: Duration) -> Result<Vec<f64>, String> {
    let mut raw = RawRedis::connect(url.trim_start_matches("redis://"))?;
    let scripts = [raw.load(FREE)?, raw.load(ACQUIRE)?, raw.load(RELEASE)?];
    let all = all_requests(work, &scripts, tasks);
    raw.drive(&all, WARM_UP)?;
    standby::ready()?;
    let cpu = child::cpu_seconds();
    let driven = raw.drive(&all, span)?;
    let cpu = child::cpu_seconds() - cpu;
    Ok(told(driven.micros, driven.seconds, cpu, driven.errors))
}

async fn pairs<C: Client>(client: &C, tasks: usize, span: Duration) -> Result<Vec<f64>, String> {
    let mut all = Vec::new();
    for task in 0..tasks {
        all.push(client.join(&format!("pair:{task}")).await?);
    }
    let (_, all) = drive(all, WARM_UP).await?;
    spawn_blocking(standby::ready).await.map_err(|error| error.to_string())??;
    let cpu = child::cpu_seconds();
    let (driven, _) = drive(all, span).await?;
    let cpu = child::cpu_seconds() - cpu;
    Ok(told(driven.micros, driven.seconds, cpu, driven.errors))
}

/// Tasks that each acquire and release, for so long; gives them back.
async fn drive<C: Client>(all: Vec<C>, span: Duration) -> Result<(Driven, Vec<C>), String> {
    let begin = Instant::now();
    let running: Vec<_> =
        all.into_iter().map(|client| tokio::spawn(work(client, begin, span))).collect();
    let (mut driven, mut all) = (Driven::default(), Vec::new());
    for task in running {
        let (more, client) = task.await.map_err(|error| error.to_string())?;
        driven.micros.extend(more.micros);
        driven.errors += more.errors;
        all.push(client);
    }
    driven.seconds = begin.elapsed().as_secs_f64();
    Ok((driven, all))
}

async fn work<C: Client>(mut client: C, begin: Instant, span: Duration) -> (Driven, C) {
    let mut driven = Driven::default();
    let mut start = begin;
    while start.duration_since(begin) < span {
        let pair = async {
            let held = client.acquire().await?;
            client.release(held).await
        };
        let outcome = pair.await;
        let now = Instant::now();
        match outcome {
            Ok(()) => driven.micros.push(now.duration_since(start).as_secs_f64() * 1e6),
            Err(_) => driven.errors += 1,
        }
        start = now;
    }
    (driven, client)
}

fn told(mut micros: Vec<f64>, seconds: f64, cpu_seconds: f64, errors: u32) -> Vec<f64> {
    micros.sort_by(f64::total_cmp);
    let pairs = micros.len() as f64;
    let (p50, p99) = (quantile(&micros, 0.5), quantile(&micros, 0.99));
    vec![pairs, seconds, p50, p99, cpu_seconds, errors.into()]
}
