//! The same task under more and more contention, by every means there is: where does each of them win?
//!
//! Two processes of eight tasks each, every task with a connection of its own. A task picks a row at random, reads it, thinks
//! for a millisecond, and writes what it made of it, in a durable commit. With a thousand rows they never meet; with one they
//! always do.

mod means;
pub(crate) mod plot;

use std::{
    cell::OnceCell,
    rc::Rc,
    time::{Duration, Instant},
};

use leaseward_testkit::Postgres;
use rand::RngExt as _;
use tokio::task::spawn_blocking;

use self::means::Means;
use crate::{
    child::{self, Part},
    row::{
        Row, Size,
        Target::{self, RatioAtLeast},
        Unit,
    },
    standby::{self, StandBy},
    stats::quantile,
    tasks::{self, Threads},
};

const PROCESSES: usize = 2;
const TASKS_EACH: usize = 8;
const SPAN: Duration = Duration::from_millis(1_500);

/// Between reading and writing: what a small decision costs, or one call in the same data centre.
const THINK: Duration = Duration::from_millis(1);

/// How many rows there are to choose from, the fewer the more contended.
const STEPS: [(u32, &str); 5] = [
    (1_000, "contention: 1,000 rows"),
    (64, "contention: 64 rows"),
    (16, "contention: 16 rows"),
    (4, "contention: 4 rows"),
    (1, "contention: 1 row"),
];

pub(crate) const TASKS: Part = Part { name: "contention", play };

/// The server, started when it is needed first.
type Server = Rc<OnceCell<Postgres>>;

pub(crate) fn rows() -> Vec<Row> {
    let server = Server::default();
    STEPS.iter().map(|(rows, name)| row(&server, *rows, name)).collect()
}

fn row(server: &Server, rows: u32, name: &'static str) -> Row {
    let run = |means: &'static str| {
        let server = server.clone();
        move |size: Size| measure(&server, means, rows, size)
    };
    // Where nobody is in the way, a version costs nothing.
    let targets: &[Target] = if rows == STEPS[0].0 { &[RatioAtLeast(0.9)] } else { &[] };
    Row::new(name, Unit::PerSecond, targets)
        .and("p99", Unit::Millis, &[])
        .and("tries a commit", Unit::Count, &[])
        .ours("optimistic", run("optimistic"))
        .raw("SELECT FOR UPDATE", run("for-update"))
        .raw("advisory lock", run("advisory"))
        .ours("lease, held in the transaction", run("lease"))
        .ours("optimistic, lock after 2 conflicts", run("escalating"))
}

/// Commits a second of all, p99 of the slower process, tries a commit.
fn measure(server: &Server, means: &str, rows: u32, size: Size) -> Result<Vec<f64>, String> {
    let server = server.get_or_init(Postgres::start);
    server.sql(
        "DROP TABLE IF EXISTS counters;
        CREATE TABLE counters (id bigint PRIMARY KEY, count bigint NOT NULL, version bigint NOT NULL DEFAULT 1)
            WITH (fillfactor = 50);
        INSERT INTO counters (id, count) SELECT id, 0 FROM generate_series(0, 999) id;
        CREATE TABLE IF NOT EXISTS leaseward_fences (resource text PRIMARY KEY, fence bigint NOT NULL);
        TRUNCATE leaseward_fences",
    );
    let (rows, millis) = (rows.to_string(), size.span(SPAN).as_millis().to_string());
    let commands = (0..PROCESSES)
        .map(|_| child::command(TASKS.name, &[means, &server.url(), &rows, &millis]))
        .collect::<Result<_, _>>()?;
    let mut all = StandBy::start(commands)?;
    all.go()?;
    let told = all.figures()?;
    let sum = |at: usize| told.iter().map(|figures| figures[at]).sum::<f64>();
    let most = |at: usize| told.iter().map(|figures| figures[at]).fold(0.0, f64::max);
    let (commits, tries, seconds, p99) = (sum(0), sum(1), most(2), most(3));
    let counted: f64 = server
        .sql("SELECT sum(count) FROM counters")
        .parse()
        .map_err(|_| "the server counts otherwise")?;
    if counted != commits {
        // Somebody was overwritten: that would be a bug, not a figure.
        return Err(format!("BUG: {commits} commits, and {counted} counted"));
    }
    Ok(vec![commits / seconds, p99, tries / commits])
}

/// One process of an experiment; answers commits, tries, seconds, and the p99 in milliseconds.
fn play(args: &[String]) -> Result<Vec<f64>, String> {
    let [means, url, rows, millis] = args else { return Err("four arguments?".into()) };
    let (means, url) = (means.clone(), url.clone());
    let rows: i64 = rows.parse().map_err(|_| "how many rows?")?;
    let span = Duration::from_millis(millis.parse().map_err(|_| "how long?")?);
    tasks::in_task(Threads::Two, async move {
        let locks = tasks::connect(&url).await?;
        let mut all = Vec::new();
        for _ in 0..TASKS_EACH {
            let mut means = Means::new(&means, &url, &locks).await?;
            // Statements are prepared, pages are read.
            means.count(any_of(rows), Duration::ZERO).await?;
            all.push(means);
        }
        spawn_blocking(standby::ready).await.map_err(|error| error.to_string())??;
        let begin = Instant::now();
        let running: Vec<_> =
            all.into_iter().map(|means| tokio::spawn(work(means, rows, begin, span))).collect();
        let (mut millis, mut tries) = (Vec::new(), 0);
        for task in running {
            let (more, tried) = task.await.map_err(|error| error.to_string())??;
            millis.extend(more);
            tries += tried;
        }
        let seconds = begin.elapsed().as_secs_f64();
        locks.shutdown().await;
        millis.sort_by(f64::total_cmp);
        let warm = TASKS_EACH as f64;
        let commits = millis.len() as f64;
        Ok(vec![commits + warm, f64::from(tries) + warm, seconds, quantile(&millis, 0.99)])
    })
}

/// What one task does until the time is up: how long each commit took in milliseconds, and how many tries there were.
async fn work(
    mut means: Means,
    rows: i64,
    begin: Instant,
    span: Duration,
) -> Result<(Vec<f64>, u32), String> {
    let (mut millis, mut tries) = (Vec::new(), 0);
    while begin.elapsed() < span {
        let start = Instant::now();
        tries += means.count(any_of(rows), THINK).await?;
        millis.push(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok((millis, tries))
}

fn any_of(rows: i64) -> i64 {
    rand::rng().random_range(0..rows)
}
