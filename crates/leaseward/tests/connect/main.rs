//! Connecting to what is no server of that kind: an error, soon, and never a panic.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// Far longer than anything here takes.
const HANG: Duration = Duration::from_secs(60);

/// How long a listener waits for the other side to speak.
const PAUSE: Duration = Duration::from_millis(50);

/// The stores that are reached over a network, each with a listener's address in place of `@`.
const STORES: [&str; 8] = [
    "redis://@?timeout=300ms",
    "redis+cluster://@?timeout=300ms",
    "redis+sentinel://@/main?timeout=300ms",
    "redlock://@?timeout=300ms",
    "postgres://u:p@@/d?timeout=300ms",
    "postgres+advisory://u:p@@/d?timeout=300ms",
    "etcd://@?timeout=300ms",
    "zookeeper://@?timeout=300ms",
];

/// What the tasks of stores come to is seen by nobody else.
static PANICS: AtomicUsize = AtomicUsize::new(0);

fn count_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.fetch_add(1, Ordering::SeqCst);
            before(info);
        }));
    });
}

/// What a listener does with each connection: a piece for each that comes in, and then the end of it, or silence.
#[derive(Clone, Debug)]
struct Play {
    /// Before anything is said by the other side.
    greets: bool,
    pieces: Vec<Vec<u8>>,
    is_silent_then: bool,
}

impl Play {
    async fn carry(self, mut stream: TcpStream) {
        let mut heard = [0; 4096];
        for (at, piece) in self.pieces.iter().enumerate() {
            if at > 0 || !self.greets {
                // The other side may be waiting too.
                let heard = tokio::time::timeout(PAUSE, stream.read(&mut heard)).await;
                if matches!(heard, Ok(Ok(0) | Err(_))) {
                    return;
                }
            }
            if stream.write_all(piece).await.is_err() {
                return;
            }
        }
        while self.is_silent_then && stream.read(&mut heard).await.is_ok_and(|len| len > 0) {}
    }
}

/// Connects to a listener that plays this; answers the error.
async fn met(store: &'static str, play: Play) -> Result<leaseward::Error, String> {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let url = match store.split_once("@@") {
        Some((before, after)) => format!("{before}@{address}{after}"),
        None => store.replace('@', &address),
    };
    let playing = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(play.clone().carry(stream));
        }
    });
    let outcome = tokio::time::timeout(HANG, leaseward::connect(&url)).await;
    playing.abort();
    match outcome {
        Ok(Err(error)) => Ok(error),
        Ok(Ok(locks)) => Err(format!("{store}: connected: {locks:?}")),
        Err(_) => Err(format!("{store}: it hangs")),
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("runs")
}

/// A number as servers send it: small, at an edge, or any.
fn number() -> impl Strategy<Value = i64> {
    prop_oneof![
        0..20_i64,
        Just(-1),
        Just(i64::from(i32::MAX)),
        Just(i64::from(i32::MIN)),
        Just(i64::MAX),
        any::<i64>()
    ]
}

/// Bytes that begin as an answer of one of the protocols does.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let bytes = prop::collection::vec(any::<u8>(), 0..40);
    let resp =
        (prop::sample::select(b"+-:*$%~>|,(#_=!".to_vec()), number(), "[A-Z a-z:_=\r\n]{0,30}");
    let resp = resp.prop_map(|(kind, number, text)| {
        format!("{}{number}\r\n{text}\r\n", char::from(kind)).into_bytes()
    });
    let info = (number(), number()).prop_map(|(first, second)| {
        let text = format!(
            "redis_version:{first}.0\r\nuptime_in_seconds:{second}\r\nmaxmemory:{first}\r\nrole:master\r\n\
             connected_slaves:{second}\r\nrun_id:x\r\ncluster_enabled:{}\r\n",
            second & 1
        );
        format!("*3\r\n$5\r\nproto\r\n:{first}\r\n${}\r\n{text}\r\n", text.len()).into_bytes()
    });
    let postgres =
        (prop::sample::select(b"RSKZTDCEN12It".to_vec()), number(), number(), bytes.clone());
    let postgres = postgres.prop_map(|(kind, len, number, body)| {
        // Half of them say how long they are.
        let len =
            if len & 1 == 0 { i32::try_from(body.len()).unwrap_or(0) + 8 } else { len as i32 };
        let number = (number as i32).to_be_bytes();
        [&[kind][..], &len.to_be_bytes(), &number, &body].concat()
    });
    let row = (
        prop::sample::select(vec![16_i32, 20, 23, 25]),
        prop::option::of("[a-z0-9]{0,8}"),
        1..5_usize,
    );
    let row = row.prop_map(|(kind, text, columns)| table(kind, text.as_deref(), columns));
    let keeper = (number(), number(), number(), bytes.clone(), any::<bool>());
    let keeper = keeper.prop_map(|(len, timeout, session, body, is_true)| {
        let mut message = [&0_i32.to_be_bytes()[..], &(timeout as i32).to_be_bytes()].concat();
        message.extend(session.to_be_bytes());
        message.extend(if is_true { 16_i32 } else { len as i32 }.to_be_bytes());
        message.extend([0; 16]);
        message.extend(body);
        let len = if is_true { message.len() as i32 } else { len as i32 };
        [&len.to_be_bytes()[..], &message].concat()
    });
    let http2 = (any::<u8>(), any::<u8>(), number(), bytes.clone(), any::<bool>());
    let http2 = http2.prop_map(|(kind, flags, len, body, is_true)| {
        let len = if is_true { body.len() as u32 } else { len as u32 };
        let settings: &[u8] = if flags & 1 == 0 { &[0, 0, 0, 4, 0, 0, 0, 0, 0] } else { &[] };
        [settings, &len.to_be_bytes()[1..], &[kind % 12, flags, 0, 0, 0, 1], &body].concat()
    });
    prop_oneof![bytes, resp, info, postgres, row, keeper, http2]
}

