//! The SQLite store: beside raw transactions, file locks, and itself in other processes.

use std::{
    fs::File,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

use crate::{
    child::{self, Part},
    raw_sqlite::{Checkpoints, RawSqlite},
    row::{
        Row, Size,
        Target::{AtLeast, AtMost, RatioAtLeast},
        Unit,
    },
    stats::{now, quantile},
    tasks::{self, Threads},
};

const PAIRS: u32 = 10_000;
const FILE_PAIRS: u32 = 200_000;
const AT_ONCE: u32 = 64;
const HAND_OVERS: u32 = 200_000;
/// Turns of each of two processes.
const TURNS_EACH: u32 = 300;
/// How long a turn lasts: the other process must be back in the queue by then.
const TURN: Duration = Duration::from_millis(2);
/// How long two processes write as fast as they can.
const BUSY_FOR: Duration = Duration::from_secs(4);

pub(crate) const TURNS: Part = Part { name: "sqlite-turns", play: take_turns };
pub(crate) const FLOCK_TURNS: Part = Part { name: "flock-turns", play: take_flock_turns };
pub(crate) const BUSY: Part = Part { name: "sqlite-busy", play: be_busy };
pub(crate) const RAW_BUSY: Part = Part { name: "raw-busy", play: be_busy_raw };

pub(crate) fn rows() -> Vec<Row> {
    vec![sequential(), at_once(), hand_over(), between_processes(), two_writers()]
}

fn sequential() -> Row {
    Row::new("sqlite: acquire + release, one task", Unit::PerSecond, &[RatioAtLeast(0.7)])
        .ours("leaseward", |size| {
            let times = size.times(PAIRS);
            with_locks(move |locks| async move {
                Ok(f64::from(times) / tasks::pairs(&locks, "one", times).await?)
            })
        })
        // The stricter of the two: it leaves out even the copying back that anything lasting must do.
        .raw("rusqlite, same pragmas, no checkpoints", |size| raw_pairs(size, Checkpoints::Never))
        .peer("rusqlite, SQLite's own checkpoints", |size| raw_pairs(size, Checkpoints::Usual))
        .peer("flock(2)", |size| {
            let (_folder, file) = lock_file()?;
            per_second(size.times(FILE_PAIRS), || {
                flock(&file, FlockOperation::LockExclusive).map_err(|e| e.to_string())?;
                flock(&file, FlockOperation::Unlock).map_err(|e| e.to_string())
            })
        })
        .peer("fd-lock", |size| {
            let (_folder, file) = lock_file()?;
            let mut lock = fd_lock::RwLock::new(file);
            per_second(size.times(FILE_PAIRS), || lock.write().map(drop).map_err(|e| e.to_string()))
        })
}

fn at_once() -> Row {
    Row::new("sqlite: acquire + release, 64 tasks", Unit::PerSecond, &[RatioAtLeast(2.0)])
        .ours("leaseward", |size| {
            let times = size.times(PAIRS) / 16;
            with_locks(move |locks| async move {
                let seconds = tasks::pairs_at_once(&locks, AT_ONCE, times).await?;
                Ok(f64::from(AT_ONCE * times) / seconds)
            })
        })
        .raw("rusqlite, same pragmas, no checkpoints", |size| raw_pairs(size, Checkpoints::Never))
        .peer("rusqlite, SQLite's own checkpoints", |size| raw_pairs(size, Checkpoints::Usual))
}

fn hand_over() -> Row {
    Row::new("sqlite: hand-over, 100 tasks, 1 process", Unit::PerSecond, &[AtLeast(300_000.0)])
        .ours("leaseward", |size| {
            let enough = size.times(HAND_OVERS);
            with_locks(move |locks| async move { tasks::hand_over(&locks, 100, enough).await })
        })
}

fn between_processes() -> Row {
    Row::new("sqlite: hand-over between 2 processes", Unit::Micros, &[AtMost(400.0)])
        .figure("p50")
        .and("p99", Unit::Micros, &[])
        .ours("leaseward", |size| turns(&TURNS, size))
        .peer("flock(2), blocked in it", |size| turns(&FLOCK_TURNS, size))
}

fn two_writers() -> Row {
    Row::new("sqlite: acquire + release, 2 busy processes", Unit::Micros, &[])
        .figure("p50")
        .and("p99", Unit::Micros, &[])
        .and("longest", Unit::Micros, &[])
        .and("pairs of both", Unit::PerSecond, &[])
        .ours("leaseward", |size| busy(&BUSY, size))
        .raw("rusqlite, SQLite's own checkpoints and waits", |size| busy(&RAW_BUSY, size))
}

fn url(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}

/// A folder on the disk that targets live on: what is in memory only would flatter.
fn folder() -> Result<TempDir, String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    TempDir::new_in(this.parent().ok_or("no folder")?).map_err(|error| error.to_string())
}

