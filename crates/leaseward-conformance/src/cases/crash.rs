//! Processes are killed and frozen.

use std::fs;

use crate::{
    Case, Fixture, Need,
    case::case,
    support::{LONG, asking, granted, held_with, queue_of},
};

pub(super) const CASES: &[Case] = &[
    case!(processes_exclude_each_other, Need::Processes),
    case!(a_killed_holder_is_followed, Need::Processes),
    case!(a_killed_waiter_is_skipped, Need::Processes, Need::Queue),
    case!(a_frozen_holder_finds_out_when_it_wakes, Need::Processes),
    case!(a_release_wakes_another_process, Need::Processes, Need::Queue),
    case!(killed_holders_lose_no_update, Need::Processes),
];

/// The TTL of leases whose holders are killed, in milliseconds.
const TTL_MS: u64 = 400;
/// Of leases that never run out here.
const LONG_MS: u64 = 3_600_000;

async fn processes_exclude_each_other(fixture: &Fixture) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("count");
    fs::write(&file, "0").expect("written");
    let mut takers = [fixture.taker().await, fixture.taker().await, fixture.taker().await];
    for taker in &mut takers {
        taker.tell(&format!("count x {LONG_MS} {} 50", file.display())).await;
    }
    for taker in &mut takers {
        for _ in 0..50 {
            taker.hears("counted").await;
        }
        taker.hears("done").await;
    }
    assert_eq!(fs::read_to_string(&file).expect("read"), "150", "an update was lost");
}

async fn a_killed_holder_is_followed(fixture: &Fixture) {
    let locks = fixture.client().await;
    let mut taker = fixture.taker().await;
    let fence = taker.hold("x", TTL_MS).await;
    held_with(&locks, "x", fence).await;
    taker.kill().await;
    let next = locks.lock("x").acquire().await.expect("in the end");
    assert!(next.fence() > fence);
}

async fn a_killed_waiter_is_skipped(fixture: &Fixture) {
    let locks = fixture.client().await;
    let held = locks.lock("x").ttl(LONG).acquire().await.expect("free");
    let mut taker = fixture.taker().await;
    taker.tell(&format!("hold x {TTL_MS}")).await;
    queue_of(&locks, "x", 1).await;
    taker.kill().await;
    let other = fixture.client().await;
    let next = asking(other.lock("x").ttl(LONG));
    let fence = held.fence();
    held.release().await.expect("given back");
    let next = granted(next).await;
    assert!(next.fence() > fence);
}

async fn a_frozen_holder_finds_out_when_it_wakes(fixture: &Fixture) {
    let locks = fixture.client().await;
    let mut taker = fixture.taker().await;
    let fence = taker.hold("x", TTL_MS).await;
    taker.freeze();
    let next = locks.lock("x").ttl(LONG).acquire().await.expect("in the end");
    assert!(next.fence() > fence, "a late write of the frozen one can be told by its fence");
    taker.thaw();
    taker.hears("lost x").await;
    taker.tell("is-held x").await;
    taker.hears("no").await;
    taker.tell("release x").await;
    assert_eq!(taker.hears("released x").await, "AlreadyExpired");
    held_with(&locks, "x", next.fence()).await;
}

async fn a_release_wakes_another_process(fixture: &Fixture) {
    let locks = fixture.client().await;
    let held = locks.lock("x").ttl(LONG).acquire().await.expect("free");
    let mut taker = fixture.taker().await;
    taker.tell(&format!("hold x {LONG_MS}")).await;
    queue_of(&locks, "x", 1).await;
    let fence = held.fence();
    held.release().await.expect("given back");
    assert!(taker.held("x").await > fence);
    taker.tell("release x").await;
    assert_eq!(taker.hears("released x").await, "Released");
    assert!(locks.lock("x").acquire().await.expect("free").is_held());
}

/// Of a count that goes on while others are killed: a stall of a busy machine must not end its leases.
const STEADY_MS: u64 = 1_200;
const KILLS: usize = 3;
const COUNTED: usize = 20;

/// The numbers a process announced.
fn counts(words: Vec<String>) -> impl Iterator<Item = u64> {
    words.into_iter().filter_map(|word| word.strip_prefix("counted ")?.parse().ok())
}

/// Kills a process while it counts, again and again: no number may be counted twice.
async fn killed_holders_lose_no_update(fixture: &Fixture) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("count");
    fs::write(&file, "0").expect("written");
    let count = format!("count x {STEADY_MS} {} 1000000", file.display());
    let mut steady = fixture.taker().await;
    steady.tell(&count).await;
    let mut counted = Vec::new();
    for _ in 0..KILLS {
        let mut victim = fixture.taker().await;
        victim.tell(&count).await;
        for _ in 0..COUNTED {
            counted.push(victim.hears("counted").await.parse().expect("a number"));
        }
        victim.kill().await;
        counted.extend(counts(victim.last_words().await));
    }
    steady.kill().await;
    counted.extend(counts(steady.last_words().await));
    let total: u64 = fs::read_to_string(&file).expect("read").parse().expect("a number");
    counted.sort_unstable();
    assert!(counted.windows(2).all(|pair| pair[0] < pair[1]), "an update was lost");
    assert!(counted.last().is_some_and(|last| *last <= total));
}
