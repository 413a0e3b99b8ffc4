//! The memory store beside `tokio::sync::Mutex`: what a lease costs where the store costs nothing.

use std::{sync::Arc, time::Instant};

use tokio::sync::Mutex;

use crate::{
    row::{
        Row,
        Target::{AtLeast, AtMost, RatioAtLeast, RatioAtMost},
        Unit,
    },
    tasks::{self, Relay, Threads},
};

const PAIRS: u32 = 500_000;
const HAND_OVERS: u32 = 500_000;
const TASKS: u32 = 100;
/// The mutex does this many times as much, so that both are measured for about as long: in a run of a few milliseconds
/// one preemption would be the figure.
const MUTEX_TIMES: u32 = 10;

pub(crate) fn rows() -> Vec<Row> {
    vec![
        Row::new(
            "memory: acquire + release, uncontended",
            Unit::Nanos,
            &[RatioAtMost(20.0), AtMost(1_500.0)],
        )
        .ours("leaseward", |size| lease_pairs(0, size.times(PAIRS)))
        .raw("tokio::sync::Mutex", |size| mutex_pairs(size.times(PAIRS) * MUTEX_TIMES)),
        Row::new("memory: the same, 1,000 other names held", Unit::Nanos, &[])
            .ours("leaseward", |size| lease_pairs(1_000, size.times(PAIRS)))
            .raw("tokio::sync::Mutex", |size| mutex_pairs(size.times(PAIRS) * MUTEX_TIMES)),
        hand_over("memory: hand-over, 100 tasks, 2 threads", Threads::Two),
        hand_over("memory: hand-over, 100 tasks, 1 thread", Threads::One),
    ]
}

fn hand_over(name: &'static str, threads: Threads) -> Row {
    Row::new(name, Unit::PerSecond, &[AtLeast(300_000.0), RatioAtLeast(0.1)])
        .ours("leaseward", move |size| {
            let enough = size.times(HAND_OVERS);
            tasks::in_task(threads, async move {
                let locks = tasks::connect("memory:").await?;
                Ok(vec![tasks::hand_over(&locks, TASKS, enough).await?])
            })
        })
        .raw("tokio::sync::Mutex", move |size| {
            let enough = size.times(HAND_OVERS) * MUTEX_TIMES;
            tasks::in_task(threads, async move { Ok(vec![mutex_hand_over(enough).await?]) })
        })
}

fn lease_pairs(others: u32, times: u32) -> Result<Vec<f64>, String> {
    tasks::in_task(Threads::Two, async move {
        let locks = tasks::connect("memory:").await?;
        let mut held = Vec::new();
        for other in 0..others {
            let lock = locks.lock(format!("other:{other}"));
            held.push(lock.acquire().await.map_err(|error| error.to_string())?);
        }
        tasks::pairs(&locks, "one", times / 10).await?;
        let seconds = tasks::pairs(&locks, "one", times).await?;
        Ok(vec![seconds * 1e9 / f64::from(times)])
    })
}

fn mutex_pairs(times: u32) -> Result<Vec<f64>, String> {
    tasks::in_task(Threads::Two, async move {
        let mutex = Arc::new(Mutex::new(0_u32));
        let begin = Instant::now();
        for _ in 0..times {
            *mutex.lock().await += 1;
        }
        Ok(vec![begin.elapsed().as_secs_f64() * 1e9 / f64::from(times)])
    })
}

async fn mutex_hand_over(enough: u32) -> Result<f64, String> {
    let relay = Relay::new(enough);
    let mutex = Arc::new(Mutex::new(()));
    let first = mutex.clone().lock_owned().await;
    let running: Vec<_> = (0..TASKS)
        .map(|task| {
            let (mutex, relay) = (mutex.clone(), relay.clone());
            tokio::spawn(async move {
                while !relay.is_over() {
                    let _guard = mutex.lock().await;
                    relay.visit(task);
                }
            })
        })
        .collect();
    tokio::time::sleep(tasks::LINE_UP).await;
    let begin = Instant::now();
    drop(first);
    for task in running {
        task.await.map_err(|error| error.to_string())?;
    }
    Ok(f64::from(enough) / begin.elapsed().as_secs_f64())
}
