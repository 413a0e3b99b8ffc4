//! Experiments that any store can run: pairs, contended hand-over, many names at once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use leaseward::Locks;
use tokio::runtime::Runtime;

/// Whose turn it was last: nobody's.
const NOBODY: u32 = u32::MAX;

/// How tasks are run.
#[derive(Clone, Copy)]
pub(crate) enum Threads {
    One,
    Two,
}

pub(crate) fn runtime(threads: Threads) -> Runtime {
    let mut builder = match threads {
        Threads::One => tokio::runtime::Builder::new_current_thread(),
        Threads::Two => tokio::runtime::Builder::new_multi_thread(),
    };
    if let Threads::Two = threads {
        builder.worker_threads(2);
    }
    builder.enable_all().build().expect("a runtime")
}

/// Opens a store for an experiment.
pub(crate) async fn connect(url: &str) -> Result<Locks, String> {
    leaseward::connect(url).await.map_err(|error| error.to_string())
}

/// Runs something as a task, as users do, and not in the runtime's `block_on`.
pub(crate) fn in_task<T: Send + 'static>(
    threads: Threads,
    work: impl Future<Output = Result<T, String>> + Send + 'static,
) -> Result<T, String> {
    runtime(threads).block_on(async { tokio::spawn(work).await.map_err(|e| e.to_string())? })
}

/// Acquires and releases one free name; seconds for all.
pub(crate) async fn pairs(locks: &Locks, name: &str, times: u32) -> Result<f64, String> {
    let begin = Instant::now();
    for _ in 0..times {
        let guard = locks.lock(name).acquire().await.map_err(|error| error.to_string())?;
        guard.release().await.map_err(|error| error.to_string())?;
    }
    Ok(begin.elapsed().as_secs_f64())
}

/// Tasks on names of their own, each acquiring and releasing; seconds for all.
pub(crate) async fn pairs_at_once(locks: &Locks, tasks: u32, times: u32) -> Result<f64, String> {
    let begin = Instant::now();
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let locks = locks.clone();
            tokio::spawn(async move { pairs(&locks, &format!("at-once:{task}"), times).await })
        })
        .collect();
    for task in running {
        task.await.map_err(|error| error.to_string())??;
    }
    Ok(begin.elapsed().as_secs_f64())
}

/// Counts hand-overs to *another* task until there are enough.
pub(crate) struct Relay {
    last: AtomicU32,
    handed: AtomicU32,
    enough: u32,
    is_over: AtomicBool,
}

impl Relay {
    pub(crate) fn new(enough: u32) -> Arc<Self> {
        Arc::new(Self {
            last: AtomicU32::new(NOBODY),
            handed: AtomicU32::new(0),
            enough,
            is_over: AtomicBool::new(false),
        })
    }

    /// Called by whoever holds the lock, so that plain loads and stores are enough.
    pub(crate) fn visit(&self, task: u32) {
        if self.last.load(Ordering::Relaxed) != task {
            self.last.store(task, Ordering::Relaxed);
            let handed = self.handed.load(Ordering::Relaxed) + 1;
            self.handed.store(handed, Ordering::Relaxed);
            if handed >= self.enough {
                self.is_over.store(true, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// How long the first holder waits until all others stand in the queue.
pub(crate) const LINE_UP: Duration = Duration::from_millis(50);

/// Tasks contending for one name; hand-overs a second.
///
/// The name is held until all of them wait for it. From then on every release finds a waiter; without that, tasks would
/// take turns only where the scheduler makes them, and the scheduler would be measured.
pub(crate) async fn hand_over(locks: &Locks, tasks: u32, enough: u32) -> Result<f64, String> {
    let relay = Relay::new(enough);
    let first = locks.lock("one").acquire().await.map_err(|error| error.to_string())?;
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let (locks, relay) = (locks.clone(), relay.clone());
            tokio::spawn(async move {
                while !relay.is_over() {
                    let guard = locks.lock("one").acquire().await.map_err(|e| e.to_string())?;
                    relay.visit(task);
                    guard.release().await.map_err(|e| e.to_string())?;
                }
                Ok::<_, String>(())
            })
        })
        .collect();
    tokio::time::sleep(LINE_UP).await;
    let begin = Instant::now();
    first.release().await.map_err(|error| error.to_string())?;
    for task in running {
        task.await.map_err(|error| error.to_string())??;
    }
    Ok(f64::from(enough) / begin.elapsed().as_secs_f64())
}
