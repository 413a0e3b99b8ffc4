//! Holding very many leases that renew themselves: memory, processor time, requests, and whether any is lost.

use std::{process::Command, sync::Arc, time::Duration};

use leaseward::Locks;
use tokio::{sync::Semaphore, task::spawn_blocking};

use super::{argument, turns::OURS};
use crate::{
    child::{self, Part},
    redis::{
        clients::{self, said},
        peers,
        server::Server,
    },
    row::{Row, Target::AtMost, Unit},
    standby,
    tasks::{self, Threads},
};

/// How many are asked for at once: as many as a program with so many leases would.
const AT_ONCE: usize = 256;
/// Longer than a TTL of ten seconds: what is not renewed is gone by then.
const WINDOW: Duration = Duration::from_secs(12);
/// Long enough for two renewals of each of a million.
const LONG_WINDOW: Duration = Duration::from_secs(45);

pub(crate) const HOLD: Part = Part { name: "redis-hold", play };

pub(super) fn rows(server: &Server) -> Vec<Row> {
    let run = |who: &'static str, requests: &'static [&'static str]| {
        let server = server.clone();
        move |_| hold(&server, who, 100_000, clients::TTL, WINDOW, requests)
    };
    let many = figures("redis: 100,000 renewed leases, TTL 10 s", 6.0, 150.0)
        .rounds_max(1)
        .ours("leaseward", run("ours", OURS))
        .peer("rslock", run("rslock", &["evalsha", "eval"]))
        .peer("node-redlock", run("node", &["evalsha", "eval"]));
    let server = server.clone();
    let most = figures("redis: 1,000,000 renewed leases, TTL 60 s", 35.0, 500.0)
        .rounds_max(1)
        .long()
        .ours("leaseward", move |_| {
            hold(&server, "ours", 1_000_000, Duration::from_secs(60), LONG_WINDOW, OURS)
        });
    vec![many, most]
}

fn figures(name: &'static str, percent: f64, requests: f64) -> Row {
    Row::new(name, Unit::Bytes, &[AtMost(512.0)])
        .figure("memory each")
        .and("share of one core", Unit::Percent, &[AtMost(percent)])
        .and("requests", Unit::PerSecond, &[AtMost(requests)])
        .and("server's share of one core", Unit::Percent, &[])
        // Not always the same: a library may find out late that a lease of its is gone.
        .and("lost, says the holder", Unit::Count, &[AtMost(0.0)])
        .and("lost, says the server", Unit::Count, &[AtMost(0.0)])
}

fn hold(
    server: &Server,
    who: &str,
    leases: u32,
    ttl: Duration,
    window: Duration,
    requests: &[&str],
) -> Result<Vec<f64>, String> {
    let outcome = server.run(vec![command(who, &server.url(), leases, ttl, window)?], window)?;
    let [bytes, cpu_seconds, lost] = outcome.told[0][..] else {
        return Err("not three figures".into());
    };
    let seconds = window.as_secs_f64();
    Ok(vec![
        bytes,
        cpu_seconds / seconds * 100.0,
        outcome.spent.calls(requests) / seconds,
        outcome.spent.cpu_seconds / seconds * 100.0,
        lost,
        outcome.spent.expired,
    ])
}

fn command(
    who: &str,
    url: &str,
    leases: u32,
    ttl: Duration,
    window: Duration,
) -> Result<Command, String> {
    let (leases, millis) = (leases.to_string(), window.as_millis().to_string());
    match who {
        "node" => Ok(peers::node(&["hold", url, &leases, &millis])),
        _ => {
            let ttl = ttl.as_secs().to_string();
            child::command(HOLD.name, &[who, url, &leases, &millis, &ttl])
        }
    }
}

fn play(args: &[String]) -> Result<Vec<f64>, String> {
    let who: String = argument(args, 0)?;
    let url: String = argument(args, 1)?;
    let leases: usize = argument(args, 2)?;
    let window = Duration::from_millis(argument(args, 3)?);
    let ttl = Duration::from_secs(argument(args, 4)?);
    tasks::in_task(Threads::Two, async move {
        match who.as_str() {
            "ours" => ours(&tasks::connect(&url).await?, leases, ttl, window).await,
            "rslock" => rslock(&url, leases, ttl, window).await,
            _ => Err(format!("who is `{who}`?")),
        }
    })
}

/// Lets a window pass; memory of each lease and processor seconds.
async fn weigh(before: f64, leases: usize, window: Duration) -> Result<(f64, f64), String> {
    let taken = child::resident_bytes()?;
    spawn_blocking(standby::ready).await.map_err(said)??;
    let cpu = child::cpu_seconds();
    tokio::time::sleep(window).await;
    let cpu = child::cpu_seconds() - cpu;
    Ok(((taken.max(child::resident_bytes()?) - before) / leases as f64, cpu))
}

async fn ours(
    locks: &Locks,
    leases: usize,
    ttl: Duration,
    window: Duration,
) -> Result<Vec<f64>, String> {
    // Buffers for so many at once are no part of a lease.
    tasks::pairs_at_once(locks, AT_ONCE as u32, 100).await?;
    let before = child::resident_bytes()?;
    let running: Vec<_> = (0..AT_ONCE)
        .map(|task| {
            let locks = locks.clone();
            tokio::spawn(async move {
                let mut guards = Vec::with_capacity(leases / AT_ONCE + 1);
                for lease in (task..leases).step_by(AT_ONCE) {
                    let lock = locks.lock(format!("lease:{lease:06}")).ttl(ttl);
                    guards.push(lock.acquire().await.map_err(said)?);
                }
                Ok::<_, String>(guards)
            })
        })
        .collect();
    let mut guards = Vec::with_capacity(AT_ONCE);
    for task in running {
        guards.push(task.await.map_err(said)??);
    }
    let (bytes, cpu) = weigh(before, leases, window).await?;
    let lost = guards.iter().flatten().filter(|guard| !guard.is_held()).count();
    Ok(vec![bytes, cpu, lost as f64])
}

async fn rslock(
    url: &str,
    leases: usize,
    ttl: Duration,
    window: Duration,
) -> Result<Vec<f64>, String> {
    let manager = rslock::LockManager::new(vec![url]);
    manager.acquire("warm", ttl).await.map_err(said)?.release().await;
    let before = child::resident_bytes()?;
    let doors = Arc::new(Semaphore::new(AT_ONCE));
    let running: Vec<_> = (0..leases)
        .map(|lease| {
            let (manager, doors) = (manager.clone(), doors.clone());
            tokio::spawn(async move {
                let door = doors.acquire_owned().await;
                let name = format!("lease:{lease:06}");
                // Ends only if it cannot be renewed.
                let routine = async move || {
                    drop(door);
                    std::future::pending::<()>().await
                };
                manager.using(name.as_bytes(), ttl, routine).await
            })
        })
        .collect();
    let taken = doors.acquire_many(AT_ONCE as u32);
    drop(taken.await.map_err(said)?);
    let (bytes, cpu) = weigh(before, leases, window).await?;
    let lost = running.iter().filter(|task| task.is_finished()).count();
    Ok(vec![bytes, cpu, lost as f64])
}
