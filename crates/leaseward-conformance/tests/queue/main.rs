//! Jobs under fire: real worker processes on a real PostgreSQL and on SQLite, killed with -9, frozen past their lease, their
//! server restarted and their connections cut, in the middle of jobs.
//!
//! What is checked: every job's effect happened at least once, the effect that is in one transaction with the completion
//! exactly once; none is lost, none is stuck; completions of attempts that were taken for dead were tried, and refused.
//!
//! A few thousand jobs; 200,000 with `LEASEWARD_FULL`.

mod crew;
mod place;

use std::{collections::HashMap, time::Duration};

use leaseward_queue::{Error, ErrorKind, JobState, JobView, NewJob, Queue};
use leaseward_testkit::{PATIENCE, eventually};
use tokio::runtime::Runtime;

use self::{
    crew::{Crew, TTL},
    place::Place,
};

const QUEUE: &str = "fire";

/// What is done to workers and their connections.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Kill,
    Freeze,
    Cut,
    Restart,
}

/// How much of it: jobs, and how many of them at once.
fn size() -> (u64, u64) {
    if std::env::var_os("LEASEWARD_FULL").is_some() { (200_000, 1_000) } else { (3_000, 250) }
}

#[test]
fn every_job_has_its_effect_on_postgres() {
    let place = Place::postgres();
    let faults =
        [Fault::Kill, Fault::Freeze, Fault::Cut, Fault::Kill, Fault::Restart, Fault::Freeze];
    survives(&place, &faults);
}

#[test]
fn every_job_has_its_effect_on_sqlite() {
    survives(&Place::sqlite(), &[Fault::Kill, Fault::Freeze]);
}

fn survives(place: &Place, faults: &[Fault]) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let queue = runtime.block_on(Queue::open(&place.url)).expect("the database can be reached");
    let (jobs, portion) = size();
    let mut crew = Crew::start(place, QUEUE, 4);
    for (at, first) in (0..jobs).step_by(usize::try_from(portion).expect("small")).enumerate() {
        push(&runtime, &queue, first..first + portion);
        crew.begun();
        match faults[at % faults.len()] {
            Fault::Kill => crew.kill_one(at),
            Fault::Freeze => {
                let frozen = crew.freeze_one(at);
                // Until others have done its jobs; on SQLite it may have been frozen with the file in its hands.
                let _ = within(TTL * 8, || is_over(&runtime, &queue).then_some(()));
                crew.thaw(frozen);
            }
            Fault::Cut => place.cut(),
            Fault::Restart => place.restart(),
        }
    }
    assert!(ends(&runtime, &queue), "jobs are stuck: {:?}", left(&runtime, &queue));
    eventually("a stale completion was refused", PATIENCE, || (crew.stale() > 0).then_some(()));
    let stale = crew.stale();
    crew.end();
    assert!(left(&runtime, &queue).expect("the server is up").is_empty());
    let counted = counted(&runtime, &queue);
    runtime.block_on(queue.close());
    check(place, jobs);
    assert_eq!(counted, (jobs, jobs, 0), "pushed, done, dead");
    println!("{jobs} jobs, {stale} stale completions refused, {} attempts", place.appended().len());
}

/// Pushes jobs once. The server may have been restarted a moment ago: then nothing has happened, and it is tried again.
fn push(runtime: &Runtime, queue: &Queue, numbers: std::ops::Range<u64>) {
    eventually("jobs are pushed", PATIENCE, || {
        let jobs = numbers.clone().map(|number| NewJob::new(QUEUE, &number));
        match runtime.block_on(queue.push_many(jobs)) {
            Ok(pushed) => Some(pushed),
            Err(error) if error.kind() == ErrorKind::Unavailable => None,
            Err(error) => panic!("{error}"),
        }
    });
}

/// Every effect, counted.
fn check(place: &Place, jobs: u64) {
    let count = |numbers: Vec<u64>| {
        let mut counts: HashMap<u64, u64> = HashMap::new();
        numbers.into_iter().for_each(|number| *counts.entry(number).or_default() += 1);
        counts
    };
    let (appended, written) = (count(place.appended()), count(place.effects()));
    let lost: Vec<u64> = (0..jobs).filter(|number| !appended.contains_key(number)).collect();
    assert!(lost.is_empty(), "without any effect: {lost:?}");
    let guarded = (0..jobs).filter(|number| !number.is_multiple_of(3));
    let wrong: Vec<_> = guarded
        .map(|number| (number, written.get(&number).copied().unwrap_or(0)))
        .filter(|(_, times)| *times != 1)
        .collect();
    assert!(wrong.is_empty(), "guarded effects, not exactly once: {wrong:?}");
}

/// How many jobs have been pushed, are done, and are dead, by the counters.
fn counted(runtime: &Runtime, queue: &Queue) -> (u64, u64, u64) {
    let all = runtime.block_on(queue.stats()).expect("the server is up");
    let stats = all.into_iter().find(|stats| stats.name == QUEUE).expect("it was made");
    (stats.pushed, stats.done, stats.dead)
}

/// What is left to be done: looked for, not counted.
fn left(runtime: &Runtime, queue: &Queue) -> Result<Vec<JobView>, Error> {
    let mut left = Vec::new();
    // In the order in which jobs move, and the first once more: none slips through from the last to the first.
    for state in
        [JobState::Later, JobState::Blocked, JobState::Ready, JobState::Running, JobState::Later]
    {
        left.extend(runtime.block_on(queue.jobs(QUEUE, state, None, 10))?);
    }
    Ok(left)
}

fn is_over(runtime: &Runtime, queue: &Queue) -> bool {
    let is_drained = || runtime.block_on(queue.is_drained(QUEUE)).unwrap_or(false);
    is_drained() && left(runtime, queue).is_ok_and(|left| left.is_empty()) && is_drained()
}

/// Whether all jobs end. How long that takes is the machine's business: they are stuck only once none has ended for long. (The
/// server may have been restarted a moment ago.)
fn ends(runtime: &Runtime, queue: &Queue) -> bool {
    let done = || runtime.block_on(queue.stats()).ok()?.iter().map(|stats| stats.done).max();
    let mut last = None;
    loop {
        let is_moving = || {
            let now = done();
            (is_over(runtime, queue) || (now.is_some() && now != last)).then_some(now)
        };
        match within(PATIENCE * 12, is_moving) {
            None => return false,
            Some(_) if is_over(runtime, queue) => return true,
            Some(now) => last = now,
        }
    }
}

/// Asks for a while.
fn within<T>(time: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let begin = std::time::Instant::now();
    while begin.elapsed() < time {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    None
}