/// The answer of a ZooKeeper that begins a session of so many milliseconds.
fn session(timeout_ms: i32) -> Vec<u8> {
    let numbers =
        [&0_i32.to_be_bytes()[..], &timeout_ms.to_be_bytes(), &7_i64.to_be_bytes()].concat();
    let message = [&numbers[..], &16_i32.to_be_bytes(), &[0; 16]].concat();
    [&(message.len() as i32).to_be_bytes()[..], &message].concat()
}

/// A whole answer of a PostgreSQL with one row, all of whose columns have this type and this text.
fn table(kind: i32, text: Option<&str>, columns: usize) -> Vec<u8> {
    let message = |kind: u8, body: Vec<u8>| {
        [&[kind][..], &(body.len() as i32 + 4).to_be_bytes(), &body].concat()
    };
    let count = (columns as i16).to_be_bytes();
    let mut head = count.to_vec();
    let mut row = count.to_vec();
    for _ in 0..columns {
        head.extend(b"c\0\0\0\0\0\0\0");
        head.extend(kind.to_be_bytes());
        head.extend([0, 8, 0xff, 0xff, 0xff, 0xff, 0, 1]);
        match text {
            None => row.extend((-1_i32).to_be_bytes()),
            Some(text) => {
                row.extend((text.len() as i32).to_be_bytes());
                row.extend(text.as_bytes());
            }
        }
    }
    let parsed = [message(b'1', Vec::new()), message(b't', vec![0, 0])].concat();
    let ended = [message(b'C', b"SELECT 1\0".to_vec()), message(b'Z', b"I".to_vec())].concat();
    [parsed, message(b'T', head), message(b'2', Vec::new()), message(b'D', row), ended].concat()
}

#[test]
fn whatever_a_server_answers_is_an_error() {
    count_panics();
    let runtime = runtime();
    let rounds = if std::env::var_os("LEASEWARD_FULL").is_some() { 30 } else { 3 };
    let mut random = TestRunner::default();
    // Some get past the beginning, where there is more to get wrong.
    let opening = prop_oneof![
        2 => Just(Vec::new()),
        1 => Just(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I".to_vec()),
        1 => (0..20_000_i32).prop_map(session),
    ];
    let pieces = (opening, prop::collection::vec(piece(), 0..6)).prop_map(|(first, mut pieces)| {
        if !first.is_empty() {
            pieces.insert(0, first);
        }
        pieces
    });
    for _ in 0..rounds {
        let mut meetings = JoinSet::new();
        for store in STORES.repeat(30) {
            let (greets, pieces) =
                (any::<bool>(), &pieces).new_tree(&mut random).expect("a value").current();
            let play = Play { greets, pieces, is_silent_then: false };
            let shown = format!("{play:?}");
            let meeting = async move { (met(store, play).await, shown) };
            meetings.spawn_on(meeting, runtime.handle());
        }
        for (outcome, play) in runtime.block_on(meetings.join_all()) {
            let error = outcome.unwrap_or_else(|failure| panic!("{failure}: {play}"));
            assert!(!error.message().is_empty(), "{play}");
        }
        assert_eq!(PANICS.load(Ordering::SeqCst), 0, "a task of a store panicked, see above");
    }
}

/// Promised lengths are no reason to make room, and silence is not waited for without end.
#[test]
fn a_length_that_never_comes_takes_neither_memory_nor_time() {
    count_panics();
    let huge: [&[u8]; 6] = [
        b"*16777216\r\n",
        b"$536870912\r\nx",
        b"%268435456\r\n",
        b"R\x7f\xff\xff\xff\0\0\0\0",
        &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0],
        &[0x03, 0xff, 0xff, 0xff, 0, 0, 0, 0],
    ];
    let plays = huge.map(|piece| Play {
        greets: false,
        pieces: vec![piece.to_vec()],
        is_silent_then: true,
    });
    runtime().block_on(async {
        let mut meetings = JoinSet::new();
        // Lease rows in PostgreSQL wait longer, over the same connections as advisory locks.
        for store in STORES.into_iter().filter(|store| !store.starts_with("postgres:")) {
            for play in &plays {
                meetings.spawn(met(store, play.clone()));
            }
        }
        for outcome in meetings.join_all().await {
            outcome.expect("an error");
        }
    });
    assert_eq!(PANICS.load(Ordering::SeqCst), 0);
    assert!(peak_mb() < 512, "{} MB", peak_mb());
}

/// The most memory this process ever had.
fn peak_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("it is there");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") / 1024
}

/// An answer that never ends is not taken in for ever.
#[test]
fn an_answer_without_end_ends() {
    count_panics();
    runtime().block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("redis://{}?timeout=20s", listener.local_addr().expect("bound"));
        let flooding = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("connected");
            let mut sent = 0_usize;
            stream.write_all(b"$536870912\r\n").await.expect("sent");
            while stream.write_all(&[b'x'; 65_536]).await.is_ok() {
                sent += 65_536;
            }
            sent
        });
        leaseward::connect(&url).await.expect_err("no answer of a Redis");
        let sent = tokio::time::timeout(HANG, flooding).await;
        let sent = sent.expect("it was hung up").expect("no panic");
        assert!(sent < 256 << 20, "{sent}");
    });
    assert_eq!(PANICS.load(Ordering::SeqCst), 0);
}
