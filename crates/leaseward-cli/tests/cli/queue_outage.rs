//! Workers that lose sight of their store while commands run: frozen, or the store is away. What is broken off is interrupted:
//! it runs again, and has lost no attempt.

use std::{fs, path::PathBuf, thread, time::Duration};

use leaseward_testkit::Postgres;
use rustix::process::Signal;

use crate::{
    queue::{Jobs, cases},
    support::{Running, is_gone, signal, until},
};

cases![
    a_worker_that_is_frozen_for_a_moment_interrupts_its_commands_and_goes_on,
    a_worker_that_is_frozen_past_its_ttl_interrupts_its_commands_each_time,
    of_two_workers_one_is_frozen,
];

const TTL: Duration = Duration::from_secs(2);

/// Jobs that may fail never, and a worker that runs two at a time. Commands have no end until there is a file `go`; then they
/// last long enough to be killed by a watchdog that is wrong about them.
fn start(jobs: &Jobs) -> (Running, PathBuf) {
    jobs.ok(&["add", "--max-attempts", "1", "1", "2", "3", "4", "5"]);
    let go = jobs.place.path("go");
    let script = format!("echo $$; [ -e {} ] || exec sleep 1000; sleep 0.3", go.display());
    let work = ["work", "--ttl", "2s", "-j", "2", "--backoff", "50ms", "--", "sh", "-c", &script];
    (jobs.start(&work), go)
}

/// The next command of a worker.
fn command(worker: &mut Running) -> i32 {
    worker.line().parse().expect("a process number")
}

/// All is done, at least so many commands were interrupted, and no attempt has failed.
fn all_done(jobs: &Jobs, worker: Running, interrupted: u64) {
    until("all is done", || jobs.count("default", "done") == 5);
    let stats = jobs.stats("default");
    for what in ["failed", "dead", "later"] {
        assert_eq!(stats[what], 0, "{what}: {stats}");
    }
    // More on a machine so busy that the session ends for that.
    let counted = stats["interrupted"].as_u64().expect("a number");
    assert!(counted >= interrupted, "{stats}");
    signal(worker.wrapper(), Signal::TERM);
    let ran = worker.end();
    assert_eq!(ran.code, 0, "{}", ran.err);
    let told = ran.err.matches("was interrupted: the store was not reached in time").count();
    assert_eq!(u64::try_from(told), Ok(counted), "{}", ran.err);
    assert!(ran.err.contains(&format!("5 done, {counted} interrupted")), "{}", ran.err);
}

fn a_worker_that_is_frozen_for_a_moment_interrupts_its_commands_and_goes_on(jobs: &Jobs) {
    let (mut worker, go) = start(jobs);
    let commands = [command(&mut worker), command(&mut worker)];
    signal(worker.wrapper(), Signal::STOP);
    until("the watchdog has ended both", || commands.iter().all(|pid| is_gone(*pid)));
    fs::write(go, "").expect("written");
    signal(worker.wrapper(), Signal::CONT);
    all_done(jobs, worker, 2);
}

fn a_worker_that_is_frozen_past_its_ttl_interrupts_its_commands_each_time(jobs: &Jobs) {
    let (mut worker, go) = start(jobs);
    for is_last in [false, true] {
        let commands = [command(&mut worker), command(&mut worker)];
        signal(worker.wrapper(), Signal::STOP);
        until("the watchdog has ended both", || commands.iter().all(|pid| is_gone(*pid)));
        // Not waiting for anything: this is how long it is away.
        thread::sleep(TTL);
        if is_last {
            fs::write(&go, "").expect("written");
        }
        signal(worker.wrapper(), Signal::CONT);
    }
    all_done(jobs, worker, 4);
}

fn of_two_workers_one_is_frozen(jobs: &Jobs) {
    let lines: String = (0..12).map(|n| format!("{n}\n")).collect();
    assert_eq!(jobs.fed(&["add", "--max-attempts", "2", "-"], &lines).code, 0);
    let first = jobs.place.path("first");
    let script =
        format!("mkdir {} 2>&- && {{ echo $$; exec sleep 1000; }}; sleep 0.1", first.display());
    let work = ["work", "--ttl", "2s", "--backoff", "50ms", "--", "sh", "-c", &script];
    let mut frozen = jobs.start(&work);
    let held = command(&mut frozen);
    signal(frozen.wrapper(), Signal::STOP);
    let other = jobs.start(&work);
    until("the watchdog has ended it", || is_gone(held));
    signal(frozen.wrapper(), Signal::CONT);
    until("all is done", || jobs.count("default", "done") == 12);
    assert_eq!(jobs.count("default", "dead"), 0);
    for worker in [frozen, other] {
        signal(worker.wrapper(), Signal::TERM);
        let ran = worker.end();
        assert_eq!(ran.code, 0, "{}", ran.err);
    }
}

#[test]
fn a_server_that_stands_still_for_a_moment_or_past_the_ttl_costs_no_attempt() {
    let server = Postgres::builder().in_memory().start();
    let jobs = Jobs::on(&server);
    let (mut worker, go) = start(&jobs);
    for away in [Duration::ZERO, TTL] {
        let commands = [command(&mut worker), command(&mut worker)];
        server.pause();
        until("the watchdog has ended both", || commands.iter().all(|pid| is_gone(*pid)));
        // Not waiting for anything: this is how long it is away.
        thread::sleep(away);
        if !away.is_zero() {
            fs::write(&go, "").expect("written");
        }
        server.resume();
    }
    all_done(&jobs, worker, 4);
}
