//! Another process that takes locks, and is killed or frozen while it has them.

use std::{path::Path, process::Stdio};

use leaseward::Fence;
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, Command},
    sync::mpsc,
};

/// A `lock-taker` process. Killed when dropped.
#[derive(Debug)]
pub struct Taker {
    child: Child,
    says: mpsc::UnboundedReceiver<String>,
    told: ChildStdin,
}

impl Taker {
    /// Starts one on a store.
    pub async fn start(program: &Path, url: &str) -> Self {
        let mut child = Command::new(program)
            .arg(url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the lock-taker starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        // Read at once: a full pipe would stop it in the middle of what it does.
        let (tell, says) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        let told = child.stdin.take().expect("piped");
        let mut taker = Self { child, says, told };
        taker.hears("ready").await;
        taker
    }

    /// Gives it a command.
    pub async fn tell(&mut self, command: &str) {
        let line = format!("{command}\n");
        self.told.write_all(line.as_bytes()).await.expect("the lock-taker listens");
        self.told.flush().await.expect("the lock-taker listens");
    }

    /// The next thing it says, which must begin so; what follows.
    pub async fn hears(&mut self, beginning: &str) -> String {
        let line = self.says.recv().await;
        let line = line.unwrap_or_else(|| panic!("`{beginning}` was expected, not its end"));
        match line.strip_prefix(beginning) {
            Some(rest) => rest.trim_start().to_owned(),
            None => panic!("`{beginning}` was expected, not `{line}`"),
        }
    }

    /// The rest of what it said before it ended.
    pub async fn last_words(&mut self) -> Vec<String> {
        let mut words = Vec::new();
        while let Some(line) = self.says.recv().await {
            words.push(line);
        }
        words
    }

    /// Has it take a lock; its fence.
    pub async fn hold(&mut self, name: &str, ttl_ms: u64) -> Fence {
        self.tell(&format!("hold {name} {ttl_ms}")).await;
        self.held(name).await
    }

    /// Waits until it says that it holds a lock; its fence.
    pub async fn held(&mut self, name: &str) -> Fence {
        let fence = self.hears(&format!("held {name}")).await;
        Fence::new(fence.parse().expect("a fence"))
    }

    /// Ends it with SIGKILL: it cannot say or do anything any more.
    pub async fn kill(&mut self) {
        self.child.kill().await.expect("it was alive");
    }

    /// Stops it in the middle of whatever it does.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on as if nothing had happened.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let id = self.child.id().expect("it is alive");
        let pid = Pid::from_raw(i32::try_from(id).expect("a pid")).expect("a pid");
        kill_process(pid, signal).expect("it is ours to signal");
    }
}
