//! The processes: this test program starts itself.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use rand::RngExt as _;
use rustix::process::{Pid, Signal, kill_process};

use super::{ACCOUNTS, LONG, bank::Bank};

const BANK: &str = "LEASEWARD_TEST_BANK";
const LOCKS: &str = "LEASEWARD_TEST_LOCKS";
const ORDER: &str = "LEASEWARD_TEST_ORDER";

/// What children say begins with this; the test harness says other things.
const SAID: &str = "child says ";

/// Short, so that the end of a stopped holder's lease does not take long.
const TTL: Duration = Duration::from_millis(300);

/// What a worker is to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    pub(super) fenced: bool,
    pub(super) transfers: u32,
    /// Tells what it has read, and waits to be told to go on.
    pub(super) waits: bool,
}

/// What a worker says.
#[derive(Clone, Copy, Debug)]
pub(super) enum Said {
    /// It has read two accounts.
    Read { from: i64, to: i64, sum: i64 },
    /// It has committed a transfer.
    Moved { from: i64, to: i64, amount: i64 },
    /// The bank has refused it.
    Refused,
}

impl Said {
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<_> = line.strip_prefix(SAID)?.split(' ').collect();
        let number = |at: usize| words[at].parse::<i64>().expect("a number");
        let (from, to) = match words.len() {
            4 => (number(1), number(2)),
            _ => (0, 0),
        };
        match words[0] {
            "read" => Some(Self::Read { from, to, sum: number(3) }),
            "moved" => Some(Self::Moved { from, to, amount: number(3) }),
            "refused" => Some(Self::Refused),
            other => panic!("what is `{other}`?"),
        }
    }
}

/// Not a test: what the children do. Without an order it does nothing.
#[test]
fn child() {
    let given = [BANK, LOCKS, ORDER].map(|name| std::env::var(name).ok());
    let [Some(bank), Some(locks), Some(order)] = given else { return };
    let mut words = order.split(' ');
    let mut next = || words.next().expect("three words");
    let order = Order {
        fenced: next() == "true",
        waits: next() == "true",
        transfers: next().parse().expect("a number"),
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(work(&Bank::new(bank, locks), order));
}

async fn work(bank: &Bank, order: Order) {
    let locks = leaseward::connect(bank.locks()).await.expect("a store");
    let mut teller = bank.teller().await;
    for _ in 0..order.transfers {
        let from = rand::rng().random_range(0..ACCOUNTS as i64);
        let to = (from + rand::rng().random_range(1..ACCOUNTS as i64)) % ACCOUNTS as i64;
        let amount: i64 = rand::rng().random_range(1..=100);
        let guard = locks.lock("bank").ttl(TTL).acquire().await.expect("the lock in the end");
        let fence = order.fenced.then(|| guard.fence());
        let moved = async {
            let [(_, a), (_, b)] = teller.read([from, to], fence).await?;
            if order.waits {
                println!("\n{SAID}read {from} {to} {}", a + b);
                // On a thread of its own: renewals go on, unless the whole process is stopped.
                let told = || std::io::stdin().read_line(&mut String::new());
                let _ = tokio::task::spawn_blocking(told).await;
            } else {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            teller.write([(from, a - amount), (to, b + amount)], fence).await
        };
        match moved.await {
            Ok(()) => println!("\n{SAID}moved {from} {to} {amount}"),
            Err(_stale) => println!("\n{SAID}refused"),
        }
        let _ = guard.release().await;
    }
    locks.shutdown().await;
}

/// Workers, and what they say.
pub(super) struct Team {
    workers: Vec<Child>,
    said: mpsc::Receiver<Said>,
}

impl Team {
    pub(super) fn start(bank: &Bank, workers: usize, order: Order) -> Self {
        let (sender, said) = mpsc::channel();
        let workers = (0..workers).map(|_| start(bank, order, sender.clone())).collect();
        Self { workers, said }
    }

    /// The next thing that anybody says; nothing once all have ended.
    pub(super) fn hear(&self) -> Option<Said> {
        match self.said.recv_timeout(LONG) {
            Ok(said) => Some(said),
            Err(mpsc::RecvTimeoutError::Disconnected) => None,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("the workers are stuck"),
        }
    }

    /// Everything until all have ended.
    pub(super) fn hear_all(&mut self) -> Vec<Said> {
        let all = std::iter::from_fn(|| self.hear()).collect();
        for worker in &mut self.workers {
            assert!(worker.wait().expect("a child").success(), "a worker failed");
        }
        all
    }

    /// The next thing that anybody says, if somebody says something soon.
    pub(super) fn hear_within(&self, patience: Duration) -> Option<Said> {
        self.said.recv_timeout(patience).ok()
    }

    /// SIGSTOP.
    pub(super) fn stop(&self, worker: usize) {
        self.signal(worker, Signal::STOP);
    }

    /// SIGCONT.
    pub(super) fn resume(&self, worker: usize) {
        self.signal(worker, Signal::CONT);
    }

    fn signal(&self, worker: usize, signal: Signal) {
        // Not yet waited for, so its id is still its own.
        kill_process(Pid::from_child(&self.workers[worker]), signal).expect("a child");
    }

    /// Tells one that waits to go on.
    pub(super) fn tell(&mut self, worker: usize) {
        let stdin = self.workers[worker].stdin.as_mut().expect("piped");
        writeln!(stdin, "go on").expect("it listens");
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}

fn start(bank: &Bank, order: Order, said: mpsc::Sender<Said>) -> Child {
    let Order { fenced, transfers, waits } = order;
    // Ends with this program, however that ends.
    let mut process = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--"])
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", "transfer::worker::child", "--nocapture"])
        .env(BANK, bank.address())
        .env(LOCKS, bank.locks())
        .env(ORDER, format!("{fenced} {waits} {transfers}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program runs");
    let lines = BufReader::new(process.stdout.take().expect("piped")).lines();
    thread::spawn(move || {
        for said_now in lines.map_while(Result::ok).filter_map(|line| Said::parse(&line)) {
            if said.send(said_now).is_err() {
                break;
            }
        }
    });
    process
}
