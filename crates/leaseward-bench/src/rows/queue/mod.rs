//! The job queue, with durable commits: beside raw SQL of the same layout, and beside the queues people run.
//!
//! Peers are tuned as their users tune them: graphile-worker with a local queue of 100 and batched completion, pg-boss with
//! batches of 100. Every run has a database of its own. A peer's drain ends with its last handler, ours when everything is
//! written down.

mod bloat;
mod life;
mod ours;
mod peers;
pub(crate) mod plot;
mod raw;

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU32, Ordering},
};

use leaseward_testkit::Postgres;
use tempfile::TempDir;

use self::peers::Peer;
pub(crate) use self::{ours::OURS, raw::RAW};
use crate::{
    child,
    row::{
        Row, Size,
        Target::{AtMost, RatioAtLeast, RatioAtMost, TimesAtLeast, TimesAtMost},
        Unit,
    },
    standby::StandBy,
};

/// Rounds of these rows: each of them pushes and drains tens of thousands of jobs.
const ROUNDS: usize = 3;

/// One server for all rows, started when the first needs it; on disk, with durable commits.
#[derive(Clone, Default)]
pub(super) struct Server(Arc<OnceLock<Postgres>>, Arc<AtomicU32>);

impl Server {
    fn get(&self) -> &Postgres {
        self.0.get_or_init(|| {
            Postgres::builder().max_connections(200).conf("shared_buffers", "512MB").start()
        })
    }

    /// A database that nobody has used; its name and its URL.
    fn fresh(&self) -> (String, String) {
        let name = format!("jobs_{}", self.1.fetch_add(1, Ordering::Relaxed));
        let url = self.get().database(&name);
        (name, url)
    }
}

pub(crate) fn rows() -> Vec<Row> {
    let server = Server::default();
    let mut rows = vec![
        drain(
            &server,
            1,
            "queue: drain, 1 worker",
            &[TimesAtLeast("pg-boss", 2.5), TimesAtLeast("graphile-worker", 2.5)],
        ),
        drain(
            &server,
            8,
            "queue: drain, 8 workers",
            &[
                RatioAtLeast(0.7),
                TimesAtLeast("pg-boss", 3.0),
                TimesAtLeast("graphile-worker", 3.0),
            ],
        ),
        drain(
            &server,
            32,
            "queue: drain, 32 workers",
            &[
                RatioAtLeast(0.7),
                TimesAtLeast("pg-boss", 3.0),
                TimesAtLeast("graphile-worker", 3.0),
            ],
        ),
        batch(&server),
        single(&server),
        woken(&server),
        idle(&server),
        half_load(&server),
        crashed(&server),
    ];
    rows.extend(life::rows(&server));
    rows.extend(sqlite());
    rows.extend(bloat::rows(&server));
    rows
}

/// Runs one experiment of ours or of the raw limit in a process of its own.
fn child_run(part: &str, experiment: &str, url: &str, numbers: &[u32]) -> Result<Vec<f64>, String> {
    let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
    let mut args = vec![experiment, url];
    args.extend(numbers.iter().map(String::as_str));
    let mut one = StandBy::start(vec![child::command(part, &args)?])?;
    one.go()?;
    one.figures()?.into_iter().next().ok_or_else(|| "no figures".into())
}

/// A contender that is a part of this program, on a fresh database.
fn fresh(
    server: &Server,
    part: &'static str,
    experiment: &'static str,
    numbers: impl Fn(Size) -> Vec<u32> + 'static,
) -> impl FnMut(Size) -> Result<Vec<f64>, String> + 'static {
    let server = server.clone();
    move |size| child_run(part, experiment, &server.fresh().1, &numbers(size))
}

/// A peer, on a fresh database.
fn peer(
    server: &Server,
    who: Peer,
    experiment: &'static str,
    numbers: impl Fn(Size) -> Vec<u32> + 'static,
) -> impl FnMut(Size) -> Result<Vec<f64>, String> + 'static {
    let server = server.clone();
    move |size| who.run(experiment, &server.fresh().1, &numbers(size))
}

fn drain(server: &Server, workers: u32, name: &'static str, targets: &[crate::row::Target]) -> Row {
    let jobs = move |full: u32| move |size: Size| vec![workers, size.times(full)];
    Row::new(name, Unit::PerSecond, targets)
        .rounds_max(ROUNDS)
        .ours("leaseward-queue", fresh(server, OURS.name, "drain", jobs(100_000)))
        .raw("same layout, 2 claimers of 100", fresh(server, RAW.name, "drain", jobs(100_000)))
        .peer("pg-boss", peer(server, Peer::PgBoss, "drain", jobs(50_000)))
        .peer("graphile-worker", peer(server, Peer::Graphile, "drain", jobs(50_000)))
        .peer("procrastinate", peer(server, Peer::Procrastinate, "drain", jobs(2_500)))
}

