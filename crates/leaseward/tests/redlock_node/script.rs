//! Calls a node's scripts as the store does, with whatever ballots a test likes.

use std::sync::Arc;

use leaseward::{
    Name, Token,
    clock::SystemClock,
    store::{self, OpenContext, Operation as StoreOperation, Release},
    stores::redlock::ballot::ALLOWANCE,
};
use leaseward_testkit::RedisServer;
use redis::{Commands as _, Connection, Value};

use crate::reference::{Answer, Operation};

/// A server with the scripts, and what calls them.
pub(crate) struct Node {
    connection: Connection,
    /// The script for what is usual, by its hash, and the careful one.
    plain: String,
    careful: String,
    /// How often the first of them decided alone.
    pub(crate) decided_plainly: usize,
}

/// How it answers what is for the careful one.
const ODD: u64 = 13;

/// The tokens of a test, as they stand in Redis: they differ from the first character on.
pub(crate) const TOKENS: [&str; 3] = [
    "a0000000000000000000000000000000:host:1",
    "b0000000000000000000000000000000:host:2",
    "c0000000000000000000000000000000:host:3",
];

pub(crate) fn key(name: usize) -> String {
    format!("lock:{name}")
}

impl Node {
    /// The server must keep a log of all commands: it tells how the store calls the scripts.
    pub(crate) fn new(server: &RedisServer) -> Self {
        load(server);
        let client = redis::Client::open(server.url()).expect("a good address");
        let mut connection = client.get_connection().expect("the server can be reached");
        let log: Vec<Vec<Value>> =
            redis::cmd("SLOWLOG").arg("GET").arg(128).query(&mut connection).expect("a log");
        let mut hashes = log.iter().filter_map(|entry| {
            let words: Vec<String> = redis::from_redis_value(entry[3].clone()).ok()?;
            words[0].eq_ignore_ascii_case("EVALSHA").then(|| words[1].clone())
        });
        // The newest comes first.
        let careful = hashes.next().expect("the store has called a script");
        let plain = hashes.next().expect("the store has called two");
        assert_ne!(plain, careful, "a release of nothing is odd");
        Self { connection, plain, careful, decided_plainly: 0 }
    }

    pub(crate) fn clear(&mut self) {
        let _: () = redis::cmd("FLUSHALL").query(&mut self.connection).expect("cleared");
    }

    /// Whether the server remembers a ballot for a name.
    pub(crate) fn remembers(&mut self, name: usize) -> bool {
        self.connection.exists(format!("leaseward:b:{}", key(name))).expect("answered")
    }

    /// The server's clock.
    pub(crate) fn clock_us(&mut self) -> u64 {
        let (seconds, micros): (u64, u64) =
            redis::cmd("TIME").query(&mut self.connection).expect("a clock");
        seconds * 1_000_000 + micros
    }

    /// One operation by the script for what is usual; `None` if that finds it odd. The answer, and the server's clock when
    /// it gave it, if it says so.
    pub(crate) fn call_plainly(
        &mut self,
        name: usize,
        token: usize,
        operation: Operation,
        floor: u64,
    ) -> Option<(Option<u64>, Answer)> {
        let answer = self.put(name, token, operation, floor, true);
        if number(&answer, 1) == ODD {
            return None;
        }
        self.decided_plainly += 1;
        let now_us = Some(number(&answer, 0)).filter(|now_us| *now_us > 0);
        Some((now_us, read(&answer[1..], operation)))
    }

    /// The same by the careful one, which finds nothing odd.
    pub(crate) fn call_carefully(
        &mut self,
        name: usize,
        token: usize,
        operation: Operation,
        floor: u64,
    ) -> (u64, Answer) {
        let answer = self.put(name, token, operation, floor, false);
        (number(&answer, 0), read(&answer[1..], operation))
    }

    fn put(
        &mut self,
        name: usize,
        token: usize,
        operation: Operation,
        floor: u64,
        is_plain: bool,
    ) -> Vec<Value> {
        let digits = |micros: u64| format!("{micros:016}");
        let mut command = redis::cmd("EVALSHA");
        command.arg(if is_plain { &self.plain } else { &self.careful }).arg(1).arg(key(name));
        command.arg(digits(floor));
        let token = TOKENS[token];
        match operation {
            Operation::Ask { ttl_ms, first, last, .. } => {
                let allowance_ms = u64::try_from(ALLOWANCE.as_millis()).expect("short");
                let forget_ms = last.div_ceil(1000) + allowance_ms + ttl_ms;
                command.arg(if is_plain { "a" } else { "A" }).arg(token).arg(ttl_ms);
                command.arg(digits(first)).arg(digits(last)).arg(forget_ms).arg("=value");
                if !is_plain {
                    command.arg("x").arg(0);
                }
            }
            Operation::Renew { ttl_ms } => drop(command.arg("n").arg(token).arg(ttl_ms)),
            Operation::Release if is_plain => drop(command.arg("r").arg(token)),
            Operation::Release => drop(command.arg("r").arg(token).arg(0)),
            Operation::Undo { first } => drop(command.arg("u").arg(token).arg(digits(first))),
        }
        match command.query(&mut self.connection).expect("answered") {
            Value::Array(answers) => answers,
            // Codes without fields, and no clock.
            Value::BulkString(codes) => {
                let codes = codes.into_iter().map(|code| Value::Int(code.into()));
                std::iter::once(Value::Int(0)).chain(codes).collect()
            }
            other => panic!("{operation:?} was answered {other:?}"),
        }
    }
}

fn number(answer: &[Value], at: usize) -> u64 {
    redis::from_redis_value(answer[at].clone()).expect("a number")
}

fn whose(token: &Value) -> usize {
    let text: String = redis::from_redis_value(token.clone()).expect("a text");
    let at = TOKENS.iter().position(|token| token.starts_with(&text));
    at.unwrap_or_else(|| panic!("`{text}` is nobody's"))
}

/// Answers as the script writes them: a number, then what belongs to it.
fn read(answer: &[Value], asked: Operation) -> Answer {
    let number = |at: usize| number(answer, at);
    match (number(0), asked) {
        (11, Operation::Ask { first, last, .. }) => Answer::Granted { first, last },
        (1, _) => Answer::Granted { first: number(1), last: number(1) + number(2) - 1 },
        (3, _) => Answer::Low(number(1)),
        (4 | 12, _) => Answer::Busy(whose(&answer[1])),
        (5, _) => Answer::Renewed,
        (6, _) => Answer::Released,
        // Expired, or free after somebody else; not ours.
        (7, _) => Answer::NotYours { free: matches!(number(1), 1 | 4) },
        (9, _) => Answer::Done,
        _ => panic!("{asked:?} was answered {answer:?}"),
    }
}

/// Has a store call each of its scripts.
fn load(server: &RedisServer) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let context = OpenContext { clock: Arc::new(SystemClock), who: Arc::from("test:1") };
        let url = format!("redlock://{}?amnesia=trust", server.address());
        let store = store::open(&url, context).await.expect("the server can be reached");
        let release = Release {
            name: Name::new("nothing").expect("a good name"),
            token: Token::new(1, Arc::from("host:1")),
            keep: std::time::Duration::ZERO,
        };
        let answers = store.submit(vec![StoreOperation::Release(release)]).await;
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        store.close().await;
    });
}
