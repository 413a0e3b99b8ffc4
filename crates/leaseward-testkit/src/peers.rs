//! The lock libraries that ours is tested with, each in a process of its own.
//!
//! `cargo xtask test` installs them into the target folder. A peer takes one JSON object a line and answers each with one:
//! - `{"do":"acquire","key":…,"ttl_ms":…,"retries":n,"retry_ms":n}`: `{"ok":true}` or `{"ok":false,"error":…}`. Tries once
//!   unless told otherwise, -1 for ever; pauses as long as the library does by itself unless told otherwise.
//! - `{"do":"extend","ttl_ms":…}` and `{"do":"release"}`, for the lock acquired last.
//! - `{"do":"loop","key":…,"ttl_ms":…,"count":n,"for_ms":n,"hold_ms":n,"counter_key":…}`, and `retries` and `retry_ms`:
//!   locks until `count` times or for so long, and under the lock reads the counter, waits, and writes it plus one, so
//!   that two holders lose an addition. Reports `acquired`, `failed`, `lost` (at the release), `max_wait_ms`, `waits_ms`.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use serde_json::Value;
use tokio::{sync::mpsc, time::timeout};

use crate::process::{Process, mortal};

/// A library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Library {
    /// node-redlock 5.
    NodeRedlock,
    /// node-redlock 4.
    NodeRedlock4,
    /// redis-semaphore's mutex, whose keys all begin with `mutex:`.
    RedisSemaphore,
    /// The same, renewing by itself at 0.8 of the TTL.
    RedisSemaphoreRenewing,
    /// redis-py's lock; without expiry if `ttl_ms` is null.
    RedisPy,
    /// kazoo's locks on ZooKeeper: told the hosts instead of a URL, and a `kind` with each command.
    Kazoo,
}

impl Library {
    /// All that lock on Redis.
    pub const ALL: [Self; 5] = [
        Self::NodeRedlock,
        Self::NodeRedlock4,
        Self::RedisSemaphore,
        Self::RedisSemaphoreRenewing,
        Self::RedisPy,
    ];

    /// A key that this library can lock, made from a name.
    #[must_use]
    pub fn key(self, name: &str) -> String {
        match self {
            Self::RedisSemaphore | Self::RedisSemaphoreRenewing => format!("mutex:{name}"),
            Self::NodeRedlock | Self::NodeRedlock4 | Self::RedisPy | Self::Kazoo => name.to_owned(),
        }
    }

    fn command(self, url: &str) -> Command {
        let (mut command, more) = match self {
            Self::NodeRedlock => (node(&script("node_redlock.mjs")), None),
            Self::NodeRedlock4 => (node(&script("node_redlock.mjs")), Some("4")),
            Self::RedisSemaphore => (node(&script("redis_semaphore.mjs")), None),
            Self::RedisSemaphoreRenewing => (node(&script("redis_semaphore.mjs")), Some("renew")),
            Self::RedisPy => (python(&script("redis_py.py")), None),
            Self::Kazoo => (python(&script("kazoo_lock.py")), None),
        };
        command.arg(url).args(more);
        command
    }
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(name)
}

/// A Node script that finds the installed packages, by `require`. Dies with this process.
///
/// # Panics
/// With how to install them if they are not there.
#[must_use]
pub fn node(script: &Path) -> Command {
    let mut command = mortal("node", "nodejs");
    command.arg(script).env("NODE_PATH", installed().join("node/node_modules"));
    command
}

/// A Python script that finds the installed packages. Dies with this process.
///
/// # Panics
/// With how to install them if they are not there.
#[must_use]
pub fn python(script: &Path) -> Command {
    let program = installed().join("python/bin/python");
    let mut command = mortal(&program.to_string_lossy(), "python3-venv");
    command.arg(script);
    command
}

/// What `cargo xtask test` has installed: a folder in the target folder, where our own program is too.
fn installed() -> PathBuf {
    let program = env::current_exe().expect("a program has a path");
    let folder =
        program.ancestors().map(|folder| folder.join("peers")).find(|folder| is_current(folder));
    folder.unwrap_or_else(|| {
        panic!(
            "the lock libraries to test with are not installed, or other versions of them\nhint: `cargo xtask install`, \
             with the same target folder as {}",
            program.display()
        )
    })
}

/// The mark that the installation leaves when it is complete: what was asked for.
fn is_current(folder: &Path) -> bool {
    const WANTED: &str = concat!(
        include_str!("../peers/package-lock.json"),
        include_str!("../peers/requirements.txt")
    );
    std::fs::read_to_string(folder.join("installed")).is_ok_and(|mark| mark == WANTED)
}

/// A process that locks with one of the libraries. Killed when dropped.
#[derive(Debug)]
pub struct Peer {
    process: Process,
    input: std::process::ChildStdin,
    answers: mpsc::UnboundedReceiver<Value>,
}

/// Node takes half a second to start, on a loaded machine several.
const START: Duration = Duration::from_secs(30);

impl Peer {
    /// Starts it; returns when it has reached the server at `url`. node-redlock takes several, separated by commas, and
    /// needs a majority of them; what is counted is counted on the first.
    ///
    /// # Panics
    /// If the library is not installed, or the server not reached.
    pub async fn start(library: Library, url: &str) -> Self {
        let mut command = library.command(url);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::start(command);
        let (input, output) = process.pipes();
        let (sender, answers) = mpsc::unbounded_channel();
        let read = move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let value = serde_json::from_str(&line).unwrap_or(Value::String(line));
                if sender.send(value).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("peer".into()).spawn(read).expect("a thread starts");
        let mut this = Self { process, input, answers };
        let ready = this.answer(START).await;
        assert_eq!(ready["ok"], true, "{library:?}: {ready}");
        this
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Gives a command and waits for the answer.
    ///
    /// # Panics
    /// If there is none in time.
    ///
    /// # Cancel safety
    /// Not cancel safe: the answer that was not waited for is the next one to come.
    pub async fn call(&mut self, command: Value, patience: Duration) -> Value {
        self.send(&command);
        self.answer(patience).await
    }

    /// Gives a command, to be [`answer`](Self::answer)ed later or never.
    pub fn send(&mut self, command: &Value) {
        writeln!(self.input, "{command}").expect("the peer listens");
    }

    /// The next answer.
    ///
    /// # Panics
    /// If there is none in time, or the peer has ended.
    pub async fn answer(&mut self, patience: Duration) -> Value {
        let answer = timeout(patience, self.answers.recv()).await;
        let answer = answer.unwrap_or_else(|_| panic!("the peer does not answer for {patience:?}"));
        answer.expect("the peer has ended")
    }

    /// SIGSTOP.
    pub fn pause(&self) {
        self.process.pause();
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.process.resume();
    }

    /// SIGKILL, as by a crash: what it holds stays held. Waits for its end.
    pub fn kill(self) {
        drop(self);
    }
}
