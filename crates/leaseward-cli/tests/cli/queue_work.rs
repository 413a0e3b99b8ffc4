//! `leaseward queue work`: commands as workers, and what happens to their jobs when somebody is killed.

use std::fs;

use rustix::process::Signal;

use crate::{
    queue::{Jobs, cases},
    support::{content, is_gone, signal, until},
};

cases![
    a_command_gets_payload_and_environment,
    the_exit_code_decides,
    dead_jobs_keep_their_errors_and_are_retried,
    many_jobs_are_done_once_each_by_two_workers,
    a_killed_worker_takes_its_command_with_it_and_the_job_runs_again,
    jobs_of_a_vanished_worker_are_shown_so_and_waited_for,
    a_frozen_worker_does_not_keep_its_command,
    sigterm_lets_commands_finish,
    a_second_signal_gives_the_job_back,
    a_cancelled_command_is_ended,
    a_command_that_takes_too_long_is_ended,
    what_happens_is_told_as_json,
    what_a_command_leaves_behind_is_ended,
];

/// Writes to a file what a command has to say: its own stdout is the worker's.
fn noting(jobs: &Jobs, name: &str, script: &str) -> String {
    format!("echo $$ > {}; {script}", jobs.place.path(name).display())
}

fn a_command_gets_payload_and_environment(jobs: &Jobs) {
    let id = jobs.ok(&["add", "--queue", "mail", r#"{"to":"x"}"#]);
    let script = "cat; echo $LEASEWARD_JOB_ID $LEASEWARD_ATTEMPT $LEASEWARD_QUEUE; \
        echo $LEASEWARD_FENCE; case $LEASEWARD_STORE in *secret*) echo leaked;; esac";
    let out = jobs.ok(&["work", "--queue", "mail", "--until-empty", "--", "sh", "-c", script]);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[..2], [r#"{"to":"x"}"#, &format!("{} 1 mail", id.trim())], "{out}");
    assert!(lines[2].parse::<u64>().is_ok_and(|fence| fence > 0), "{out}");
    assert_eq!(lines.len(), 3, "{out}");
    assert_eq!(jobs.count("mail", "done"), 1);
    jobs.ok(&["add", "--text", "plain"]);
    assert_eq!(jobs.ok(&["work", "--raw", "--until-empty", "--", "cat"]), "plain\n");
    // A command that does not read is no problem, however much there is.
    let large = format!("\"{}\"", "x".repeat(300_000));
    assert_eq!(jobs.fed(&["add", "-"], &large).code, 0);
    jobs.ok(&["work", "--until-empty", "--", "true"]);
    assert_eq!(jobs.count("default", "done"), 2);
}

fn the_exit_code_decides(jobs: &Jobs) {
    for (queue, code) in [("done", 0), ("again", 3), ("snoozed", 75), ("never", 65)] {
        jobs.ok(&["add", "--queue", queue, "1"]);
        let script = format!("echo it says {code} >&2; exit {code}");
        let options = ["--backoff", "1h", "--until-empty", "--", "sh", "-c", &script];
        let ran = jobs.run(&[&["work", "--queue", queue], &options[..]].concat());
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(ran.err.contains(&format!("it says {code}")), "{}", ran.err);
    }
    assert_eq!(jobs.count("done", "done"), 1);
    let again = jobs.json(&["ls", "--queue", "again", "--json"]);
    assert_eq!((&again["state"], &again["failures"]), (&"later".into(), &1.into()));
    assert_eq!(again["history"][0]["error"], "exit code 3: it says 3");
    let snoozed = jobs.json(&["ls", "--queue", "snoozed", "--json"]);
    assert_eq!((&snoozed["state"], &snoozed["failures"]), (&"later".into(), &0.into()));
    let never = jobs.json(&["ls", "--queue", "never", "--json"]);
    assert_eq!((&never["state"], &never["failures"]), (&"dead".into(), &1.into()));
}

fn dead_jobs_keep_their_errors_and_are_retried(jobs: &Jobs) {
    let id = jobs.ok(&["add", "--max-attempts", "1", "1"]);
    let id = id.trim();
    jobs.ok(&["add", "--max-attempts", "1", "2", "3"]);
    let ran = jobs.run(&["work", "--until-empty", "--", "sh", "-c", "kill -9 $$"]);
    assert!(ran.code == 0 && ran.err.contains("3 dead"), "{}", ran.err);
    let shown = jobs.ok(&["show", id]);
    assert!(shown.contains("dead") && shown.contains("ended by signal 9"), "{shown}");
    assert_eq!(jobs.json(&["retry", id, "--json"])["retried"], true);
    let retried = jobs.json(&["retry", "--all", "--queue", "default", "--json"]);
    assert_eq!(retried["retried"], 2);
    jobs.ok(&["work", "--until-empty", "--", "true"]);
    let stats = jobs.stats("default");
    assert_eq!((&stats["done"], &stats["dead"]), (&3.into(), &0.into()), "{stats}");
}

fn many_jobs_are_done_once_each_by_two_workers(jobs: &Jobs) {
    let lines: String = (0..60).map(|n| format!("{n}\n")).collect();
    assert_eq!(jobs.fed(&["add", "-"], &lines).code, 0);
    let work = ["work", "-j", "3", "--until-empty", "--", "cat"];
    let (one, two) = (jobs.start(&work), jobs.start(&work));
    let (one, two) = (one.end(), two.end());
    let mut all: Vec<u32> = one
        .out
        .lines()
        .chain(two.out.lines())
        .map(|line| line.parse().expect("a number"))
        .collect();
    all.sort_unstable();
    assert!(all.iter().copied().eq(0..60), "{all:?}\n{}{}", one.err, two.err);
    assert_eq!(jobs.count("default", "done"), 60);
}

fn a_killed_worker_takes_its_command_with_it_and_the_job_runs_again(jobs: &Jobs) {
    jobs.ok(&["add", "1"]);
    let script = noting(jobs, "first", "echo $LEASEWARD_FENCE; sleep 1000");
    let mut first = jobs.start(&["work", "--ttl", "1s", "--", "sh", "-c", &script]);
    let old: u64 = first.line().parse().expect("a fence");
    let command: i32 = content(&jobs.place.path("first")).trim().parse().expect("a number");
    signal(first.wrapper(), Signal::KILL);
    until("the command is gone", || is_gone(command));
    let script = "echo $LEASEWARD_FENCE $LEASEWARD_ATTEMPT";
    let work = ["work", "--ttl", "1s", "--backoff", "10ms", "--", "sh", "-c", script];
    let mut second = jobs.start(&work);
    let line = second.line();
    let (fence, attempt) = line.split_once(' ').expect("two numbers");
    assert!(fence.parse::<u64>().is_ok_and(|fence| fence > old), "{line} after {old}");
    assert_eq!(attempt, "2");
    until("it is done", || jobs.count("default", "done") == 1);
    signal(second.wrapper(), Signal::TERM);
    assert_eq!(second.end().code, 0);
}

fn jobs_of_a_vanished_worker_are_shown_so_and_waited_for(jobs: &Jobs) {
    jobs.ok(&["add", "1", "2", "3"]);
    let work = ["work", "--ttl", "1s", "-j", "2", "--", "sh", "-c", "echo begun; sleep 1000"];
    let mut first = jobs.start(&work);
    assert_eq!((first.line(), first.line()), ("begun".to_owned(), "begun".to_owned()));
    assert!(jobs.ok(&["ls"]).contains("running"));
    signal(first.wrapper(), Signal::KILL);
    until("it is shown", || jobs.ok(&["ls"]).matches("worker vanished").count() == 2);
    let listed = jobs.ok(&["ls", "--state", "running", "-n", "1", "--json"]);
    assert!(listed.contains(r#""worker_vanished":true"#), "{listed}");
    let ran = jobs.run(&["work", "--ttl", "1s", "--until-empty", "--", "true"]);
    assert!(ran.err.contains("3 done"), "{}", ran.err);
}

fn a_frozen_worker_does_not_keep_its_command(jobs: &Jobs) {
    jobs.ok(&["add", "1"]);
    let script = noting(jobs, "first", "sleep 1000");
    let work = ["work", "--ttl", "1s", "--backoff", "10ms", "--", "sh", "-c", &script];
    let frozen = jobs.start(&work);
    let command: i32 = content(&jobs.place.path("first")).trim().parse().expect("a number");
    signal(frozen.wrapper(), Signal::STOP);
    until("the watchdog has ended the command", || is_gone(command));
    let script = "echo $LEASEWARD_ATTEMPT";
    let work = ["work", "--ttl", "1s", "--backoff", "10ms", "--", "sh", "-c", script];
    let mut other = jobs.start(&work);
    assert_eq!(other.line(), "2");
    until("it is done", || jobs.count("default", "done") == 1);
    // Whatever it has to say comes too late, and it goes on as a worker.
    signal(frozen.wrapper(), Signal::CONT);
    signal(other.wrapper(), Signal::TERM);
    assert_eq!(other.end().code, 0);
    signal(frozen.wrapper(), Signal::TERM);
    assert_eq!(frozen.end().code, 0);
    let stats = jobs.stats("default");
    assert_eq!((&stats["done"], &stats["dead"]), (&1.into(), &0.into()), "{stats}");
}

fn sigterm_lets_commands_finish(jobs: &Jobs) {
    jobs.ok(&["add", "1", "2"]);
    let go = jobs.place.path("go");
    let script = format!("echo begun; while [ ! -e {} ]; do sleep 0.01; done", go.display());
    let mut worker = jobs.start(&["work", "--", "sh", "-c", &script]);
    assert_eq!(worker.line(), "begun");
    signal(worker.wrapper(), Signal::TERM);
    fs::write(&go, "").expect("written");
    let ran = worker.end();
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("1 done"), "{}", ran.err);
    let stats = jobs.stats("default");
    assert_eq!(
        (&stats["done"], &stats["ready"], &stats["running"]),
        (&1.into(), &1.into(), &0.into())
    );
}

fn a_second_signal_gives_the_job_back(jobs: &Jobs) {
    let id = jobs.ok(&["add", "1"]);
    let script = noting(jobs, "first", "trap 'exit 7' TERM; while :; do sleep 0.01; done");
    let worker = jobs.start(&["work", "--grace", "1h", "--", "sh", "-c", &script]);
    let command: i32 = content(&jobs.place.path("first")).trim().parse().expect("a number");
    signal(worker.wrapper(), Signal::TERM);
    assert!(!is_gone(command), "the first signal lets it finish");
    signal(worker.wrapper(), Signal::INT);
    let ran = worker.end();
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(is_gone(command));
    let job = jobs.json(&["show", id.trim(), "--json"]);
    assert_eq!(job["failures"], 0, "{job}");
    jobs.ok(&["work", "--queue", "default", "--until-empty", "--", "true"]);
    assert_eq!(jobs.count("default", "done"), 1);
}

fn a_cancelled_command_is_ended(jobs: &Jobs) {
    let id = jobs.ok(&["add", "1"]);
    let script = noting(jobs, "first", "sleep 1000");
    let worker = jobs.start(&["work", "--", "sh", "-c", &script]);
    let command: i32 = content(&jobs.place.path("first")).trim().parse().expect("a number");
    assert_eq!(jobs.json(&["cancel", id.trim(), "--json"])["became"], "told");
    until("the command is gone", || is_gone(command));
    until("it is counted", || jobs.count("default", "cancelled") == 1);
    signal(worker.wrapper(), Signal::TERM);
    let ran = worker.end();
    assert!(ran.code == 0 && ran.err.contains("was cancelled"), "{}", ran.err);
}

fn a_command_that_takes_too_long_is_ended(jobs: &Jobs) {
    jobs.ok(&["add", "--timeout", "300ms", "--max-attempts", "1", "1"]);
    let script = noting(jobs, "first", "sleep 1000");
    let ran = jobs.run(&["work", "--until-empty", "--", "sh", "-c", &script]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let command: i32 = content(&jobs.place.path("first")).trim().parse().expect("a number");
    assert!(is_gone(command), "it does not outlive the worker");
    let job = jobs.json(&["ls", "--state", "dead", "--json"]);
    assert_eq!(job["history"][0]["error"], "not done after 300ms");
}

fn what_happens_is_told_as_json(jobs: &Jobs) {
    let id = jobs.ok(&["add", "1"]);
    let ran = jobs.run(&["work", "--json", "--until-empty", "--", "echo", "to whom?"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("to whom?"), "{}", ran.err);
    let events: Vec<serde_json::Value> =
        ran.out.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["kind"].as_str()).collect();
    assert_eq!(kinds, ["started", "done"], "{}", ran.out);
    assert!(events.iter().all(|event| event["job"] == id.trim()), "{}", ran.out);
}

fn what_a_command_leaves_behind_is_ended(jobs: &Jobs) {
    jobs.ok(&["add", "1"]);
    let left = jobs.place.path("left");
    let script = format!("sleep 1000 & echo $! > {}", left.display());
    jobs.ok(&["work", "--until-empty", "--", "sh", "-c", &script]);
    let left: i32 = content(&left).trim().parse().expect("a number");
    assert!(is_gone(left));
    assert_eq!(jobs.count("default", "done"), 1);
}
