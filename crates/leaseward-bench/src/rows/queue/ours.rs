//! Our side of the experiments, each in a process of its own.

use std::{
    future::pending,
    io::{BufRead as _, BufReader},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use leaseward_queue::{Context, Failure, NewJob, Queue, Worker};
use tokio::sync::oneshot;

use crate::{
    child::{self, Part},
    standby,
    stats::{now, quantile},
    tasks::{self, Threads},
};

pub(crate) const OURS: Part = Part { name: "queue-ours", play };

const QUEUE: &str = "bench";
const BATCH: u32 = 1_000;

/// Between two jobs of an idle queue.
const IDLE_PAUSE: Duration = Duration::from_millis(20);

fn play(args: &[String]) -> Result<Vec<f64>, String> {
    let [experiment, url, numbers @ ..] = args else { return Err("an experiment, a URL".into()) };
    let numbers: Result<Vec<u32>, _> = numbers.iter().map(|number| number.parse()).collect();
    let numbers = numbers.map_err(|error| error.to_string())?;
    let (experiment, url) = (experiment.clone(), url.clone());
    tasks::in_task(Threads::Two, async move {
        let queue = open(&url).await?;
        match (experiment.as_str(), numbers.as_slice()) {
            ("drain", [workers, jobs]) => drain(&queue, *workers, *jobs).await,
            ("batch", [jobs]) => batch(&queue, *jobs).await,
            ("single", [callers, jobs]) => single(&queue, *callers, *jobs).await,
            ("woken", [callers, jobs]) => woken(&url, &queue, *callers, *jobs).await,
            ("latency", [times]) => latency(&url, &queue, *times).await,
            ("half", [millis]) => half(&queue, *millis).await,
            ("life", [jobs]) => life(&queue, *jobs).await,
            ("crash", []) => crash(&url, &queue).await,
            ("victim", []) => victim(&queue).await,
            ("bloat", [old, jobs]) => bloat(&queue, *old, *jobs).await,
            (other, _) => Err(format!("no experiment `{other}`")),
        }
    })
}

async fn open(url: &str) -> Result<Queue, String> {
    Queue::open(url).await.map_err(text)
}

fn text(error: leaseward_queue::Error) -> String {
    error.to_string()
}

/// Pushes jobs that say when they were pushed.
async fn push(queue: &Queue, name: &str, jobs: u32) -> Result<(), String> {
    let mut left = jobs;
    while left > 0 {
        let count = left.min(BATCH);
        let at = now();
        queue.push_many((0..count).map(|_| NewJob::new(name, &at))).await.map_err(text)?;
        left -= count;
    }
    Ok(())
}

async fn nothing(_: f64, _: Context) -> Result<(), Failure> {
    Ok(())
}

async fn drain(queue: &Queue, workers: u32, jobs: u32) -> Result<Vec<f64>, String> {
    push(queue, QUEUE, jobs).await?;
    standby::ready()?;
    let begin = Instant::now();
    let worker = Worker::new(queue, QUEUE).concurrency(workers as usize);
    let summary = worker.drain(pending(), nothing).await.map_err(text)?;
    let seconds = begin.elapsed().as_secs_f64();
    if summary.done != u64::from(jobs) {
        return Err(format!("{} of {jobs} jobs were done", summary.done));
    }
    Ok(vec![f64::from(jobs) / seconds])
}

async fn batch(queue: &Queue, jobs: u32) -> Result<Vec<f64>, String> {
    push(queue, QUEUE, BATCH).await?;
    standby::ready()?;
    let begin = Instant::now();
    push(queue, QUEUE, jobs).await?;
    Ok(vec![f64::from(jobs) / begin.elapsed().as_secs_f64()])
}

async fn single(queue: &Queue, callers: u32, jobs: u32) -> Result<Vec<f64>, String> {
    queue.push(NewJob::new(QUEUE, &0)).await.map_err(text)?;
    standby::ready()?;
    let begin = Instant::now();
    let each = jobs / callers;
    let running: Vec<_> = (0..callers)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move {
                for _ in 0..each {
                    queue.push(NewJob::new(QUEUE, &0)).await.map_err(text)?;
                }
                Ok::<_, String>(())
            })
        })
        .collect();
    for caller in running {
        caller.await.map_err(|error| error.to_string())??;
    }
    Ok(vec![f64::from(each * callers) / begin.elapsed().as_secs_f64()])
}

