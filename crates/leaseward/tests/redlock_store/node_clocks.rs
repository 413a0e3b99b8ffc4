//! Clocks of nodes that are set: which of it breaks what, as `docs/guarantees.md` says.

use leaseward::{Attempt, Fence, LostReason};
use leaseward_testkit::{Fsync, PATIENCE, RedisServer, Skew};

use crate::{
    help::{LONG, busy, calls, held_at, taking, until_held_at},
    nodes::Nodes,
    operations::{connect, granted, keys, one, open, take, until},
};

const HOUR_MS: i64 = 3_600_000;

fn with_clocks() -> (Nodes, Vec<Skew>) {
    let clocks: Vec<_> = (0..5).map(|_| Skew::new()).collect();
    let nodes =
        Nodes::start(5, |at| RedisServer::builder().appendonly(Fsync::Always).skew(&clocks[at]));
    (nodes, clocks)
}

#[tokio::test(flavor = "multi_thread")]
async fn set_forward_at_a_majority_a_second_gets_in_with_a_larger_fence() {
    let (nodes, clocks) = with_clocks();
    let (locks, other) = (connect(&nodes.url("")).await, connect(&nodes.url("")).await);
    let first = take(locks.lock("a").ttl(LONG).no_renewal()).await;
    clocks[..3].iter().for_each(|clock| clock.set_ms(HOUR_MS));
    let second = until("the lease ends there", PATIENCE, || async {
        match other.lock("a").ttl(LONG).try_acquire().await.expect("they answer") {
            Attempt::Granted(guard) => Some(guard),
            Attempt::Busy(_) => None,
        }
    })
    .await;
    assert!(first.is_held(), "the first cannot know yet");
    assert!(second.fence() > first.fence(), "but the resource can tell them apart");
    // Nor does it go on for long: a renewal finds out.
    until("it is told", PATIENCE, || async { first.renew().await.err() }).await;
    assert!(matches!(first.lost().await, LostReason::NotOurs | LostReason::Expired));
    second.renew().await.expect("it is the second's");
}

#[tokio::test(flavor = "multi_thread")]
async fn set_forward_at_a_minority_nothing_breaks() {
    let (nodes, clocks) = with_clocks();
    let (locks, other) = (connect(&nodes.url("")).await, connect(&nodes.url("")).await);
    let first = take(locks.lock("a").ttl(LONG)).await;
    clocks[..2].iter().for_each(|clock| clock.set_ms(HOUR_MS));
    until("it ends there", PATIENCE, || async { (held_at(&nodes, "a") == 3).then_some(()) }).await;
    assert!(busy(other.lock("a").try_acquire().await).holder.is_some());
    until("it is put back", PATIENCE, || async {
        first.renew().await.expect("a majority has it");
        (held_at(&nodes, "a") == 5).then_some(())
    })
    .await;
    let mut fence = first.fence();
    first.release().await.expect("given back");
    // Also after the clocks are right again.
    for ahead in [HOUR_MS, 0, HOUR_MS, 0] {
        clocks[..2].iter().for_each(|clock| clock.set_ms(ahead));
        for locks in [&other, &locks] {
            let next = take(locks.lock("a")).await;
            assert!(next.fence() > fence);
            fence = next.fence();
            next.release().await.expect("given back");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn far_ahead_at_one_node_the_others_outvote_it() {
    let (nodes, clocks) = with_clocks();
    clocks[0].set_ms(80 * 365 * 24 * HOUR_MS);
    let (locks, other) = (connect(&nodes.url("")).await, connect(&nodes.url("")).await);
    let now_us = std::time::UNIX_EPOCH.elapsed().expect("a clock").as_micros();
    let is_of_now = |fence: Fence| u128::from(fence.get()).abs_diff(now_us) < 600_000_000;
    let mut last = None;
    for locks in [&locks, &other, &locks, &other] {
        let before = calls(&nodes[1]);
        let held = take(locks.lock("a").ttl(LONG)).await;
        assert!(is_of_now(held.fence()), "{:?} is by the wrong clock", held.fence());
        assert!(last < Some(held.fence()));
        last = Some(held.fence());
        until_held_at(&nodes, "a", 4).await;
        assert!(calls(&nodes[1]) - before <= 2, "one more round is enough");
        held.release().await.expect("given back");
        until_held_at(&nodes, "a", 0).await;
    }
    // Rivals split the votes of the others, and do not turn to that one for it.
    let rivals = [&locks, &other].map(|locks| {
        let locks = locks.clone();
        tokio::spawn(async move {
            let mut fences = Vec::new();
            for _ in 0..20 {
                let held = locks.lock("b").ttl(LONG).acquire().await.expect("granted");
                fences.push(held.fence());
                held.release().await.expect("given back");
            }
            fences
        })
    });
    for rival in rivals {
        let fences = rival.await.expect("no panic");
        assert!(fences.into_iter().all(is_of_now), "by the wrong clock");
    }
    for node in &nodes[1..] {
        let left: i64 = node.cli(&["pttl", "leaseward:b:lock:b"]).parse().expect("a number");
        assert!(left < HOUR_MS, "remembered for {left} ms");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn set_back_anywhere_nobody_gets_in() {
    for majority in [&[0, 1][..], &[0, 1, 2], &[0, 1, 2, 3, 4]] {
        let (nodes, clocks) = with_clocks();
        let (locks, other) = (connect(&nodes.url("")).await, connect(&nodes.url("")).await);
        let mut held = take(locks.lock("a").ttl(LONG)).await;
        majority.iter().for_each(|at| clocks[*at].set_ms(-HOUR_MS));
        assert!(busy(other.lock("a").try_acquire().await).holder.is_some());
        held.renew().await.expect("all have it");
        for locks in [&other, &locks, &other] {
            let fence = held.fence();
            held.release().await.expect("given back");
            held = take(locks.lock("a").ttl(LONG)).await;
            assert!(held.fence() > fence, "set back at {majority:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn set_back_a_lease_of_somebody_who_died_lasts_longer_there() {
    let (nodes, clocks) = with_clocks();
    let (store, other) = (open(&nodes.url("")).await, connect(&nodes.url("")).await);
    let grant = granted(one(&*store, taking("a", 1)).await);
    until_held_at(&nodes, "a", 5).await;
    clocks.iter().for_each(|clock| clock.set_ms(-HOUR_MS));
    let busy = busy(other.lock("a").try_acquire().await);
    let left = busy.holder.and_then(|holder| holder.remaining).expect("it has an end");
    assert!(left > LONG, "closed for {left:?}, not open");
    other.break_lease("a", true).await.expect("an operator can end it");
    assert!(take(other.lock("a")).await.fence() > grant.fence());
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_allowance_nothing_is_left_and_fences_still_grow() {
    let (nodes, clocks) = with_clocks();
    let locks = connect(&nodes.url("")).await;
    let fence = {
        let held = take(locks.lock("a").ttl(LONG)).await;
        let reader = take(locks.lock("b").shared().ttl(LONG)).await;
        let fence = held.fence();
        held.release().await.expect("given back");
        reader.release().await.expect("given back");
        fence
    };
    let left = ["leaseward:b:lock:a", "leaseward:b:lock:b"];
    until("all have heard of it", PATIENCE, || async {
        nodes.iter().all(|node| keys(node) == left).then_some(())
    })
    .await;
    // Ten minutes, a lease, and what a block reserves.
    clocks.iter().for_each(|clock| clock.set_ms(12 * 60_000));
    assert!(nodes.iter().all(|node| keys(node).is_empty()), "{:?}", keys(&nodes[0]));
    assert!(take(locks.lock("a")).await.fence() > fence);
}
