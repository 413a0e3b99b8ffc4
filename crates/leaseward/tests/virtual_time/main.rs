//! The running engine under virtual time: several processes on one store behind bad weather, drawn by a seed.
//!
//! What the simulation of the pure deciders (`engine::sim`) cannot see is here: lanes, timers, channels, guards that are
//! dropped, futures that are cancelled, shared leases, permits, several names, a runtime that stands still.
//! `LEASEWARD_SEED=n cargo test -p leaseward --test virtual_time any_story -- --nocapture` tells one story;
//! `LEASEWARD_STORIES=n` tries more of them than the default.

mod cases;
mod dice;
mod faulty;
mod gated;
mod lane;
mod ledger;
mod program;
mod session;

use std::{
    cell::Cell,
    sync::{
        Arc, Once,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use leaseward::{
    Locks,
    clock::VirtualClock,
    store::{Query, Store},
    stores::memory::Memory,
};

use crate::{
    dice::Dice,
    faulty::{Faulty, Weather},
    ledger::Ledger,
    program::Caller,
};

/// Stories of the default run; about ten seconds on one core without optimisation.
const STORIES: u64 = 200;
/// Stories of a full run.
const STORIES_FULL: u64 = 5_000;
/// When the weather clears up.
const BAD_WEATHER: Duration = Duration::from_secs(20);
/// Everything ends long before this, or somebody hangs.
const FOR_EVER: Duration = Duration::from_secs(1_200);
/// The longest lease, extensions and minimum holds included, and then some.
const LEASES_END: Duration = Duration::from_secs(45);

thread_local!(static PANICKED: Cell<bool> = const { Cell::new(false) });

/// Tasks of the engine that panic would go unseen: nobody awaits them.
fn see_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICKED.set(true);
            before(info);
        }));
    });
    PANICKED.set(false);
}

/// Says which story it was if it ends badly.
struct Telling(u64);

impl Drop for Telling {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {0}: replay with LEASEWARD_SEED={0}", self.0);
        }
    }
}

struct Told {
    trace: Vec<String>,
    holds: u64,
}

fn tell(seed: u64, is_told: bool) -> Told {
    let _telling = Telling(seed);
    see_panics();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let told = runtime.block_on(story(seed, Ledger::new(is_told)));
    assert!(!PANICKED.get(), "a task of the engine panicked");
    told
}

async fn story(seed: u64, ledger: Ledger) -> Told {
    let dice = Dice::new(seed);
    let clock = Arc::new(VirtualClock::new());
    let memory = Memory::new(clock.clone());
    let is_bad = Arc::new(AtomicBool::new(true));
    let weather = Weather::drawn(&dice);
    let ttls_ms = dice.pick(&[&[400, 1_500][..], &[1_000], &[300, 12_000]]);
    let mut processes = Vec::new();
    let mut tasks = Vec::new();
    for process in 0..dice.pick(&[2, 3]) {
        let store = Faulty::new(memory.another(), weather, dice.split(), is_bad.clone());
        let locks = Locks::builder()
            .clock(clock.clone())
            .who(format!("process-{process}"))
            .seed(dice.roll())
            .cohorts(dice.chance(75))
            .over(Arc::new(store))
            .expect("a client");
        for task in 0..dice.pick(&[1, 2, 4]) {
            let caller = Caller {
                locks: locks.clone(),
                who: format!("{process}.{task}"),
                dice: dice.split(),
                ledger: ledger.clone(),
                ttls_ms,
            };
            tasks.push(tokio::spawn(caller.live(12)));
        }
        processes.push(locks);
    }
    let referee = tokio::spawn(watch(ledger.clone(), is_bad));
    let ended = tokio::time::timeout(FOR_EVER, async {
        for task in tasks {
            task.await.expect("no promise broken");
        }
    });
    ended.await.expect("somebody waits for ever");
    referee.abort();
    if let Err(error) = referee.await {
        assert!(error.is_cancelled(), "a promise was broken");
    }
    nothing_is_left(&memory, &processes).await;
    Told { holds: ledger.starts(), trace: ledger.close() }
}

/// Looks every few milliseconds, and lets the weather clear up in time.
async fn watch(ledger: Ledger, is_bad: Arc<AtomicBool>) {
    let clears_up = tokio::time::Instant::now() + BAD_WEATHER;
    loop {
        tokio::time::sleep(Duration::from_millis(7)).await;
        ledger.look();
        if tokio::time::Instant::now() >= clears_up {
            is_bad.store(false, Ordering::Relaxed);
        }
    }
}

/// Whatever was left behind ends by itself: nobody renews what nobody holds.
async fn nothing_is_left(memory: &Memory, processes: &[Locks]) {
    tokio::time::sleep(LEASES_END).await;
    let left = memory.inspect(Query::all()).await.expect("memory answers");
    assert!(left.is_empty(), "left behind: {left:#?}");
    for locks in processes {
        locks.shutdown().await;
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

#[test]
fn any_story_keeps_every_promise() {
    if let Some(seed) = number("LEASEWARD_SEED") {
        tell(seed, true);
        return;
    }
    let is_full = std::env::var_os("LEASEWARD_FULL").is_some();
    let usual = if is_full { STORIES_FULL } else { STORIES };
    let stories = number("LEASEWARD_STORIES").unwrap_or(usual);
    let began = std::time::Instant::now();
    let holds: u64 = (0..stories).map(|seed| tell(seed, false).holds).sum();
    println!("{stories} stories, {holds} holds in {:?}", began.elapsed());
    assert!(holds > stories * 5, "stories in which hardly anybody holds anything show nothing");
}

#[test]
fn a_seed_means_one_story() {
    for seed in 0..10 {
        let (once, twice) = (tell(seed, false).trace, tell(seed, false).trace);
        for (at, (one, other)) in once.iter().zip(&twice).enumerate() {
            assert_eq!(one, other, "seed {seed}, line {at}");
        }
        assert_eq!(once.len(), twice.len(), "seed {seed}");
    }
    assert_ne!(tell(1, false).trace, tell(2, false).trace);
}
