//! Holding very many leases: what each takes in memory, and what renewing them costs.

use std::time::Duration;

use crate::{
    child::{self, Part},
    row::{Row, Size, Target::AtMost, Unit},
    tasks::{self, Threads},
};

const LEASES: u32 = 100_000;
const TTL: Duration = Duration::from_secs(30);
/// Two renewals of each lease.
const WINDOW: Duration = Duration::from_secs(20);
/// A run is half a minute, most of it idle.
const ROUNDS: usize = 3;

pub(crate) const HOLDER: Part = Part { name: "lease-holder", play: hold };
pub(crate) const SLEEPERS: Part = Part { name: "task-per-lease", play: sleep };

pub(crate) fn rows() -> Vec<Row> {
    vec![
        Row::new("memory: 100,000 renewed leases, TTL 30 s", Unit::Bytes, &[AtMost(512.0)])
            .figure("memory each")
            .and("share of one core", Unit::Percent, &[AtMost(5.0)])
            .and("lost", Unit::Count, &[AtMost(0.0)])
            .rounds_max(ROUNDS)
            .ours("leaseward", |size| play(&HOLDER, size))
            // What a renewal loop of one's own takes before it renews anything.
            .peer("a bare tokio task each", |size| play(&SLEEPERS, size)),
    ]
}

fn play(part: &Part, size: Size) -> Result<Vec<f64>, String> {
    let window = if size.is_quick { WINDOW / 2 } else { WINDOW };
    child::play(part.name, &[&window.as_secs().to_string()])
}

fn window(args: &[String]) -> Result<Duration, String> {
    let seconds = args.first().and_then(|word| word.parse().ok()).ok_or("how many seconds?")?;
    Ok(Duration::from_secs(seconds))
}

/// Memory before and after, and processor time over the window.
async fn weigh(before: f64, window: Duration) -> Result<(f64, f64), String> {
    let taken = child::resident_bytes()?;
    let cpu = child::cpu_seconds();
    tokio::time::sleep(window).await;
    let share = (child::cpu_seconds() - cpu) / window.as_secs_f64();
    let bytes = (taken.max(child::resident_bytes()?) - before) / f64::from(LEASES);
    Ok((bytes, share * 100.0))
}

fn hold(args: &[String]) -> Result<Vec<f64>, String> {
    let window = window(args)?;
    tasks::in_task(Threads::Two, async move {
        let locks = tasks::connect("memory:").await?;
        tasks::pairs(&locks, "warm", 100).await?;
        let before = child::resident_bytes()?;
        let mut guards = Vec::with_capacity(LEASES as usize);
        for lease in 0..LEASES {
            let lock = locks.lock(format!("lease:{lease:06}")).ttl(TTL);
            guards.push(lock.acquire().await.map_err(|error| error.to_string())?);
        }
        let (bytes, share) = weigh(before, window).await?;
        let lost = guards.iter().filter(|guard| !guard.is_held()).count();
        Ok(vec![bytes, share, lost as f64])
    })
}

fn sleep(args: &[String]) -> Result<Vec<f64>, String> {
    let window = window(args)?;
    tasks::in_task(Threads::Two, async move {
        let before = child::resident_bytes()?;
        for _ in 0..LEASES {
            tokio::spawn(async {
                loop {
                    tokio::time::sleep(TTL / 3).await;
                }
            });
        }
        let (bytes, share) = weigh(before, window).await?;
        Ok(vec![bytes, share, 0.0])
    })
}