fn batch(server: &Server) -> Row {
    let jobs = |full: u32| move |size: Size| vec![size.times(full)];
    let targets =
        [RatioAtLeast(0.9), TimesAtLeast("pg-boss", 5.0), TimesAtLeast("graphile-worker", 5.0)];
    Row::new("queue: push, batches of 1,000", Unit::PerSecond, &targets)
        .rounds_max(ROUNDS)
        .ours("leaseward-queue", fresh(server, OURS.name, "batch", jobs(200_000)))
        .raw("same layout, 1 connection", fresh(server, RAW.name, "batch", jobs(200_000)))
        .peer("pg-boss", peer(server, Peer::PgBoss, "batch", jobs(50_000)))
        .peer("graphile-worker", peer(server, Peer::Graphile, "batch", jobs(50_000)))
        .peer("procrastinate", peer(server, Peer::Procrastinate, "batch", jobs(10_000)))
}

fn single(server: &Server) -> Row {
    let callers = |full: u32| move |size: Size| vec![32, size.times(full)];
    let targets = [TimesAtLeast("pg-boss", 18.0), TimesAtLeast("graphile-worker", 18.0)];
    Row::new("queue: push one by one, 32 callers", Unit::PerSecond, &targets)
        .rounds_max(ROUNDS)
        .ours("leaseward-queue", fresh(server, OURS.name, "single", callers(50_000)))
        .raw("same layout, 1 connection", fresh(server, RAW.name, "together", callers(50_000)))
        .raw("same layout, 32 connections", fresh(server, RAW.name, "single", callers(10_000)))
        .peer("pg-boss", peer(server, Peer::PgBoss, "single", callers(4_000)))
        .peer("graphile-worker", peer(server, Peer::Graphile, "single", callers(4_000)))
        .peer("procrastinate", peer(server, Peer::Procrastinate, "single", callers(4_000)))
}

/// What it costs pushers that somebody sleeps and is to be woken: another queue's worker, so that nothing else differs.
fn woken(server: &Server) -> Row {
    let callers = |size: Size| vec![32, size.times(50_000)];
    Row::new("queue: push one by one while a worker sleeps", Unit::PerSecond, &[RatioAtLeast(0.9)])
        .rounds_max(ROUNDS)
        .ours("leaseward-queue", fresh(server, OURS.name, "woken", callers))
        .raw("leaseward-queue, nobody sleeps", fresh(server, OURS.name, "single", callers))
}

fn idle(server: &Server) -> Row {
    let times = |full: u32| move |size: Size| vec![size.times(full)];
    let targets =
        [RatioAtMost(1.3), TimesAtMost("graphile-worker", 0.5), TimesAtMost("procrastinate", 0.5)];
    Row::new("queue: push to start, idle, 50 jobs a second", Unit::Millis, &targets)
        .figure("p50")
        .and("p99", Unit::Millis, &[])
        .rounds_max(ROUNDS)
        .ours("leaseward-queue, 2 clients", fresh(server, OURS.name, "latency", times(250)))
        .raw("insert and notify, claim", fresh(server, RAW.name, "latency", times(250)))
        .peer("graphile-worker", peer(server, Peer::Graphile, "latency", times(250)))
        .peer("pg-boss, polls", peer(server, Peer::PgBoss, "latency", times(50)))
        .peer("procrastinate", peer(server, Peer::Procrastinate, "latency", times(250)))
}

fn half_load(server: &Server) -> Row {
    let millis = |size: Size| vec![size.times(5_000)];
    Row::new("queue: push to start, half of the load it can take", Unit::Millis, &[])
        .figure("p50")
        .and("p99", Unit::Millis, &[AtMost(10.0)])
        .and("jobs", Unit::PerSecond, &[])
        .rounds_max(ROUNDS)
        .ours("leaseward-queue", fresh(server, OURS.name, "half", millis))
}

/// From the moment in which a worker is killed, right after its first sign of life, until another has begun its job.
fn crashed(server: &Server) -> Row {
    // The TTL that a queue has if it is not told otherwise, and a second.
    let target = [AtMost(16_000.0)];
    Row::new("queue: job of a killed worker runs elsewhere", Unit::Millis, &target)
        .rounds_max(ROUNDS)
        .ours("leaseward-queue, 2 processes", fresh(server, OURS.name, "crash", |_| Vec::new()))
}

/// The same with no server at all.
fn sqlite() -> Vec<Row> {
    let ours = |experiment: &'static str, numbers: fn(Size) -> Vec<u32>| {
        move |size: Size| {
            let folder = TempDir::new().map_err(|error| error.to_string())?;
            let url = format!("sqlite:{}", folder.path().join("jobs.db").display());
            child_run(OURS.name, experiment, &url, &numbers(size))
        }
    };
    let row = |name| Row::new(name, Unit::PerSecond, &[]).rounds_max(ROUNDS);
    vec![
        row("queue on SQLite: drain, 1 worker")
            .ours("leaseward-queue", ours("drain", |size| vec![1, size.times(50_000)])),
        row("queue on SQLite: drain, 8 workers")
            .ours("leaseward-queue", ours("drain", |size| vec![8, size.times(50_000)])),
        row("queue on SQLite: push, batches of 1,000")
            .ours("leaseward-queue", ours("batch", |size| vec![size.times(100_000)])),
        row("queue on SQLite: push one by one, 32 callers")
            .ours("leaseward-queue", ours("single", |size| vec![32, size.times(50_000)])),
        Row::new("queue on SQLite: push to start, idle", Unit::Millis, &[])
            .figure("p50")
            .and("p99", Unit::Millis, &[])
            .rounds_max(ROUNDS)
            .ours("leaseward-queue", ours("latency", |size| vec![size.times(250)])),
    ]
}
