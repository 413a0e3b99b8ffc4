//! Calls a node's scripts as the store does, with whatever ballots a test likes.

use std::sync::Arc;

use leaseward::{
    Name, Token,
    clock::SystemClock,
    store::{self, OpenContext, Operation as StoreOperation, Release, Store},
    stores::redlock::ballot::ALLOWANCE,
};
use leaseward_testkit::RedisServer;
use redis::{Commands as _, Connection, Value};

use crate::reference::{Answer, Ask, Operation, Whose};

/// A server with the scripts, and what calls them.
pub(crate) struct Node {
    connection: Connection,
    /// The script for what is usual, by its hash, and the careful one.
    plain: String,
    careful: String,
    /// How often the first of them decided alone.
    pub(crate) decided_plainly: usize,
    /// How often it had nothing to say but that all was as usual.
    pub(crate) as_usual: usize,
    /// How many operations were put to it as one run, at most.
    pub(crate) longest_run: usize,
}

/// An operation on a name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Put {
    pub(crate) name: usize,
    pub(crate) token: usize,
    pub(crate) operation: Operation,
}

/// What the script for what is usual answers, and the server's clock when it did, if it says so; nothing to what is odd.
type Plainly = Option<(Option<u64>, Answer)>;

/// How it answers what is for the careful one, what it could not do, and a call in which nothing was unusual.
const ODD: u64 = 13;
const FAILED: u64 = 10;
const USUAL: i64 = 14;

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
        Self { connection, plain, careful, decided_plainly: 0, as_usual: 0, longest_run: 0 }
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

    /// Operations by the script for what is usual, sorted by their kind as the store does.
    pub(crate) fn call_plainly(&mut self, puts: &[Put], floor: u64) -> Vec<(Put, Plainly)> {
        let mut puts = puts.to_vec();
        if puts.is_empty() {
            return Vec::new();
        }
        puts.sort_by_key(|put| match put.operation {
            Operation::Ask(_) => 0,
            Operation::Renew { .. } => 1,
            Operation::Release { .. } => 2,
            Operation::Undo { .. } => 3,
            Operation::Heal(_) | Operation::Break { .. } => panic!("{put:?} is not usual"),
        });
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.plain).arg(puts.len());
        for put in &puts {
            command.arg(key(put.name));
        }
        command.arg(digits(floor));
        for run in puts.chunk_by(|a, b| a.operation == b.operation) {
            self.longest_run = self.longest_run.max(run.len());
            let letter = match run[0].operation {
                Operation::Ask(_) => "a",
                other => letter(other),
            };
            command.arg(letter).arg(run.len());
            write_terms(run[0].operation, &mut command);
            for put in run {
                command.arg(TOKENS[put.token]);
            }
        }
        let answer = match command.query(&mut self.connection).expect("answered") {
            Value::Int(USUAL) => {
                self.as_usual += 1;
                let codes = puts.iter().map(|put| Value::Int(usual(put.operation)));
                std::iter::once(Value::Int(0)).chain(codes).collect()
            }
            other => list(other),
        };
        let now_us = Some(number(&answer, 0)).filter(|now_us| *now_us > 0);
        let mut rest = &answer[1..];
        let mut read = |put: Put| {
            let code = number(rest, 0);
            let fields = match code {
                3 => 1,
                12 => 2,
                _ => 0,
            };
            let (own, behind) = rest.split_at(1 + fields);
            rest = behind;
            if code == ODD {
                return (put, None);
            }
            self.decided_plainly += 1;
            (put, Some((now_us, read(own, put.operation))))
        };
        let found = puts.into_iter().map(&mut read).collect();
        assert!(rest.is_empty(), "answers to nothing: {rest:?}");
        found
    }

    /// One by the careful one, which finds nothing odd.
    pub(crate) fn call_carefully(&mut self, put: Put, floor: u64) -> (u64, Answer) {
        self.try_carefully(put, floor).unwrap_or_else(|failure| panic!("{put:?}: {failure}"))
    }

    /// The same; or what it says of something that it could not do.
    pub(crate) fn try_carefully(&mut self, put: Put, floor: u64) -> Result<(u64, Answer), String> {
        let Put { name, token, operation } = put;
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.careful).arg(1).arg(key(name)).arg(digits(floor));
        command.arg(letter(operation));
        if !matches!(operation, Operation::Break { .. }) {
            command.arg(TOKENS[token]);
        }
        write_terms(operation, &mut command);
        match operation {
            Operation::Ask(ask) | Operation::Heal(ask) => {
                command.arg(if ask.is_shared { "s" } else { "x" }).arg(ask.delay_ms);
            }
            Operation::Release { keep_ms } => drop(command.arg(keep_ms)),
            Operation::Break { now } => drop(command.arg(if now { "now" } else { "later" })),
            Operation::Renew { .. } | Operation::Undo { .. } => {}
        }
        let answer = list(command.query(&mut self.connection).expect("answered"));
        if number(&answer, 1) == FAILED {
            return Err(redis::from_redis_value(answer[2].clone()).expect("a text"));
        }
        Ok((number(&answer, 0), read(&answer[1..], operation)))
    }
}

