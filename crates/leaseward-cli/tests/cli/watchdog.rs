//! Watchdog and launcher by themselves, spoken to as the wrapper speaks to them.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use leaseward::clock::{Clock, SystemClock};
use rustix::process::Signal;

use crate::support::{Place, is_gone, signal, state, until};

struct Watchdog {
    _place: Place,
    process: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Watchdog {
    /// With a grace of 400 ms.
    fn start() -> Self {
        let place = Place::new();
        let mut tool = place.bare_tool(["__watch", "400000000"]);
        let mut process =
            tool.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the tool starts");
        let stdin = process.stdin.take().expect("a pipe");
        let stdout = BufReader::new(process.stdout.take().expect("a pipe"));
        Self { _place: place, process, stdin, stdout }
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.process.id()).expect("a process number")
    }

    fn tell(&mut self, words: &str) {
        self.stdin.write_all(words.as_bytes()).expect("it reads");
    }

    /// What it says next; nothing at its end.
    fn says(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("text");
        line
    }

    /// Ends it as a wrapper does.
    fn end(mut self) {
        self.tell("done\n");
        assert!(self.process.wait().expect("it is ours").success());
        assert_eq!(self.says(), "", "there was nothing more to be done");
    }
}

/// A command that runs for ever in a group of its own. Dropped, it is killed.
struct Group(Child);

impl Group {
    fn start() -> Self {
        Self(Command::new("sleep").arg("1000").process_group(0).spawn().expect("it starts"))
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).expect("a process number")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A moment so far away, as the watchdog is told it.
fn after(time: Duration) -> u64 {
    (SystemClock.now() + time).as_nanos()
}

#[test]
fn it_says_what_it_is_about_to_do_and_spares_commands_of_other_leases() {
    let (old, new) = (Group::start(), Group::start());
    let mut watchdog = Watchdog::start();
    let far = after(Duration::from_secs(3_600));
    watchdog.tell(&format!("deadline 7 {}\ngroup 7 {}\n", after(Duration::ZERO), old.pid()));
    assert_eq!(watchdog.says(), format!("acted {}\n", old.pid()));
    until("the old one is gone", || is_gone(old.pid()));
    watchdog.tell(&format!("deadline 8 {far}\ngroup 8 {}\n", new.pid()));
    watchdog.end();
    assert!(!is_gone(new.pid()), "its lease lasts");
}

#[test]
fn frozen_it_does_not_act_on_a_deadline_that_was_moved_meanwhile() {
    let group = Group::start();
    let mut watchdog = Watchdog::start();
    signal(watchdog.pid(), Signal::STOP);
    until("it has stopped", || state(watchdog.pid()) == Some('T'));
    watchdog.tell(&format!("deadline 7 {}\ngroup 7 {}\n", after(Duration::ZERO), group.pid()));
    // More than is read at once.
    watchdog.tell(&"left 1\n".repeat(2_000));
    watchdog.tell(&format!("deadline 7 {}\n", after(Duration::from_secs(3_600))));
    signal(watchdog.pid(), Signal::CONT);
    watchdog.end();
    assert!(!is_gone(group.pid()), "its lease lasts");
}

#[test]
fn a_launcher_that_comes_too_late_has_the_watchdog_end_it() {
    let place = Place::new();
    let words = place.path("words");
    let ran = place.path("ran");
    // No watchdog listens to a file, so it ends by itself.
    let script = format!(
        "exec 3>{}; exec {} __launch 3 7 1 background touch {}",
        words.display(),
        env!("CARGO_BIN_EXE_leaseward"),
        ran.display()
    );
    let mut launcher = Command::new("sh").args(["-c", &script]).spawn().expect("it starts");
    let pid = launcher.id();
    assert_eq!(launcher.wait().expect("it is ours").code(), Some(76));
    assert!(!ran.exists(), "the command was not run");
    let words = std::fs::read_to_string(words).expect("readable");
    assert_eq!(words, format!("group 7 {pid}\nlate {pid}\n"));
    let group = Group::start();
    let mut watchdog = Watchdog::start();
    watchdog.tell(&format!("late {}\n", group.pid()));
    assert_eq!(watchdog.says(), format!("acted {}\n", group.pid()));
    until("it is gone", || is_gone(group.pid()));
    watchdog.end();
}
