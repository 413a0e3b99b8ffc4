//! Fences on the one scale, through whatever becomes of the cluster.

use std::time::{SystemTime, UNIX_EPOCH};

use leaseward::{Fence, Locks};
use leaseward_testkit::Etcd;

use crate::help::{LONG, connect, take};

async fn fence_of(locks: &Locks, name: &str) -> Fence {
    let guard = take(locks.lock(name).ttl(LONG)).await;
    let fence = guard.fence();
    guard.release().await.expect("given back");
    fence
}

fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(since.as_micros()).expect("before the year 500000")
}

#[tokio::test]
async fn the_first_is_the_clocks() {
    let etcd = Etcd::start();
    let before = now_us();
    let locks = connect(&etcd.url()).await;
    let fence = fence_of(&locks, "x").await.get();
    assert!((before..now_us() + 1_000_000).contains(&fence), "{fence} at {before}");
}

/// A client that was there before goes on counting with the others.
#[tokio::test]
async fn they_grow_when_the_scale_is_deleted_under_two_clients() {
    let etcd = Etcd::start();
    let (one, other) = (connect(&etcd.url()).await, connect(&etcd.url()).await);
    let mut last = fence_of(&one, "x").await;
    for round in 0..3 {
        etcd.cli(&["del", "leaseward/%scale"]);
        for locks in [&other, &one, &connect(&etcd.url()).await] {
            let fence = fence_of(locks, "x").await;
            assert!(fence > last, "{fence} came after {last} in round {round}");
            last = fence;
        }
    }
}

#[tokio::test]
async fn they_grow_when_the_cluster_is_rebuilt_under_a_client() {
    let etcd = Etcd::start();
    let locks = connect(&etcd.url()).await;
    let mut last = Fence::ZERO;
    for _ in 0..100 {
        last = fence_of(&locks, "x").await;
    }
    etcd.rebuild();
    // What it finds is another cluster at revision 1.
    let fence = crate::help::until("it is back", || async {
        let guard = locks.lock("x").ttl(LONG).acquire().await.ok()?;
        let fence = guard.fence();
        guard.release().await.ok()?;
        Some(fence)
    })
    .await;
    assert!(fence > last, "{fence} came after {last}");
    assert!(fence_of(&connect(&etcd.url()).await, "x").await > fence);
}
