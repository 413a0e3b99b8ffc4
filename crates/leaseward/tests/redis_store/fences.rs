//! Fences of a server that forgot: they grow if its clock has passed the newest there was, and only then.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use leaseward::{Fence, Locks};
use leaseward_testkit::{PATIENCE, RedisServer, Skew};

use crate::help::{connect, granted, keys, one, open, releasing, taking, until};

const HOUR_MS: i64 = 3_600_000;

/// How a server loses its counter.
#[derive(Clone, Copy, Debug)]
enum Loss {
    Wipe,
    Restart,
}

impl Loss {
    fn inflict(self, server: &RedisServer) {
        match self {
            Self::Wipe => drop(server.cli(&["flushall"])),
            Self::Restart => server.restart(),
        }
        assert_eq!(keys(server), Vec::<String>::new(), "{self:?}");
    }
}

/// A fence, for a client that remembers none.
async fn next_fence(server: &RedisServer) -> Fence {
    let store = open(&server.url()).await;
    let grant = granted(one(&*store, taking("a", 1)).await);
    one(&*store, releasing("a", 1)).await.expect("given back");
    grant.fence()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_counter_is_made_good_by_a_clock_that_has_passed_it_and_by_no_other() {
    for loss in [Loss::Wipe, Loss::Restart] {
        let skew = Skew::new();
        let server = RedisServer::builder().no_persistence().skew(&skew).start();
        skew.set_ms(HOUR_MS);
        let ahead = next_fence(&server).await;
        skew.set_ms(0);
        let newest = next_fence(&server).await;
        assert!(newest > ahead, "set back, the clock is made good by the counter");
        loss.inflict(&server);
        let after = next_fence(&server).await;
        assert!(after < newest, "{loss:?}: with the clock behind, {after} came after {newest}");
        loss.inflict(&server);
        skew.set_ms(HOUR_MS);
        let after = next_fence(&server).await;
        assert!(after > newest, "{loss:?}: with the clock beyond, {after} came after {newest}");
    }
}

/// How many take locks at once, to drive the counter as fast as it goes, and how many fences they draw.
const DRIVERS: usize = 64;
const DRAWN: u64 = 5_000;

#[derive(Default)]
struct Drawn {
    count: AtomicU64,
    highest: AtomicU64,
}

impl Drawn {
    /// Takes and gives back until the server is gone, or it is stopped.
    async fn drive(&self, locks: &Locks, name: &str) {
        while let Ok(guard) = locks.lock(name).acquire().await {
            self.highest.fetch_max(guard.fence().get(), Ordering::Relaxed);
            self.count.fetch_add(1, Ordering::Relaxed);
            let _ = guard.release().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_keeps_nothing_and_is_killed_at_full_speed_goes_on_above() {
    let server = RedisServer::builder().no_persistence().start();
    let locks = connect(&server.url()).await;
    let drawn = Arc::new(Drawn::default());
    let drivers: Vec<_> = (0..DRIVERS)
        .map(|at| {
            let (locks, drawn) = (locks.clone(), drawn.clone());
            // Half of them on one name, so that blocks are reserved for waiters too.
            let name = if at % 2 == 0 { "x".to_owned() } else { format!("x-{at}") };
            tokio::spawn(async move { drawn.drive(&locks, &name).await })
        })
        .collect();
    let is_enough = || async { (drawn.count.load(Ordering::Relaxed) >= DRAWN).then_some(()) };
    until("enough were drawn", PATIENCE, is_enough).await;
    server.kill();
    // Those in line would wait for the server.
    drivers.iter().for_each(tokio::task::JoinHandle::abort);
    for driver in drivers {
        assert!(!driver.await.is_err_and(|ended| ended.is_panic()), "no driver panics");
    }
    drop(locks);
    server.restart();
    let after = next_fence(&server).await;
    let highest = drawn.highest.load(Ordering::Relaxed);
    assert!(after.get() > highest, "{after} came after {highest}");
}