/// The same while a worker of another client sleeps.
async fn woken(url: &str, queue: &Queue, callers: u32, jobs: u32) -> Result<Vec<f64>, String> {
    let other = open(url).await?;
    let (asleep, sleeping) = oneshot::channel::<()>();
    let worker = tokio::spawn(async move {
        let end = async { drop(sleeping.await) };
        Worker::new(&other, "other").run_until(end, nothing).await.map_err(text)
    });
    // Long enough to have looked, found nothing, and said that it sleeps.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let figures = single(queue, callers, jobs).await;
    drop(asleep);
    worker.await.map_err(|error| error.to_string())??;
    figures
}

/// Starts a worker that notes how long jobs have waited.
fn noting(queue: &Queue) -> (Arc<Mutex<Vec<f64>>>, oneshot::Sender<()>) {
    let waits = Arc::<Mutex<Vec<f64>>>::default();
    let (end, ended) = oneshot::channel::<()>();
    let (queue, noted) = (queue.clone(), waits.clone());
    tokio::spawn(async move {
        let end = async { drop(ended.await) };
        let handler = move |pushed: f64, _| {
            noted.lock().expect("BUG: no panic").push((now() - pushed) / 1e6);
            async { Ok::<(), Failure>(()) }
        };
        Worker::new(&queue, QUEUE).run_until(end, handler).await
    });
    (waits, end)
}

fn quantiles(waits: &Mutex<Vec<f64>>) -> (f64, f64) {
    let mut waits = waits.lock().expect("BUG: no panic").clone();
    waits.sort_by(f64::total_cmp);
    (quantile(&waits, 0.5), quantile(&waits, 0.99))
}

