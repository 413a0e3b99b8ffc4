//! All long-lived verbs on one server, side by side.

use std::{
    cell::RefCell,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::process::Signal;
use serde_json::Value;

use super::servers::Store;
use crate::support::{Place, Running, is_gone, signal, until};

/// Of every lease here.
pub(super) const TTL: Duration = Duration::from_secs(3);
const TTL_SHOWN: &str = "3s";

/// Those that go on for ever.
pub(super) struct Crowd {
    store: Store,
    place: Place,
    candidates: RefCell<Vec<Candidate>>,
    events: RefCell<Running>,
    worker: Option<RefCell<Running>>,
    top: Option<RefCell<Running>>,
}

/// `elect`, and the last command that it is known to have started.
struct Candidate {
    elect: Running,
    command: Option<i32>,
}

/// One `run` that holds two names, and who waits for them.
pub(super) struct Line {
    holder: Running,
    runs: Running,
    acquires: Option<Running>,
}

impl Crowd {
    pub(super) fn start(store: Store) -> Self {
        let place = Place::new();
        let start = |arguments: &[&str]| {
            Running::start(&mut place.tool([&["--store", &store.url], arguments].concat()))
        };
        let script = "echo $$; exec sleep 1000";
        let elect = ["elect", "boss", "--ttl", TTL_SHOWN, "--", "sh", "-c", script];
        let candidates = if store.elects { 2 } else { 0 };
        let candidates = (0..candidates).map(|_| Candidate { elect: start(&elect), command: None });
        let candidates = candidates.collect();
        let work = ["queue", "work", "--ttl", "1s", "--", "cat"];
        let worker = store.keeps_jobs.then(|| start(&work).into());
        let top = store.keeps_jobs.then(|| start(&["queue", "top", "--interval", "100ms"]));
        let events = start(&["events", "--follow", "--json"]).into();
        let top = top.map(RefCell::new);
        let crowd =
            Self { store, candidates: RefCell::new(candidates), events, worker, top, place };
        crowd.all_go_on();
        crowd
    }

    fn tool(&self, arguments: &[&str]) -> Running {
        let all = [&["--store", &self.store.url], arguments].concat();
        Running::start(&mut self.place.tool(all))
    }

    /// Has two names held, and others wait for them.
    pub(super) fn line_up(&self) -> Line {
        let script = "echo holds; cat > /dev/null";
        let holder = ["run", "x", "y", "--ttl", TTL_SHOWN, "--", "sh", "-c", script];
        let mut holder = self.tool(&holder);
        assert_eq!(holder.line(), "holds");
        let runs = ["run", "x", "--ttl", TTL_SHOWN, "--wait", "5m", "--", "echo", "got it"];
        let mut runs = self.tool(&runs);
        let acquire = ["acquire", "y", "--ttl", TTL_SHOWN, "--wait", "5m"];
        let mut acquires = self.store.elects.then(|| self.tool(&acquire));
        says(&mut runs, "waiting for");
        acquires.iter_mut().for_each(|waiter| says(waiter, "waiting for"));
        Line { holder, runs, acquires }
    }

    /// Waits until everybody has noticed that the store is away, and no command is left that ran under a lease.
    pub(super) fn all_notice(&self, line: &mut Line) {
        for candidate in self.candidates.borrow_mut().iter_mut() {
            says(&mut candidate.elect, AWAY);
            candidate.listen();
            let command = candidate.command;
            until("the leader's command is ended", || command.is_none_or(is_gone));
        }
        says(&mut self.events.borrow_mut(), AWAY);
        says(&mut line.runs, AWAY);
        line.acquires.iter_mut().for_each(|waiter| says(waiter, AWAY));
        says(&mut line.holder, "was lost");
        if let Some(top) = &self.top {
            says(&mut top.borrow_mut(), AWAY);
            until_line(&mut top.borrow_mut(), "store away since");
        }
    }

    /// Each says that the store is back, once, and `events` that it may have missed what happened when it went away.
    pub(super) fn all_say_so(&self, went_away: SystemTime) {
        for candidate in self.candidates.borrow_mut().iter_mut() {
            says_only(&mut candidate.elect, BACK);
        }
        says_only(&mut self.events.borrow_mut(), BACK);
        let went_away = went_away.duration_since(UNIX_EPOCH).expect("after 1970").as_micros();
        let within = |gap: &Value| {
            let us = |side| gap[side].as_u64().map(u128::from).expect("a time");
            (us("from_us")..us("to_us")).contains(&went_away)
        };
        let mut events = self.events.borrow_mut();
        while !within(&parsed(&until_line(&mut events, "\"gap\""))) {}
        if let Some(top) = &self.top {
            says_only(&mut top.borrow_mut(), BACK);
        }
    }

    /// The line is served.
    pub(super) fn served(&self, line: Line) {
        // What it ends with depends on how long the store was away.
        let ended = line.holder.end();
        assert!([0, 76].contains(&ended.code), "{}: {}", ended.code, ended.err);
        let ran = line.runs.end();
        assert_eq!((ran.code, ran.out.as_str()), (0, "got it\n"), "{}", ran.err);
        if let Some(waiter) = line.acquires {
            let acquired = waiter.end();
            assert_eq!(acquired.code, 0, "{}", acquired.err);
        }
    }

    /// Everybody does what it was started for.
    pub(super) fn all_go_on(&self) {
        self.one_leads();
        let held = self.tool(&["run", "seen", "--", "cat"]);
        // By who it is: keys of advisory locks do not tell the name.
        let who = format!(":{}", held.wrapper());
        let seen = |event: &Value| event["who"].as_str().is_some_and(|seen| seen.ends_with(&who));
        while !seen(&parsed(&self.events.borrow_mut().line())) {}
        let held = held.end();
        assert_eq!(held.code, 0, "{}", held.err);
        if let Some(worker) = &self.worker {
            let added = self.tool(&["queue", "add", "\"job\""]).end();
            assert_eq!(added.code, 0, "{}", added.err);
            until_line(&mut worker.borrow_mut(), "job");
        }
        if let Some(top) = &self.top {
            until_line(&mut top.borrow_mut(), "default");
        }
    }

    /// One of the candidates leads, and its command runs.
    fn one_leads(&self) {
        let mut candidates = self.candidates.borrow_mut();
        if candidates.is_empty() {
            return;
        }
        let leads = |candidate: &mut Candidate| {
            candidate.listen();
            assert!(!is_gone(candidate.elect.wrapper()), "a candidate has ended");
            candidate.command.is_some_and(|command| !is_gone(command))
        };
        let candidates = RefCell::new(&mut candidates);
        until("somebody leads", || candidates.borrow_mut().iter_mut().any(leads));
        let leaders =
            candidates.borrow_mut().iter_mut().filter_map(|c| leads(c).then_some(())).count();
        assert!(leaders < 2, "two lead");
    }

    pub(super) fn end(self) {
        let ended = |running: Running, with: Signal| {
            signal(running.wrapper(), with);
            running.end()
        };
        for candidate in self.candidates.into_inner() {
            let ran = ended(candidate.elect, Signal::TERM);
            assert_eq!(ran.code, 143, "{}", ran.err);
        }
        let ran = ended(self.events.into_inner(), Signal::INT);
        assert_eq!(ran.code, 130, "{}", ran.err);
        for forever in [self.worker, self.top].into_iter().flatten() {
            let ran = ended(forever.into_inner(), Signal::TERM);
            assert_eq!(ran.code, 0, "{}", ran.err);
        }
    }
}

impl Candidate {
    /// Takes note of the commands it has started meanwhile.
    fn listen(&mut self) {
        while let Some(line) = self.elect.line_if_any() {
            self.command = Some(line.parse().expect("a process number"));
        }
    }
}

pub(super) const AWAY: &str = "warning: the store is away";
const BACK: &str = "warning: the store is back";

/// Reads stderr up to a line with this.
pub(super) fn says(running: &mut Running, what: &str) {
    while !hears(running, what).contains(what) {}
}

/// The same, and the outage was told once.
fn says_only(running: &mut Running, what: &str) {
    loop {
        let line = hears(running, what);
        if line.contains(what) {
            return;
        }
        assert!(!line.contains(AWAY), "said twice: {line}");
    }
}

fn hears(running: &mut Running, what: &str) -> String {
    let line = running.err_line();
    assert!(!line.is_empty() || !is_gone(running.wrapper()), "it ended and never said `{what}`");
    line
}

fn parsed(line: &str) -> Value {
    serde_json::from_str(line).expect("JSON")
}

/// Reads stdout up to a line with this.
fn until_line(running: &mut Running, what: &str) -> String {
    loop {
        let line = running.line();
        if line.contains(what) {
            return line;
        }
    }
}
