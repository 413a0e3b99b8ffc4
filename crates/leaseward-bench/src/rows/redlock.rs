//! Redlock over five nodes: beside raw requests to a majority of them, and the libraries people run today.

use std::{
    cell::OnceCell,
    process::Command,
    rc::Rc,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use leaseward_testkit::RedisServer;
use tokio::{
    sync::Barrier,
    task::{JoinSet, spawn_blocking},
};

use super::redis::{
    argument,
    pairs::{self, Pairs},
    turns,
};
use crate::{
    child::{self, Part},
    redis::{raw::RawRedis, server::Spent},
    row::{
        Row, Size,
        Target::{AtMost, RatioAtLeast, RatioAtMost, TimesAtLeast},
        Unit,
    },
    standby::{self, StandBy},
    stats::quantile,
    tasks::{self, Threads},
};

const NODES: usize = 5;

/// How long each contender works.
const SPAN: Duration = Duration::from_secs(1);

/// How long everybody wants one name, and in how many processes.
const CONTEST: Duration = Duration::from_millis(1_500);
const PROCESSES: usize = 4;

/// How many times rivals ask for a free name at the same moment.
const VOTES: u32 = 60;

pub(crate) const RIVALS: Part = Part { name: "redlock-rivals", play: rivals };

pub(crate) fn rows() -> Vec<Row> {
    let nodes = Nodes::default();
    let mut rows = vec![
        at_once(&nodes, "redlock: acquire + release, 1 task", 1, &[RatioAtLeast(1.0)]),
        at_once(
            &nodes,
            "redlock: acquire + release, 64 tasks",
            64,
            &[RatioAtLeast(0.75), TimesAtLeast("rslock", 3.0)],
        ),
        two_dead(&nodes),
    ];
    rows.extend([
        votes(&nodes, "redlock: a free name, 2 rivals", 2),
        votes(&nodes, "redlock: a free name, 5 rivals", 5),
        votes(&nodes, "redlock: a free name, 20 rivals", 20),
        turns(&nodes, "redlock: hand-over, 4 tasks in 4 processes", 4),
        turns(&nodes, "redlock: hand-over, 100 tasks in 4 processes", 100),
    ]);
    rows
}

/// Servers that know nothing of each other, started by the first experiment that needs them, emptied before each.
#[derive(Clone, Default)]
struct Nodes {
    all: Rc<OnceCell<Vec<RedisServer>>>,
}

impl Nodes {
    fn get(&self) -> &[RedisServer] {
        self.all.get_or_init(|| (0..NODES).map(|_| RedisServer::start()).collect())
    }

    /// As ours names them. They are new and empty, and nobody restarts them.
    fn url(&self) -> String {
        let nodes: Vec<_> = self.get().iter().map(RedisServer::address).collect();
        format!("redlock://{}?amnesia=trust&timeout=1s", nodes.join(","))
    }

    /// As others do.
    fn urls(&self) -> String {
        self.get().iter().map(RedisServer::url).collect::<Vec<_>>().join(",")
    }

    /// Runs an experiment on empty nodes; what its processes told, and what the nodes spent.
    fn run(&self, commands: Vec<Command>, span: Duration) -> Result<Told, String> {
        let alive = self.get().iter().filter(|node| node.is_awake());
        let mut controls = alive
            .map(|node| RawRedis::connect(&node.address()))
            .collect::<Result<Vec<_>, String>>()?;
        for control in &mut controls {
            control.ask(&["FLUSHALL"])?;
        }
        let mut all = StandBy::start(commands)?;
        let look = |controls: &mut Vec<RawRedis>| {
            controls.iter_mut().map(Spent::ask).collect::<Result<Vec<_>, String>>()
        };
        let before = look(&mut controls)?;
        all.go()?;
        thread::sleep(span);
        let mut spent = 0.0;
        for (after, before) in look(&mut controls)?.into_iter().zip(&before) {
            spent += after.cpu_seconds - before.cpu_seconds;
        }
        Ok(Told { told: all.figures()?, server_seconds: spent })
    }
}

struct Told {
    told: Vec<Vec<f64>>,
    server_seconds: f64,
}

fn measured(nodes: &Nodes, who: &str, tasks: u32, size: Size) -> Result<Pairs, String> {
    let span = size.span(SPAN);
    let url = if who == "ours" { nodes.url() } else { nodes.urls() };
    let outcome = nodes.run(vec![pairs::command(who, &url, tasks, span)?], span)?;
    Pairs::read(&outcome.told[0], outcome.server_seconds)
}

fn at_once(nodes: &Nodes, name: &'static str, tasks: u32, targets: &[crate::row::Target]) -> Row {
    let run = |who: &'static str| {
        let nodes = nodes.clone();
        move |size: Size| {
            let pairs = measured(&nodes, who, tasks, size)?;
            let (client, server) = (pairs.client_us, pairs.server_us);
            Ok(vec![pairs.per_second, pairs.p50_us, client, server, pairs.errors])
        }
    };
    Row::new(name, Unit::PerSecond, targets)
        .and("p50", Unit::Micros, &[])
        .and("client CPU a pair", Unit::Micros, &[])
        .and("servers' CPU a pair", Unit::Micros, &[])
        .and("errors", Unit::Count, &[AtMost(0.0)])
        .ours("leaseward", run("ours"))
        .raw("bare sockets, same work", run("raw-quorum-same"))
        .raw("bare sockets, SET NX", run("raw-quorum"))
        .peer("rslock", run("rslock"))
        .peer("node-redlock", run("node"))
}

