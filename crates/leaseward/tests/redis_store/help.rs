//! What the tests share: clients, short forms of operations, and an ear at the server.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::TcpStream,
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use leaseward::{
    Attempt, Error, Guard, Lock, Locks, Mode,
    clock::SystemClock,
    store::{
        self, Answer, Ask, Grant, IfBusy, OpenContext, Operation, Push, Release, Renew, Reply,
        Store,
    },
};
use leaseward_testkit::{PATIENCE, RedisServer};

use crate::steps::{name, token};

/// Longer than any test.
pub(crate) const LONG: Duration = Duration::from_secs(3_600);

/// Whether to do what takes longer than is good for every run.
pub(crate) fn is_full() -> bool {
    std::env::var_os("LEASEWARD_FULL").is_some()
}

pub(crate) async fn try_open(url: &str) -> Result<Arc<dyn Store>, Error> {
    let context = OpenContext { clock: Arc::new(SystemClock), who: Arc::from("test:1") };
    store::open(url, context).await
}

pub(crate) async fn open(url: &str) -> Arc<dyn Store> {
    try_open(url).await.expect("the server can be reached")
}

pub(crate) async fn connect(url: &str) -> Locks {
    leaseward::connect(url).await.expect("the server can be reached")
}

/// Collects what a store pushes.
pub(crate) fn listen(store: &dyn Store) -> mpsc::Receiver<Push> {
    let (sender, receiver) = mpsc::channel();
    store.start(Arc::new(move |push| drop(sender.send(push))));
    receiver
}

pub(crate) async fn one(store: &dyn Store, operation: Operation) -> Answer {
    store.submit(vec![operation]).await.remove(0)
}

pub(crate) fn granted(answer: Answer) -> Grant {
    match answer {
        Ok(Reply::Granted(grant)) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

/// A lease that must be free.
pub(crate) async fn take(lock: Lock) -> Guard {
    match lock.try_acquire().await.expect("the server answers") {
        Attempt::Granted(guard) => guard,
        Attempt::Busy(busy) => panic!("it must be free, but is {busy}"),
    }
}

pub(crate) fn ask(what: &str, who: u128, if_busy: IfBusy, ttl: Duration) -> Ask {
    Ask {
        names: [name(what)].into_iter().collect(),
        token: token(who),
        mode: Mode::Exclusive,
        ttl,
        if_busy,
        block: 1,
        lock_delay: Duration::ZERO,
        value: None,
    }
}

pub(crate) fn taking(what: &str, who: u128) -> Operation {
    Operation::Ask(ask(what, who, IfBusy::Tell, LONG))
}

pub(crate) fn queueing(what: &str, who: u128) -> Operation {
    Operation::Ask(ask(what, who, IfBusy::Queue, LONG))
}

pub(crate) fn renewing(what: &str, who: u128) -> Operation {
    Operation::Renew(Renew { name: name(what), token: token(who), ttl: LONG, block: 0 })
}

pub(crate) fn releasing(what: &str, who: u128) -> Operation {
    let keep = Duration::ZERO;
    Operation::Release(Release { name: name(what), token: token(who), keep })
}

/// Asks again and again until there is an answer, without holding up the runtime.
pub(crate) async fn until<T, F>(what: &str, patience: Duration, mut ask: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let begin = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(begin.elapsed() < patience, "not within {patience:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until a store works again after a fault.
pub(crate) async fn healed(store: &dyn Store) {
    until("the store works again", PATIENCE, || async { store.ping().await.ok() }).await;
}

/// The keys of a server, sorted.
pub(crate) fn keys(server: &RedisServer) -> Vec<String> {
    let keys = server.cli(&["--raw", "keys", "*"]);
    let mut keys: Vec<_> = keys.lines().filter(|key| !key.is_empty()).map(str::to_owned).collect();
    keys.sort_unstable();
    keys
}

/// What [`Monitor`] hears last.
const END: &str = "the-monitor-ends-here";

/// Hears every command that a server carries out.
#[derive(Debug)]
pub(crate) struct Monitor(JoinHandle<Vec<String>>);

impl Monitor {
    pub(crate) fn start(server: &RedisServer) -> Self {
        let mut stream = TcpStream::connect(server.address()).expect("it accepts");
        stream.write_all(b"MONITOR\r\n").expect("it is open");
        let mut lines = BufReader::new(stream).lines();
        assert_eq!(lines.next().expect("an answer").expect("an answer"), "+OK");
        let lines = lines.map_while(Result::ok).take_while(|line| !line.contains(END));
        Self(std::thread::spawn(move || lines.collect()))
    }

    /// All that the server carried out so far, each a line.
    pub(crate) fn heard(self, server: &RedisServer) -> Vec<String> {
        server.cli(&["echo", END]);
        self.0.join().expect("it does not panic")
    }
}
