//! Callers that give up soon, many of them, on few names: they are served too, and starve nobody.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use leaseward::{Locks, connect};
use leaseward_testkit::{Etcd, Postgres, RedisServer, ZooKeeper};

/// Tasks that want one of three names.
const TASKS: usize = 40;
const FOR: Duration = Duration::from_secs(4);

/// The median of an acquisition without rivals.
async fn lone(locks: &Locks) -> Duration {
    let mut took = Vec::new();
    for _ in 0..51 {
        let began = Instant::now();
        let guard = locks.lock("alone").acquire().await.expect("free");
        took.push(began.elapsed());
        guard.release().await.expect("ours");
    }
    took.sort();
    took[took.len() / 2]
}

/// How often so many tasks were granted a lease; each waits for as long as its patience lasts.
async fn grants(locks: &Locks, patience: Option<Duration>) -> (u64, u64) {
    let (granted, asked) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let ends = Instant::now() + FOR;
    let mut tasks = Vec::new();
    for at in 0..TASKS {
        let lock = locks.lock(format!("n{}", at % 3));
        let (granted, asked) = (granted.clone(), asked.clone());
        tasks.push(tokio::spawn(async move {
            while Instant::now() < ends {
                asked.fetch_add(1, Ordering::Relaxed);
                let acquire = lock.acquire();
                let got = match patience {
                    Some(patience) => tokio::time::timeout(patience, acquire).await.ok(),
                    None => Some(acquire.await),
                };
                if let Some(Ok(guard)) = got {
                    granted.fetch_add(1, Ordering::Relaxed);
                    guard.release().await.expect("ours");
                }
            }
        }));
    }
    for task in tasks {
        task.await.expect("no panic");
    }
    (granted.load(Ordering::Relaxed), asked.load(Ordering::Relaxed))
}

async fn are_served(url: &str) {
    for cohorts in [true, false] {
        let locks = Locks::builder().cohorts(cohorts).connect(url).await.expect("opened");
        let median = lone(&locks).await;
        let (patient, _) = grants(&locks, None).await;
        let (impatient, asked) = grants(&locks, Some(5 * median)).await;
        let quiet = Instant::now();
        let other = connect(url).await.expect("opened");
        for name in ["n0", "n1", "n2"] {
            drop(other.lock(name).acquire().await.expect("free"));
        }
        println!(
            "{}, cohorts {cohorts}: lone {median:?}; patient {patient}; impatient {impatient} of {asked}; quiet after {:?}",
            locks.location(),
            quiet.elapsed(),
        );
        // In strict order a caller has all before it to wait for, and gives up before its turn.
        assert!(
            impatient * 10 >= patient || !cohorts,
            "{impatient} of {asked}, patient ones {patient}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "half a minute for each store"]
async fn impatient_callers_are_served() {
    are_served("memory:").await;
    are_served(&RedisServer::start().url()).await;
    are_served(&Postgres::builder().in_memory().start().url()).await;
    are_served(&Etcd::start().url()).await;
    are_served(&ZooKeeper::start().url("locks")).await;
}
