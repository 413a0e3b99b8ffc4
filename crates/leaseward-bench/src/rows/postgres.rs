//! The PostgreSQL store, with durable commits: beside pgbench that sends the same statements, and beside a bare
//! notification.

use std::{
    fs,
    future::poll_fn,
    sync::{Arc, OnceLock},
    thread,
    time::{Duration, Instant},
};

use leaseward_testkit::Postgres;
use tokio_postgres::{AsyncMessage, NoTls};

use super::redis::{PAIRS, Record, TURNS};
use crate::{
    child,
    row::{
        Row, Size,
        Target::{AtMost, RatioAtLeast, RatioAtMost},
        Unit,
    },
    standby::StandBy,
    stats::quantile,
    tasks::{self, Threads},
};

/// How long each contender works; pgbench counts in whole seconds.
const SPAN: Duration = Duration::from_secs(2);
const ROUNDS: usize = 3;
/// As many connections as ours has at most.
const LANES: u32 = 4;
const WAITERS: u32 = 1_000;

/// How long a lease is held before it is handed over, in the row of those that are held for a while: the one before, who
/// asks again at once, then stands in line, and all processes sleep.
const HELD: Duration = Duration::from_millis(1);

/// Taking and giving back, one operation a statement, as ours sends them when it is alone.
const STATEMENTS: &str = "\
SELECT * FROM leaseward.take(1, NULL, false, 'bench:' || :client_id, '\\x01', 'w', 10000000, 1, 0, NULL);
SELECT * FROM leaseward.give_back(1, NULL, 'bench:' || :client_id, '\\x01');
";

/// One server for all rows, started when the first needs it; on disk, with PostgreSQL's own settings.
#[derive(Clone, Default)]
struct Server(Arc<OnceLock<Postgres>>);

impl Server {
    fn get(&self) -> &Postgres {
        self.0.get_or_init(|| {
            let server = Postgres::start();
            // Makes the tables.
            let url = server.url();
            tasks::in_task(Threads::One, async move { tasks::connect(&url).await.map(drop) })
                .expect("a server of our own can be reached");
            server
        })
    }
}

pub(crate) fn rows() -> Vec<Row> {
    let server = Server::default();
    vec![
        alone(&server),
        at_once(&server),
        hand_over(&server),
        hand_over_held(&server),
        waiters(&server),
    ]
}

fn alone(server: &Server) -> Row {
    Row::new("postgres: acquire + release, 1 task", Unit::PerSecond, &[RatioAtLeast(0.8)])
        .figure("pairs")
        .and("errors", Unit::Count, &[AtMost(0.0)])
        .rounds_max(ROUNDS)
        .ours("leaseward", ours(server, 1))
        .raw("pgbench, same statements, 1 connection", raw(server, 1))
}

fn at_once(server: &Server) -> Row {
    Row::new("postgres: acquire + release, 64 tasks", Unit::PerSecond, &[RatioAtLeast(5.0)])
        .figure("pairs")
        .and("errors", Unit::Count, &[AtMost(0.0)])
        .rounds_max(ROUNDS)
        .ours("leaseward", ours(server, 64))
        .raw("pgbench, a statement an operation, 4 connections", raw(server, LANES))
}

fn ours(server: &Server, tasks: u32) -> impl FnMut(Size) -> Result<Vec<f64>, String> + 'static {
    let server = server.clone();
    move |size| {
        let millis = size.span(SPAN).as_millis().to_string();
        let url = server.get().url();
        let mut one = StandBy::start(vec![child::command(
            PAIRS.name,
            &["ours", &url, &tasks.to_string(), &millis],
        )?])?;
        one.go()?;
        let told = one.figures()?;
        let [pairs, seconds, _, _, _, errors] = told[0][..] else {
            return Err(format!("{} figures instead of 6", told[0].len()));
        };
        Ok(vec![pairs / seconds, errors])
    }
}

fn raw(
    server: &Server,
    connections: u32,
) -> impl FnMut(Size) -> Result<Vec<f64>, String> + 'static {
    let server = server.clone();
    move |size| {
        let seconds = size.span(SPAN).as_secs().max(1);
        Ok(vec![server.get().pgbench(STATEMENTS, connections, seconds), 0.0])
    }
}

/// From the moment at which a holder begins to give a lease back, until the task that waits for it in another process has its
/// guard; nobody does anything with the lease. As in the raw figure, nobody waits for the writer's answer, and the next
/// follows at once; unlike there, the one before asks again meanwhile, for the same row and on the same processors.
fn hand_over(server: &Server) -> Row {
    contest(server, "postgres: hand-over, 2 tasks in 2 processes, at once", Duration::ZERO)
}

/// The same of leases that are held for a while: nobody wants anything else meanwhile, and all processes have to be woken up,
/// which those of the raw figure have not. What that costs the bare statement stands beside it.
fn hand_over_held(server: &Server) -> Row {
    let paused = server.clone();
    contest(server, "postgres: hand-over, 2 tasks in 2 processes, each held 1 ms", HELD).peer(
        "the same, each after a pause as long as ours holds",
        move |size| {
            let (url, times) = (paused.get().url(), size.times(500));
            tasks::in_task(Threads::Two, async move { notified(&url, times, Some(HELD)).await })
        },
    )
}

