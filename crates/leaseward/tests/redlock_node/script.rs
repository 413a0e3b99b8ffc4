//! Calls a node's script as the store does, with whatever ballots a test likes.

use std::sync::Arc;

use leaseward::{
    Name, Token,
    clock::SystemClock,
    store::{self, OpenContext, Operation as StoreOperation, Release},
};
use leaseward_testkit::RedisServer;
use redis::{Commands as _, Connection, Value};

use crate::reference::{Answer, Operation};

/// A server with the script, and what calls it.
pub(crate) struct Node {
    connection: Connection,
    hash: String,
}

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
    /// The server must keep a log of all commands: it tells how the store calls the script.
    pub(crate) fn new(server: &RedisServer) -> Self {
        load(server);
        let client = redis::Client::open(server.url()).expect("a good address");
        let mut connection = client.get_connection().expect("the server can be reached");
        let log: Vec<Vec<Value>> =
            redis::cmd("SLOWLOG").arg("GET").arg(128).query(&mut connection).expect("a log");
        let hash = log.iter().find_map(|entry| {
            let words: Vec<String> = redis::from_redis_value(entry[3].clone()).ok()?;
            (words[0].eq_ignore_ascii_case("EVALSHA")).then(|| words[1].clone())
        });
        Self { connection, hash: hash.expect("the store has called the script") }
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

    /// One operation; the answer, and the server's clock when it gave it.
    pub(crate) fn call(
        &mut self,
        name: usize,
        token: usize,
        operation: Operation,
        floor: u64,
    ) -> (u64, Answer) {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.hash).arg(1).arg(key(name)).arg(floor);
        let token_text = TOKENS[token];
        match operation {
            Operation::Ask { ttl_ms, first, last, is_plain } => {
                command.arg(if is_plain { "a" } else { "A" }).arg(token_text).arg(ttl_ms);
                command.arg(format!("{first:016}")).arg(format!("{last:016}")).arg("=value");
                if !is_plain {
                    command.arg("x").arg(0);
                }
            }
            Operation::Renew { ttl_ms } => drop(command.arg("n").arg(token_text).arg(ttl_ms)),
            Operation::Release => drop(command.arg("r").arg(token_text).arg(0)),
            Operation::Undo { first } => drop(command.arg("u").arg(token_text).arg(first)),
        }
        let answer: Vec<Value> = command.query(&mut self.connection).expect("answered");
        let clock_us = redis::from_redis_value(answer[0].clone()).expect("a clock");
        (clock_us, read(&answer[1..], operation))
    }
}

/// Answers as the script writes them: a number, then what belongs to it.
fn read(answer: &[Value], asked: Operation) -> Answer {
    let number =
        |at: usize| -> u64 { redis::from_redis_value(answer[at].clone()).expect("a number") };
    match (number(0), asked) {
        (11, Operation::Ask { first, last, .. }) => Answer::Granted { first, last },
        (1, _) => Answer::Granted { first: number(1), last: number(1) + number(2) - 1 },
        (3, _) => Answer::Low(number(1)),
        (4, _) => {
            let whose: String = redis::from_redis_value(answer[1].clone()).expect("a text");
            let at = TOKENS.iter().position(|token| token.starts_with(&whose));
            Answer::Busy(at.unwrap_or_else(|| panic!("nobody's: {answer:?}")))
        }
        (5, _) => Answer::Renewed,
        (6, _) => Answer::Released,
        // Expired, or free after somebody else; not ours.
        (7, _) => Answer::NotYours { free: matches!(number(1), 1 | 4) },
        (9, _) => Answer::Done,
        _ => panic!("{asked:?} was answered {answer:?}"),
    }
}

/// Has a store call its script once.
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