fn lock_file() -> Result<(TempDir, File), String> {
    let folder = folder()?;
    let file = File::create(folder.path().join("lock")).map_err(|error| error.to_string())?;
    Ok((folder, file))
}

/// A fresh file that the store has made.
fn fresh() -> Result<(TempDir, PathBuf), String> {
    let folder = folder()?;
    let path = folder.path().join("leases.db");
    let made = path.clone();
    tasks::in_task(Threads::Two, async move {
        tasks::pairs(&tasks::connect(&url(&made)).await?, "made", 1).await
    })?;
    Ok((folder, path))
}

/// Runs something on a fresh store; it answers with its one figure.
fn with_locks<F, Fut>(work: F) -> Result<Vec<f64>, String>
where
    F: FnOnce(leaseward::Locks) -> Fut + Send + 'static,
    Fut: Future<Output = Result<f64, String>> + Send + 'static,
{
    let (_folder, path) = fresh()?;
    tasks::in_task(Threads::Two, async move {
        let locks = tasks::connect(&url(&path)).await?;
        let figure = work(locks.clone()).await?;
        locks.shutdown().await;
        Ok(vec![figure])
    })
}

fn per_second(
    times: u32,
    mut work: impl FnMut() -> Result<(), String>,
) -> Result<Vec<f64>, String> {
    let begin = Instant::now();
    for _ in 0..times {
        work()?;
    }
    Ok(vec![f64::from(times) / begin.elapsed().as_secs_f64()])
}

fn raw_pairs(size: Size, checkpoints: Checkpoints) -> Result<Vec<f64>, String> {
    let (_folder, path) = fresh()?;
    let mut raw = RawSqlite::open(&path, checkpoints)?;
    per_second(size.times(PAIRS), || raw.pair("one"))
}

/// Starts a part twice on one file, and waits for the figures of both.
fn twice(part: &Part, path: &Path, number: &str) -> Result<[Vec<f64>; 2], String> {
    let path = path.display().to_string();
    let start =
        || child::command(part.name, &[&path, number])?.spawn().map_err(|error| error.to_string());
    let (one, two) = (start()?, start()?);
    Ok([child::figures(one)?, child::figures(two)?])
}

/// The arguments of a part: its file and a number.
fn given(args: &[String]) -> Result<(PathBuf, u32), String> {
    match args {
        [path, number] => Ok((path.into(), number.parse().map_err(|_| "no number")?)),
        _ => Err("a file and a number?".into()),
    }
}

/// Two processes take turns; how long from one's release until the other has it, p50 and p99.
fn turns(part: &Part, size: Size) -> Result<Vec<f64>, String> {
    let (_folder, path) = fresh()?;
    let path = if part.name == FLOCK_TURNS.name { path.with_extension("lock") } else { path };
    let told = twice(part, &path, &size.times(TURNS_EACH).to_string())?;
    let mut visits: Vec<(f64, f64, usize)> = Vec::new();
    for (process, figures) in told.iter().enumerate() {
        visits.extend(figures.chunks_exact(2).map(|visit| (visit[0], visit[1], process)));
    }
    visits.sort_by(|a, b| a.0.total_cmp(&b.0));
    let handed = visits.windows(2).filter(|two| two[0].2 != two[1].2);
    let mut micros: Vec<_> = handed.map(|two| (two[1].0 - two[0].1) / 1e3).collect();
    if micros.len() < visits.len() / 2 {
        return Err(format!("only {} of {} turns changed process", micros.len(), visits.len()));
    }
    if let Some(overlap) = micros.iter().find(|micros| **micros < 0.0) {
        // Two holders at once would be a bug, not a figure.
        return Err(format!("BUG: a turn began {overlap} µs before the other ended"));
    }
    micros.sort_by(f64::total_cmp);
    Ok(vec![quantile(&micros, 0.5), quantile(&micros, 0.99)])
}