/// Pushed by one client, done by another, as by two processes.
async fn latency(url: &str, queue: &Queue, times: u32) -> Result<Vec<f64>, String> {
    let (waits, end) = noting(&open(url).await?);
    push(queue, QUEUE, 1).await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    standby::ready()?;
    waits.lock().expect("BUG: no panic").clear();
    for _ in 0..times {
        queue.push(NewJob::new(QUEUE, &now())).await.map_err(text)?;
        tokio::time::sleep(IDLE_PAUSE).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    drop(end);
    let (p50, p99) = quantiles(&waits);
    Ok(vec![p50, p99])
}

/// How many jobs a second go through at most, pushed and done at the same time; then half of that.
async fn half(queue: &Queue, millis: u32) -> Result<Vec<f64>, String> {
    let (waits, end) = noting(queue);
    let count = || waits.lock().expect("BUG: no panic").len();
    let calibration = 50_000;
    let begin = Instant::now();
    push(queue, QUEUE, calibration).await?;
    while count() < calibration as usize {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let rate = f64::from(calibration) / begin.elapsed().as_secs_f64() / 2.0;
    standby::ready()?;
    waits.lock().expect("BUG: no panic").clear();
    let begin = Instant::now();
    let mut pushed = 0.0;
    while begin.elapsed() < Duration::from_millis(millis.into()) {
        let due = (begin.elapsed().as_secs_f64() * rate - pushed).floor();
        if due >= 1.0 {
            let at = now();
            let jobs = (0..due as u32).map(|_| NewJob::new(QUEUE, &at));
            queue.push_many(jobs).await.map_err(text)?;
            pushed += due;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let seconds = begin.elapsed().as_secs_f64();
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(end);
    let (p50, p99) = quantiles(&waits);
    Ok(vec![p50, p99, pushed / seconds])
}

/// The whole life of jobs, for whoever watches the server meanwhile.
async fn life(queue: &Queue, jobs: u32) -> Result<Vec<f64>, String> {
    standby::ready()?;
    let begin = Instant::now();
    push(queue, QUEUE, jobs).await?;
    let worker = Worker::new(queue, QUEUE);
    worker.drain(pending(), nothing).await.map_err(text)?;
    Ok(vec![f64::from(jobs) / begin.elapsed().as_secs_f64()])
}

/// A worker that says when it has begun a job, and never ends it.
async fn victim(queue: &Queue) -> Result<Vec<f64>, String> {
    let handler = |_: f64, _| {
        println!("begun");
        pending::<Result<(), Failure>>()
    };
    Worker::new(queue, QUEUE).run(handler).await.map_err(text)?;
    Ok(Vec::new())
}

/// Kills a worker in the middle of a job; milliseconds until another process has begun it.
async fn crash(url: &str, queue: &Queue) -> Result<Vec<f64>, String> {
    standby::ready()?;
    push(queue, QUEUE, 1).await?;
    let mut victim = child::command(OURS.name, &["victim", url])?;
    let mut victim = victim.spawn().map_err(|error| error.to_string())?;
    let mut said = BufReader::new(victim.stdout.take().ok_or("it says nothing")?);
    said.read_line(&mut String::new()).map_err(|error| error.to_string())?;
    let (begun, begins) = oneshot::channel();
    let begun = Mutex::new(Some(begun));
    let handler = move |_: f64, _| {
        let begun = begun.lock().expect("BUG: no panic").take();
        if let Some(begun) = begun {
            let _ = begun.send(());
        }
        async { Ok::<(), Failure>(()) }
    };
    let begin = Instant::now();
    victim.kill().and_then(|()| victim.wait()).map_err(|error| error.to_string())?;
    let queue = queue.clone();
    tokio::spawn(async move { Worker::new(&queue, QUEUE).run(handler).await });
    begins.await.map_err(|error| error.to_string())?;
    Ok(vec![begin.elapsed().as_secs_f64() * 1e3])
}

/// Jobs a second of each tenth of a long stream through tables that hold many old jobs of another queue.
async fn bloat(queue: &Queue, old: u32, jobs: u32) -> Result<Vec<f64>, String> {
    push(queue, "old", old).await?;
    queue.pause("old").await.map_err(text)?;
    let done = Arc::new(AtomicU64::new(0));
    let (end, ended) = oneshot::channel::<()>();
    let worker = {
        let (queue, done) = (queue.clone(), done.clone());
        tokio::spawn(async move {
            let end = async { drop(ended.await) };
            let handler = move |_: f64, _| {
                done.fetch_add(1, Ordering::Relaxed);
                async { Ok::<(), Failure>(()) }
            };
            Worker::new(&queue, QUEUE).run_until(end, handler).await.map_err(text)
        })
    };
    standby::ready()?;
    let (tenth, mut pushed) = (jobs / 10, 0_u32);
    let mut figures = Vec::new();
    let (mut begin, mut counted) = (Instant::now(), 0);
    while figures.len() < 10 {
        let count = done.load(Ordering::Relaxed);
        if count >= u64::from(tenth) * (figures.len() as u64 + 1) {
            figures.push((count - counted) as f64 / begin.elapsed().as_secs_f64());
            (begin, counted) = (Instant::now(), count);
        }
        // A backlog of a few batches, so that nobody waits for the pusher.
        if pushed < jobs && u64::from(pushed) < count + 20 * u64::from(BATCH) {
            push(queue, QUEUE, BATCH).await?;
            pushed += BATCH;
        } else {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    drop(end);
    worker.await.map_err(|error| error.to_string())??;
    Ok(figures)
}
