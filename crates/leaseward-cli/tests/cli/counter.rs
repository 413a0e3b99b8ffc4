//! No lost update: two processes increment an unprotected counter file, with and without holders being killed.

use std::{collections::HashSet, fs, thread};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::support::{Place, Running, signal};

/// Increments in each of the two lines of work; a thousand in a full run.
fn each() -> u32 {
    if std::env::var_os("LEASEWARD_FULL").is_some() { 1_000 } else { 60 }
}

/// Reads, writes, says so: every other increment that starts meanwhile would be lost. The file is replaced, so that a kill
/// leaves the old value or the new one.
const INCREMENT: &str =
    "read n < counter; n=$((n+1)); echo $n > new.$$; mv new.$$ counter; echo $n >> log";

fn start() -> Place {
    let place = Place::new();
    fs::write(place.path("counter"), "0\n").expect("written");
    fs::write(place.path("log"), "").expect("written");
    place
}

fn counter(place: &Place) -> u32 {
    let text = fs::read_to_string(place.path("counter")).expect("readable");
    text.trim().parse().expect("a number")
}

fn logged(place: &Place) -> Vec<u32> {
    let text = fs::read_to_string(place.path("log")).expect("readable");
    text.lines().map(|line| line.parse().expect("a number")).collect()
}

#[test]
fn two_processes_lose_no_increment() {
    let place = start();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..each() {
                    let ran = place.run(["run", "counter", "--", "sh", "-c", INCREMENT]);
                    assert_eq!(ran.code, 0, "{}", ran.err);
                }
            });
        }
    });
    assert_eq!(counter(&place), 2 * each());
}

#[test]
fn nor_do_they_when_holders_are_killed() {
    let place = start();
    let done: u32 = thread::scope(|scope| {
        let workers = [0, 1].map(|worker| {
            scope.spawn({
                let place = &place;
                move || work(place, worker)
            })
        });
        workers.into_iter().map(|worker| worker.join().expect("no panic")).sum()
    });
    let logged = logged(&place);
    let different: HashSet<u32> = logged.iter().copied().collect();
    assert_eq!(different.len(), logged.len(), "two increments wrote the same value: {logged:?}");
    assert!(logged.is_sorted(), "an old holder wrote after a new one: {logged:?}");
    assert!(counter(&place) >= done, "{} increments were done, {} kept", done, counter(&place));
}

/// Increments, killing every sixth holder: by turns the wrapper alone, and wrapper and group together. Answers how many
/// increments were acknowledged.
fn work(place: &Place, worker: u32) -> u32 {
    let script = format!("echo $$; {INCREMENT}");
    let arguments = ["run", "--ttl", "400ms", "counter", "--", "sh", "-c", &script];
    let mut done = 0;
    for round in 0..each() / 2 {
        let mut running = Running::start(&mut place.tool(arguments));
        // On a busy machine a lease this short may be lost before the command has said a word.
        let command = running.try_line().and_then(|line| line.parse().ok()).and_then(Pid::from_raw);
        if round % 6 == 3 * worker {
            signal(running.wrapper(), Signal::KILL);
            if let Some(group) = command.filter(|_| round % 12 < 6) {
                // It may have ended by itself, or by the watchdog's hand.
                let _ = kill_process_group(group, Signal::KILL);
            }
        }
        done += u32::from(running.end().code == 0);
    }
    done
}