fn take_turns(args: &[String]) -> Result<Vec<f64>, String> {
    let (path, times) = given(args)?;
    tasks::in_task(Threads::Two, async move {
        let locks = tasks::connect(&url(&path)).await?;
        let mut visits = Vec::new();
        for _ in 0..times {
            let guard = locks.lock("turn").acquire().await.map_err(|error| error.to_string())?;
            let came = now();
            tokio::time::sleep(TURN).await;
            visits.extend([came, now()]);
            guard.release().await.map_err(|error| error.to_string())?;
        }
        locks.shutdown().await;
        Ok(visits)
    })
}

fn take_flock_turns(args: &[String]) -> Result<Vec<f64>, String> {
    let (path, times) = given(args)?;
    let file = File::create(path).map_err(|error| error.to_string())?;
    let mut visits = Vec::new();
    for _ in 0..times {
        flock(&file, FlockOperation::LockExclusive).map_err(|error| error.to_string())?;
        let came = now();
        std::thread::sleep(TURN);
        visits.extend([came, now()]);
        flock(&file, FlockOperation::Unlock).map_err(|error| error.to_string())?;
        // It is not fair: who asks again at once gets it again.
        std::thread::sleep(TURN / 4);
    }
    Ok(visits)
}

/// Two processes on names of their own in one file: p50, p99 and longest of the worse one, and pairs of both.
fn busy(part: &Part, size: Size) -> Result<Vec<f64>, String> {
    let (_folder, path) = fresh()?;
    let millis = if size.is_quick { BUSY_FOR / 4 } else { BUSY_FOR }.as_millis().to_string();
    let [one, two] = twice(part, &path, &millis)?;
    let mut worse: Vec<_> = one.iter().zip(&two).map(|(one, two)| one.max(*two)).collect();
    worse[3] = one[3] + two[3];
    Ok(worse)
}

/// p50, p99 and longest in microseconds, and how many a second.
fn summary(mut micros: Vec<f64>, seconds: f64) -> Vec<f64> {
    let rate = micros.len() as f64 / seconds;
    micros.sort_by(f64::total_cmp);
    vec![quantile(&micros, 0.5), quantile(&micros, 0.99), quantile(&micros, 1.0), rate]
}

fn be_busy(args: &[String]) -> Result<Vec<f64>, String> {
    let (path, millis) = given(args)?;
    tasks::in_task(Threads::Two, async move {
        let locks = tasks::connect(&url(&path)).await?;
        let name = format!("busy:{}", std::process::id());
        let (begin, span) = (Instant::now(), Duration::from_millis(millis.into()));
        let mut micros = Vec::new();
        while begin.elapsed() < span {
            micros.push(tasks::pairs(&locks, &name, 1).await? * 1e6);
        }
        let figures = summary(micros, begin.elapsed().as_secs_f64());
        locks.shutdown().await;
        Ok(figures)
    })
}

fn be_busy_raw(args: &[String]) -> Result<Vec<f64>, String> {
    let (path, millis) = given(args)?;
    let mut raw = RawSqlite::open(&path, Checkpoints::Usual)?;
    let name = format!("busy:{}", std::process::id());
    let (begin, span) = (Instant::now(), Duration::from_millis(millis.into()));
    let mut micros = Vec::new();
    while begin.elapsed() < span {
        let start = Instant::now();
        raw.pair(&name)?;
        micros.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(summary(micros, begin.elapsed().as_secs_f64()))
}
