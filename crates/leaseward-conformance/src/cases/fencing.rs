//! Fences grow, whatever happens.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use leaseward::{Fence, Locks, store::IfBusy};
use parking_lot::Mutex;

use crate::{
    Case, Fixture, Need,
    case::case,
    fixture::Fault,
    support::{LONG, SHORT, take},
};

pub(super) const CASES: &[Case] = &[
    case!(grows_with_every_acquisition),
    case!(grows_over_all_modes, Need::Shared, Need::Permits),
    case!(grows_past_a_vanished_holder).timed(),
    case!(blocks_never_overlap, Need::Blocks),
    case!(stays_below_2_to_the_53),
    case!(grows_across_a_restart_at_full_speed, Need::Fault(Fault::Restart)),
    case!(grows_after_a_wipe_at_full_speed, Need::Fault(Fault::Wipe)),
];

async fn fence_of(locks: &Locks, name: &str) -> Fence {
    let guard = locks.lock(name).ttl(LONG).acquire().await.expect("granted");
    let fence = guard.fence();
    guard.release().await.expect("given back");
    fence
}

async fn grows_with_every_acquisition(fixture: &Fixture) {
    let clients = [fixture.client().await, fixture.lone().await, fixture.client().await];
    let mut last = Fence::ZERO;
    for locks in clients.iter().cycle().take(60) {
        let fence = fence_of(locks, "x").await;
        assert!(fence > last, "{fence} came after {last}");
        last = fence;
    }
}

async fn grows_over_all_modes(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let mut last = Fence::ZERO;
    let kinds =
        [one.lock("x"), other.lock("x").shared(), one.semaphore("x", 3), other.semaphore("x", 2)];
    for lock in kinds.iter().cycle().take(24) {
        let guard = take(lock).await;
        assert!(guard.fence() > last, "{} came after {last}", guard.fence());
        last = guard.fence();
        guard.release().await.expect("given back");
    }
}

async fn grows_past_a_vanished_holder(fixture: &Fixture) {
    let (gone, line) = fixture.faulty().await;
    let other = fixture.client().await;
    let vanished = take(&gone.lock("x").ttl(SHORT)).await;
    line.cut();
    let next = other.lock("x").acquire().await.expect("in the end");
    assert!(next.fence() > vanished.fence());
}

/// Rule R9: the store records the end of a block, whatever size the next one has.
async fn blocks_never_overlap(fixture: &Fixture) {
    let (one, other) = (fixture.bare().await, fixture.bare().await);
    let mut last = Fence::ZERO;
    for (client, block) in [(&one, 64), (&other, 1), (&one, 2), (&other, 64), (&one, 1)] {
        let token = client.token();
        let mut ask = client.asks_for("x", &token, LONG, IfBusy::Tell);
        ask.block = block;
        let reserved = client.granted(ask).await.block;
        assert_eq!(reserved.len, block);
        assert!(reserved.first > last, "{} came after {last}", reserved.first);
        last = reserved.last();
        client.release("x", &token).await.expect("given back");
    }
}

async fn stays_below_2_to_the_53(fixture: &Fixture) {
    let fence = fence_of(&fixture.client().await, "x").await;
    assert!(fence.get() < 1 << 53, "{fence} is no exact number in JSON");
}

/// How many take locks at once, to drive the counter as fast as it goes.
const DRIVERS: usize = 64;
const DRIVE: Duration = Duration::from_millis(400);

/// Takes locks at full speed for a while, then closes; the highest fence there was.
async fn driven(fixture: &Fixture) -> Fence {
    let highest = Arc::new(Mutex::new(Fence::ZERO));
    let locks = fixture.client().await;
    let started = Instant::now();
    let drivers: Vec<_> = (0..DRIVERS)
        .map(|at| {
            let (locks, highest) = (locks.clone(), highest.clone());
            tokio::spawn(async move {
                // Half of them on one name, so that blocks are reserved for waiters too.
                let name = if at % 2 == 0 { "x".to_owned() } else { format!("x-{at}") };
                while started.elapsed() < DRIVE {
                    let fence = fence_of(&locks, &name).await;
                    let mut highest = highest.lock();
                    *highest = fence.max(*highest);
                }
            })
        })
        .collect();
    for driver in drivers {
        driver.await.expect("drives");
    }
    locks.shutdown().await;
    *highest.lock()
}

async fn grows_across_a_restart_at_full_speed(fixture: &Fixture) {
    let before = driven(fixture).await;
    fixture.inflict(Fault::Restart).await;
    let after = fence_of(&fixture.client().await, "x").await;
    assert!(after > before, "{after} came after {before}");
}

async fn grows_after_a_wipe_at_full_speed(fixture: &Fixture) {
    let before = driven(fixture).await;
    fixture.inflict(Fault::Wipe).await;
    let after = fence_of(&fixture.client().await, "x").await;
    assert!(after > before, "{after} came after {before}");
}
