//! Worker processes.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leaseward_testkit::{PATIENCE, eventually};
use rustix::process::{Pid, Signal, kill_process};

use crate::place::Place;

/// After so long without a sign of life a worker is dead.
pub(crate) const TTL: Duration = Duration::from_millis(700);

/// Workers of one queue. Those that are left are killed when dropped.
pub(crate) struct Crew {
    arguments: Vec<String>,
    members: Vec<Child>,
    heard: Arc<Heard>,
}

/// What workers have said, all together.
#[derive(Default)]
struct Heard {
    ready: AtomicU64,
    begun: AtomicU64,
    stale: AtomicU64,
}

impl Crew {
    pub(crate) fn start(place: &Place, queue: &str, count: usize) -> Self {
        let arguments = vec![
            place.worker_url.clone(),
            queue.to_owned(),
            place.file().display().to_string(),
            TTL.as_millis().to_string(),
        ];
        let mut this = Self { arguments, members: Vec::new(), heard: Arc::default() };
        for _ in 0..count {
            let member = this.member();
            this.members.push(member);
        }
        let wanted = u64::try_from(count).expect("few");
        eventually("workers are ready", PATIENCE * 3, || {
            (this.heard.ready.load(Ordering::Relaxed) >= wanted).then_some(())
        });
        this
    }

    fn member(&self) -> Child {
        let mut child = Command::new(env!("CARGO_BIN_EXE_job-worker"))
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a worker starts");
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        let heard = self.heard.clone();
        // Read at once: a full pipe would stop it in the middle of what it does.
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let counter = match line.as_str() {
                    "ready" => &heard.ready,
                    "begun" => &heard.begun,
                    "stale" => &heard.stale,
                    other => panic!("a worker says `{other}`"),
                };
                counter.fetch_add(1, Ordering::Relaxed);
            }
        });
        child
    }

    /// Completions that were refused.
    pub(crate) fn stale(&self) -> u64 {
        self.heard.stale.load(Ordering::Relaxed)
    }

    /// Waits until some more jobs have begun.
    pub(crate) fn begun(&self) {
        let before = self.heard.begun.load(Ordering::Relaxed);
        eventually("jobs begin", PATIENCE * 3, || {
            (self.heard.begun.load(Ordering::Relaxed) > before + 20).then_some(())
        });
    }

    /// Ends one with SIGKILL, and starts another.
    pub(crate) fn kill_one(&mut self, which: usize) {
        let at = which % self.members.len();
        let next = self.member();
        let mut old = std::mem::replace(&mut self.members[at], next);
        old.kill().expect("it was alive");
        old.wait().expect("it is ours");
    }

    /// Stops one in the middle of whatever it does.
    pub(crate) fn freeze_one(&self, which: usize) -> usize {
        let at = which % self.members.len();
        self.signal(at, Signal::STOP);
        at
    }

    /// Lets it go on as if nothing had happened.
    pub(crate) fn thaw(&self, at: usize) {
        self.signal(at, Signal::CONT);
    }

    fn signal(&self, at: usize, signal: Signal) {
        let id = i32::try_from(self.members[at].id()).expect("a pid");
        kill_process(Pid::from_raw(id).expect("a pid"), signal).expect("it is ours to signal");
    }

    /// Ends all of them as they are to be ended.
    pub(crate) fn end(mut self) {
        for member in &mut self.members {
            drop(member.stdin.take());
        }
        for mut member in std::mem::take(&mut self.members) {
            let status = member.wait().expect("it is ours");
            assert!(status.success(), "a worker ended with {status}");
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for member in &mut self.members {
            let _ = member.kill();
            let _ = member.wait();
        }
    }
}