fn contest(server: &Server, name: &'static str, held: Duration) -> Row {
    let (ours, bare) = (server.clone(), server.clone());
    Row::new(name, Unit::Micros, &[RatioAtMost(2.0)])
        .figure("p50")
        .and("errors", Unit::Count, &[AtMost(0.0)])
        .rounds_max(ROUNDS)
        .ours("leaseward", move |size| turns(ours.get(), size, held))
        .raw("durable UPDATE + NOTIFY until it is heard", move |size| {
            let (url, times) = (bare.get().url(), size.times(500));
            tasks::in_task(Threads::Two, async move { notified(&url, times, None).await })
        })
}

fn turns(server: &Postgres, size: Size, held: Duration) -> Result<Vec<f64>, String> {
    // Processes of the round before ended in the middle of their turns.
    server.sql("TRUNCATE leaseward.leases, leaseward.fences, leaseward.shares, leaseward.places");
    let (span, url) = (size.span(SPAN), server.url());
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let logs: Vec<_> = (0..2).map(|at| folder.path().join(at.to_string())).collect();
    let mut commands = Vec::new();
    for (at, log) in logs.iter().enumerate() {
        let (at, log) = (at.to_string(), log.display().to_string());
        let (millis, held) = (span.as_millis().to_string(), held.as_micros().to_string());
        let args = ["ours-strict", &url, "1", &millis, &at, &log, &held];
        commands.push(child::command(TURNS.name, &args)?);
    }
    let mut both = StandBy::start(commands)?;
    both.go()?;
    thread::sleep(span);
    let told = both.figures()?;
    let mut record = Record::default();
    for log in logs {
        record.read(&fs::read_to_string(log).map_err(|error| error.to_string())?)?;
    }
    let turns = record.summary(2, span);
    Ok(vec![turns.p50_us, turns.errors + told.iter().flatten().sum::<f64>()])
}

/// A row is changed and committed, and somebody told: how long until they have heard. After a pause all processes have to be
/// woken up first, and find the caches of others.
async fn notified(url: &str, times: u32, pause: Option<Duration>) -> Result<Vec<f64>, String> {
    let said = |error: tokio_postgres::Error| error.to_string();
    let (writer, carrier) = tokio_postgres::connect(url, NoTls).await.map_err(said)?;
    tokio::spawn(async move { drop(carrier.await) });
    let (listener, mut carrier) = tokio_postgres::connect(url, NoTls).await.map_err(said)?;
    let (tell, mut heard) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| carrier.poll_message(context)).await {
            if let AsyncMessage::Notification(_) = message {
                let _ = tell.send(Instant::now());
            }
        }
    });
    let tables =
        "CREATE TABLE IF NOT EXISTS bare (n bigint); TRUNCATE bare; INSERT INTO bare VALUES (0)";
    writer.batch_execute(tables).await.map_err(said)?;
    listener.batch_execute("LISTEN bare").await.map_err(said)?;
    let change = "WITH changed AS (UPDATE bare SET n = n + 1 RETURNING n) \
                  SELECT pg_notify('bare', n::text) FROM changed";
    let mut micros = Vec::new();
    for _ in 0..times {
        if let Some(pause) = pause {
            tokio::time::sleep(pause).await;
        }
        let begin = Instant::now();
        writer.query_typed(change, &[]).await.map_err(said)?;
        let at = heard.recv().await.ok_or("the connection ended")?;
        micros.push(at.duration_since(begin).as_secs_f64() * 1e6);
    }
    micros.sort_by(f64::total_cmp);
    Ok(vec![quantile(&micros, 0.5), 0.0])
}

fn waiters(server: &Server) -> Row {
    let server = server.clone();
    let name = "postgres: connections while 1,000 wait for one name";
    Row::new(name, Unit::Count, &[AtMost(f64::from(LANES + 1))]).rounds_max(1).ours(
        "leaseward",
        move |_| {
            let (url, watching) = (server.get().url(), server.clone());
            tasks::in_task(Threads::Two, async move { connections(&watching, &url).await })
        },
    )
}

async fn connections(server: &Server, url: &str) -> Result<Vec<f64>, String> {
    let said = |error: leaseward::Error| error.to_string();
    let locks = leaseward::Locks::builder().cohorts(false).connect(url).await.map_err(said)?;
    let held = locks.lock("crowd").acquire().await.map_err(said)?;
    let waiting: Vec<_> = (0..WAITERS)
        .map(|_| {
            let lock = locks.lock("crowd");
            tokio::spawn(async move { lock.acquire().await.map(drop) })
        })
        .collect();
    let server = server.get();
    while server.sql("SELECT count(*) FROM leaseward.places WHERE name = 'crowd'")
        != WAITERS.to_string()
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'leaseward %'";
    let count = server.sql(count).parse::<f64>().map_err(|error| error.to_string())?;
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    held.release().await.map_err(said)?;
    locks.shutdown().await;
    Ok(vec![count])
}
