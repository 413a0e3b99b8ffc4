//! What the tests share: short forms of operations, and an ear at the server.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::TcpStream,
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::Duration,
};

use leaseward::{
    Attempt, Guard, Lock, Mode,
    store::{Ask, IfBusy, Operation, Push, Release, Renew, Store},
};
use leaseward_testkit::RedisServer;

use crate::names::{name, token};
pub(crate) use crate::operations::{
    ask, connect, granted, healed, keys, one, open, take, try_open, until,
};

/// Longer than any test.
pub(crate) const LONG: Duration = Duration::from_secs(3_600);

/// Whether to do what takes longer than is good for every run.
pub(crate) fn is_full() -> bool {
    std::env::var_os("LEASEWARD_FULL").is_some()
}

/// Whose an exclusive lease is, by its lock key: the token stands before everything else.
pub(crate) fn owner(server: &RedisServer, key: &str) -> String {
    let held = server.cli(&["get", key]);
    held.lines().next().unwrap_or_default().to_owned()
}

/// Collects what a store pushes.
pub(crate) fn listen(store: &dyn Store) -> mpsc::Receiver<Push> {
    let (sender, receiver) = mpsc::channel();
    store.start(Arc::new(move |push| drop(sender.send(push))));
    receiver
}

/// A lease, as soon as the store works again and it is free.
pub(crate) async fn take_in_time(lock: Lock, patience: Duration) -> Guard {
    until("it is granted", patience, || async {
        match lock.try_acquire().await {
            Ok(Attempt::Granted(guard)) => Some(guard),
            _ => None,
        }
    })
    .await
}

pub(crate) fn taking(what: &str, who: u128) -> Operation {
    Operation::Ask(ask(what, who, IfBusy::Tell, LONG))
}

pub(crate) fn queueing(what: &str, who: u128) -> Operation {
    Operation::Ask(ask(what, who, IfBusy::Queue, LONG))
}

pub(crate) fn reading(what: &str, who: u128) -> Operation {
    Operation::Ask(Ask { mode: Mode::Shared, ..ask(what, who, IfBusy::Queue, LONG) })
}

/// Nobody has it: beside it a batch goes to the script that does everything.
pub(crate) fn something_unusual() -> Operation {
    let keep = Duration::from_secs(1);
    Operation::Release(Release { name: name("z"), token: token(99), keep })
}

pub(crate) fn renewing(what: &str, who: u128) -> Operation {
    Operation::Renew(Renew { name: name(what), token: token(who), ttl: LONG })
}

pub(crate) fn releasing(what: &str, who: u128) -> Operation {
    let keep = Duration::ZERO;
    Operation::Release(Release { name: name(what), token: token(who), keep })
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