/// Two of five are gone, and known to be.
fn two_dead(nodes: &Nodes) -> Row {
    let run = |dead: usize| {
        let nodes = nodes.clone();
        move |size: Size| {
            let victims = &nodes.get()[..dead];
            victims.iter().for_each(RedisServer::kill);
            let outcome = measured(&nodes, "ours", 1, size);
            victims.iter().for_each(RedisServer::restart);
            let pairs = outcome?;
            Ok(vec![pairs.p50_us, pairs.p99_us, pairs.errors])
        }
    };
    Row::new("redlock: two of five dead, 1 task", Unit::Micros, &[RatioAtMost(1.1)])
        .figure("p50")
        .and("p99", Unit::Micros, &[])
        .and("errors", Unit::Count, &[AtMost(0.0)])
        .ours("leaseward, two dead", run(2))
        .raw("leaseward, all alive", run(0))
}

/// Clients of their own that all ask for a free name at once: how long until one has it, and what it costs.
fn votes(nodes: &Nodes, name: &'static str, rivals: u32) -> Row {
    let run = |rivals: u32| {
        let nodes = nodes.clone();
        move |size: Size| {
            let (url, count) = (nodes.url(), size.times(VOTES).to_string());
            let rivals = rivals.to_string();
            let command = child::command(RIVALS.name, &[&url, &rivals, &count])?;
            let outcome = nodes.run(vec![command], Duration::ZERO)?;
            Ok(outcome.told[0].clone())
        }
    };
    Row::new(name, Unit::Micros, &[])
        .figure("p50 until decided")
        .and("p99", Unit::Micros, &[])
        .ours("leaseward", run(rivals))
        // One round: how many times as long it takes is how many rounds it took, and what rivals cost each other.
        .raw("one alone", run(1))
        .rounds_max(2)
}

/// One name that many want, in several processes. There is no queue: what counts is that nobody is left out.
fn turns(nodes: &Nodes, name: &'static str, tasks: usize) -> Row {
    let run = |who: &'static str| {
        let nodes = nodes.clone();
        move |size: Size| {
            let span = size.span(CONTEST);
            let url = if who == "ours" { nodes.url() } else { nodes.urls() };
            let run = |commands| nodes.run(commands, span).map(|told| told.told);
            let turns = turns::contest(who, &url, tasks, PROCESSES, span, run)?;
            Ok(vec![turns.per_second, turns.starved, turns.jain, turns.errors])
        }
    };
    Row::new(name, Unit::PerSecond, &[])
        .and("starved", Unit::Count, &[])
        .and("Jain index", Unit::Count, &[])
        .and("errors", Unit::Count, &[AtMost(0.0)])
        .ours("leaseward", run("ours"))
        .peer("rslock", run("rslock"))
        .peer("node-redlock", run("node"))
        .rounds_max(2)
}

fn rivals(args: &[String]) -> Result<Vec<f64>, String> {
    let url: String = argument(args, 0)?;
    let rivals: usize = argument(args, 1)?;
    let count: u32 = argument(args, 2)?;
    tasks::in_task(Threads::Two, async move {
        let mut clients = Vec::new();
        for _ in 0..rivals {
            clients.push(tasks::connect(&url).await?);
        }
        spawn_blocking(standby::ready).await.map_err(|error| error.to_string())??;
        let mut micros = Vec::new();
        for vote in 0..count {
            micros.push(decide(&clients, &format!("vote:{vote}")).await?);
        }
        micros.sort_by(f64::total_cmp);
        Ok(vec![quantile(&micros, 0.5), quantile(&micros, 0.99)])
    })
}

/// One vote: microseconds until somebody has the name.
async fn decide(clients: &[leaseward::Locks], name: &str) -> Result<f64, String> {
    let barrier = Arc::new(Barrier::new(clients.len()));
    let mut asking = JoinSet::new();
    for locks in clients {
        let (locks, barrier, name) = (locks.clone(), barrier.clone(), name.to_owned());
        asking.spawn(async move {
            barrier.wait().await;
            let begun = Instant::now();
            let guard = locks.lock(&name).acquire().await.map_err(|error| error.to_string())?;
            Ok::<_, String>((begun.elapsed(), guard))
        });
    }
    let first = asking.join_next().await.ok_or("nobody asked")?;
    let (took, guard) = first.map_err(|error| error.to_string())??;
    // The others stop waiting.
    asking.shutdown().await;
    guard.release().await.map_err(|error| error.to_string())?;
    Ok(took.as_secs_f64() * 1e6)
}