/// What an operation is called in the careful script.
fn letter(operation: Operation) -> &'static str {
    match operation {
        Operation::Ask(_) => "A",
        Operation::Heal(_) => "h",
        Operation::Renew { .. } => "n",
        Operation::Release { .. } => "r",
        Operation::Undo { .. } => "u",
        Operation::Break { .. } => "x",
    }
}

fn digits(micros: u64) -> String {
    format!("{micros:016}")
}

/// What is said of an operation beside its token.
fn write_terms(operation: Operation, command: &mut redis::Cmd) {
    match operation {
        Operation::Ask(ask) | Operation::Heal(ask) => {
            let Ask { ttl_ms, first, last, .. } = ask;
            let allowance_ms = u64::try_from(ALLOWANCE.as_millis()).expect("short");
            let forget_ms = last.div_ceil(1000) + allowance_ms + ttl_ms;
            command.arg(ttl_ms).arg(digits(first)).arg(digits(last)).arg(forget_ms).arg("=value");
        }
        Operation::Renew { ttl_ms } => drop(command.arg(ttl_ms)),
        Operation::Release { .. } | Operation::Break { .. } => {}
        Operation::Undo { first } => drop(command.arg(digits(first))),
    }
}

/// An answer as a list, the clock first.
fn list(answer: Value) -> Vec<Value> {
    match answer {
        Value::Array(answers) => answers,
        // Codes without fields, and no clock.
        Value::BulkString(codes) => {
            let codes = codes.into_iter().map(|code| Value::Int(code.into()));
            std::iter::once(Value::Int(0)).chain(codes).collect()
        }
        other => panic!("answered {other:?}"),
    }
}

/// What an operation is answered about which nothing is unusual.
fn usual(operation: Operation) -> i64 {
    match operation {
        Operation::Ask(_) => 11,
        Operation::Renew { .. } => 5,
        Operation::Release { .. } => 6,
        Operation::Undo { .. } | Operation::Heal(_) | Operation::Break { .. } => 9,
    }
}

fn number(answer: &[Value], at: usize) -> u64 {
    redis::from_redis_value(answer[at].clone()).expect("a number")
}

fn whose(token: &Value) -> Whose {
    let text: String = redis::from_redis_value(token.clone()).expect("a text");
    if text == "readers" {
        return Whose::Readers;
    }
    let at = TOKENS.iter().position(|token| token.starts_with(&text));
    Whose::Token(at.unwrap_or_else(|| panic!("`{text}` is nobody's")))
}

/// Answers as the script writes them: a number, then what belongs to it.
fn read(answer: &[Value], asked: Operation) -> Answer {
    let number = |at: usize| number(answer, at);
    match (number(0), asked) {
        (11, Operation::Ask(Ask { first, last, .. })) => Answer::Granted { first, last },
        (1, _) => Answer::Granted { first: number(1), last: number(1) + number(2) - 1 },
        (3, _) => Answer::Low(number(1)),
        (4 | 12, _) => Answer::Busy(whose(&answer[1])),
        (5, _) => Answer::Renewed,
        (6, _) => Answer::Released,
        // Expired, or free after somebody else; not ours.
        (7, _) => Answer::NotYours { free: matches!(number(1), 1 | 4) },
        (8, _) => Answer::Gone,
        (9, _) => Answer::Done,
        _ => panic!("{asked:?} was answered {answer:?}"),
    }
}

/// A store over servers, which may take far longer than they need.
pub(crate) async fn open(servers: &[&RedisServer]) -> Arc<dyn Store> {
    let context = OpenContext { clock: Arc::new(SystemClock), who: Arc::from("test:1") };
    let addresses: Vec<_> = servers.iter().map(|server| server.address()).collect();
    let url = format!("redlock://{}?amnesia=trust&timeout=5s", addresses.join(","));
    store::open(&url, context).await.expect("the servers can be reached")
}

/// Has a store call each of its scripts.
fn load(server: &RedisServer) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let store = open(&[server]).await;
        let release = Release {
            name: Name::new("nothing").expect("a good name"),
            token: Token::new(1, Arc::from("host:1")),
            keep: std::time::Duration::ZERO,
        };
        let answers = store.carry_out(vec![StoreOperation::Release(release)]).await;
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        store.close().await;
    });
}
