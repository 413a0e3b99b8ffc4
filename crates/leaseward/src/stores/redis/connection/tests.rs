//! Over a pipe that holds a few bytes, and whose other end says what it is told to.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Wake, Waker},
    time::Duration,
};

use parking_lot::Mutex;
use redis::{Cmd, PushInfo, PushKind, RedisError, Value};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use super::{Connection, Hear};

/// Longer than any test.
const LONG: Duration = Duration::from_secs(600);

struct Pipe {
    connection: Arc<Connection>,
    server: DuplexStream,
    heard: Arc<Mutex<Vec<PushInfo>>>,
}

fn pipe(holds: usize, timeout: Duration) -> Pipe {
    let (client, server) = tokio::io::duplex(holds);
    let (reader, writer) = tokio::io::split(client);
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hears = heard.clone();
    let on_push = Box::new(move |info| hears.lock().push(info));
    let connection = Connection::over(Box::pin(reader), Box::pin(writer), timeout, on_push);
    Pipe { connection: Arc::new(connection), server, heard }
}

fn get(key: &str) -> Cmd {
    let mut get = redis::cmd("GET");
    get.arg(key);
    get
}

impl Pipe {
    /// Begins to send, and goes on without waiting.
    fn sends(&self, key: &str) -> tokio::task::JoinHandle<Result<Value, RedisError>> {
        let (connection, command) = (self.connection.clone(), get(key));
        tokio::spawn(async move { connection.command(&command).await })
    }

    /// Reads a request.
    async fn reads(&mut self, key: &str) {
        let expected = get(key).get_packed_command();
        let mut bytes = vec![0; expected.len()];
        self.server.read_exact(&mut bytes).await.expect("it is sent");
        assert_eq!(bytes.escape_ascii().to_string(), expected.escape_ascii().to_string());
    }

    async fn says(&mut self, bytes: &str) {
        self.server.write_all(bytes.as_bytes()).await.expect("it is listened to");
    }
}

#[tokio::test]
async fn what_does_not_fit_is_sent_on_in_its_order() {
    let mut pipe = pipe(7, LONG);
    let (long, short) = ("k".repeat(1000), "x");
    let first = pipe.sends(&long);
    tokio::task::yield_now().await;
    let second = pipe.sends(short);
    tokio::task::yield_now().await;
    pipe.reads(&long).await;
    pipe.reads(short).await;
    pipe.says(":1\r\n:2\r\n").await;
    assert_eq!(first.await.expect("it ends"), Ok(Value::Int(1)));
    assert_eq!(second.await.expect("it ends"), Ok(Value::Int(2)));
}

#[tokio::test]
async fn answers_and_pushes_find_their_way_however_they_come() {
    let mut pipe = pipe(3, LONG);
    let both = {
        let connection = pipe.connection.clone();
        tokio::spawn(async move {
            let mut pipeline = redis::pipe();
            pipeline.cmd("SUBSCRIBE").arg("c");
            pipeline.cmd("GET").arg("a");
            connection.pipeline(&pipeline).await
        })
    };
    tokio::task::yield_now().await;
    let third = pipe.sends("b");
    tokio::task::yield_now().await;
    let mut sent = [0; "*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\nc\r\n".len()];
    pipe.server.read_exact(&mut sent).await.expect("it is sent");
    pipe.reads("a").await;
    pipe.reads("b").await;
    pipe.says(">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n").await;
    pipe.says(">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n").await;
    pipe.says("-WRONGTYPE no\r\n$1\r\nv\r\n").await;
    let both = both.await.expect("it ends").expect("answered");
    assert!(matches!(both[..], [Value::Array(_), Value::ServerError(_)]), "{both:?}");
    assert_eq!(third.await.expect("it ends"), Ok(Value::BulkString(b"v".to_vec())));
    let heard = pipe.heard.lock();
    assert!(matches!(heard[..], [PushInfo { kind: PushKind::Message, .. }]), "{heard:?}");
}

#[tokio::test(start_paused = true)]
async fn the_answer_nobody_waited_for_is_nobody_elses() {
    let mut pipe = pipe(64, Duration::from_secs(1));
    let late = pipe.sends("late").await.expect("it ends").expect_err("nobody answers");
    assert!(late.is_timeout(), "{late}");
    let dropped = pipe.sends("dropped");
    tokio::task::yield_now().await;
    dropped.abort();
    let third = pipe.sends("third");
    tokio::task::yield_now().await;
    pipe.says(":1\r\n:2\r\n:3\r\n").await;
    assert_eq!(third.await.expect("it ends"), Ok(Value::Int(3)));
}

#[tokio::test]
async fn the_end_is_told_to_all_who_wait_and_all_who_come() {
    let mut pipe = pipe(64, LONG);
    let waits = pipe.sends("a");
    pipe.reads("a").await;
    // Half an answer is none.
    pipe.says("$5\r\nab").await;
    pipe.server.shutdown().await.expect("it closes");
    assert!(waits.await.expect("it ends").expect_err("no answer").is_io_error());
    assert!(pipe.sends("b").await.expect("it ends").expect_err("no answer").is_io_error());
    let heard = pipe.heard.lock();
    assert!(matches!(heard[..], [PushInfo { kind: PushKind::Disconnection, .. }]), "{heard:?}");
}

#[tokio::test]
async fn what_is_no_answer_ends_it() {
    for nonsense in ["HTTP/1.1 400 Bad Request\r\n", ":x\r\n", ":1\r\n:2\r\n"] {
        let mut pipe = pipe(64, LONG);
        let waits = pipe.sends("a");
        pipe.reads("a").await;
        pipe.says(nonsense).await;
        // An answer more than was asked for: whoever it belongs to, it is not the next one.
        let first = waits.await.expect("it ends");
        let next = pipe.sends("b").await.expect("it ends").expect_err("it has ended");
        assert_eq!(next.kind(), redis::ErrorKind::Parse, "{nonsense}: {first:?}");
    }
}

#[tokio::test]
async fn a_server_that_speaks_first_has_refused_us() {
    let mut pipe = pipe(64, LONG);
    pipe.says("-ERR max number of clients reached\r\n").await;
    let_others_run().await;
    let refused = pipe.sends("a").await.expect("it ends").expect_err("refused");
    assert_eq!(refused.detail(), Some("max number of clients reached"), "{refused}");
    // Once something was answered, it is one answer more than was asked for.
    let mut pipe = self::pipe(64, LONG);
    let waits = pipe.sends("a");
    pipe.reads("a").await;
    pipe.says(":1\r\n-ERR go away\r\n").await;
    assert_eq!(waits.await.expect("it ends"), Ok(Value::Int(1)));
    let next = pipe.sends("b").await.expect("it ends").expect_err("it has ended");
    assert_eq!(next.kind(), redis::ErrorKind::Parse, "{next}");
}

#[tokio::test]
async fn a_connection_that_is_dropped_is_closed() {
    let Pipe { connection, mut server, heard } = pipe(64, LONG);
    tokio::task::yield_now().await;
    drop(connection);
    assert_eq!(
        server.read(&mut [0; 1]).await.map_err(|error| error.kind()),
        Ok::<_, io::ErrorKind>(0)
    );
    assert_eq!(*heard.lock(), [], "who ends it needs not be told");
}

/// Who posts, what he was told, and whether he has gone.
#[derive(Default)]
struct Poster(Mutex<Vec<(usize, Result<Value, RedisError>)>>, AtomicBool);

impl Hear for Poster {
    fn hear(self: Arc<Self>, tag: usize, answer: Result<Value, RedisError>) {
        self.0.lock().push((tag, answer));
    }

    fn is_awaited(&self) -> bool {
        !self.1.load(Ordering::SeqCst)
    }
}

/// Counts how often somebody is woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn post(pipe: &Pipe, poster: &Arc<Poster>, tag: usize) {
    let packed = get("a").get_packed_command();
    pipe.connection.post(&packed, poster.clone(), tag).expect("it is sent");
}

async fn let_others_run() {
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_guest_reads_until_he_leaves() {
    let mut pipe = pipe(64, LONG);
    let (poster, woken) = (Arc::new(Poster::default()), Arc::new(Woken::default()));
    let waker = Waker::from(woken.clone());
    let_others_run().await;
    post(&pipe, &poster, 1);
    pipe.connection.read(&*poster, &waker);
    pipe.says(":1\r\n").await;
    let_others_run().await;
    assert_eq!((woken.0.load(Ordering::SeqCst), poster.0.lock().len()), (1, 0), "it is his");
    pipe.connection.read(&*poster, &waker);
    assert_eq!(*poster.0.lock(), [(1, Ok(Value::Int(1)))]);
    // He was told of this one, and leaves without it.
    post(&pipe, &poster, 2);
    pipe.connection.read(&*poster, &waker);
    pipe.says(":2\r\n").await;
    pipe.connection.leave_reading(Some(Waker::noop()));
    let_others_run().await;
    assert_eq!(poster.0.lock().len(), 1, "somebody else has left");
    pipe.connection.leave_reading(Some(&waker));
    let_others_run().await;
    assert_eq!(poster.0.lock().len(), 2);
    post(&pipe, &poster, 3);
    pipe.says(":3\r\n").await;
    let_others_run().await;
    assert_eq!(poster.0.lock().last(), Some(&(3, Ok(Value::Int(3)))));
    assert_eq!(woken.0.load(Ordering::SeqCst), 2, "the last one is none of his");
}

#[tokio::test]
async fn a_guest_who_does_not_read_is_in_nobodys_way() {
    let mut pipe = pipe(64, LONG);
    let (guest, other) = (Arc::new(Poster::default()), Arc::new(Poster::default()));
    let_others_run().await;
    post(&pipe, &guest, 1);
    pipe.connection.read(&*guest, Waker::noop());
    post(&pipe, &other, 2);
    // He comes once more, and finds that he is not alone.
    pipe.connection.read(&*guest, Waker::noop());
    pipe.says(":1\r\n:2\r\n").await;
    let_others_run().await;
    assert_eq!(*guest.0.lock(), [(1, Ok(Value::Int(1)))]);
    assert_eq!(*other.0.lock(), [(2, Ok(Value::Int(2)))]);
    // Somebody else's answer is none of his, though it is the only one.
    post(&pipe, &other, 3);
    pipe.connection.read(&*guest, Waker::noop());
    pipe.says(":3\r\n").await;
    let_others_run().await;
    assert_eq!(other.0.lock().last(), Some(&(3, Ok(Value::Int(3)))));
    post(&pipe, &guest, 4);
    pipe.connection.read(&*guest, Waker::noop());
    let waits = pipe.sends("a");
    let_others_run().await;
    pipe.says(":4\r\n:5\r\n").await;
    assert_eq!(waits.await.expect("it ends"), Ok(Value::Int(5)));
}

#[tokio::test]
async fn a_guest_reads_beside_those_who_have_gone() {
    let mut pipe = pipe(64, LONG);
    let (guest, gone) = (Arc::new(Poster::default()), Arc::new(Poster::default()));
    let woken = Arc::new(Woken::default());
    let_others_run().await;
    post(&pipe, &gone, 1);
    gone.1.store(true, Ordering::SeqCst);
    post(&pipe, &guest, 2);
    pipe.connection.read(&*guest, &Waker::from(woken.clone()));
    pipe.says(":1\r\n:2\r\n").await;
    let_others_run().await;
    assert_eq!((woken.0.load(Ordering::SeqCst), guest.0.lock().len()), (1, 0), "it is his");
    pipe.connection.read(&*guest, Waker::noop());
    assert_eq!((gone.0.lock().len(), guest.0.lock().len()), (1, 1));
}

#[tokio::test]
async fn what_was_said_before_the_end_counts() {
    let mut pipe = pipe(64, LONG);
    let first = pipe.sends("a");
    pipe.reads("a").await;
    pipe.says("-ERR go away\r\n").await;
    let Pipe { connection, server, .. } = pipe;
    drop(server);
    // Nobody has read that yet when this cannot be sent.
    let poster = Arc::new(Poster::default());
    let packed = get("b").get_packed_command();
    connection.post(&packed, poster.clone(), 2).expect("it is not known yet");
    let refused = first.await.expect("it ends").expect_err("refused");
    assert_eq!(refused.detail(), Some("go away"), "{refused}");
    let_others_run().await;
    let heard = std::mem::take(&mut *poster.0.lock());
    assert!(matches!(&heard[..], [(2, Err(error))] if error.is_io_error()), "{heard:?}");
}

#[tokio::test(start_paused = true)]
async fn last_words_that_do_not_come_are_not_waited_for() {
    let (silent, _server) = tokio::io::duplex(64);
    let (writer, closed) = tokio::io::duplex(64);
    drop(closed);
    let on_push = Box::new(|_| {});
    let connection = Connection::over(Box::pin(silent), Box::pin(writer), LONG, on_push);
    let broken = connection.command(&get("a")).await.expect_err("nobody answers");
    assert!(broken.is_io_error() && !broken.is_timeout(), "{broken}");
}

#[tokio::test]
async fn the_end_that_a_guest_finds_is_told_to_all() {
    let mut pipe = pipe(64, LONG);
    let poster = Arc::new(Poster::default());
    post(&pipe, &poster, 1);
    pipe.connection.read(&*poster, Waker::noop());
    pipe.server.shutdown().await.expect("it closes");
    pipe.connection.read(&*poster, Waker::noop());
    let_others_run().await;
    let heard = std::mem::take(&mut *poster.0.lock());
    assert!(matches!(&heard[..], [(1, Err(error))] if error.is_io_error()), "{heard:?}");
    let packed = get("a").get_packed_command();
    assert!(pipe.connection.post(&packed, poster, 2).is_err(), "it has ended");
    let heard = pipe.heard.lock();
    assert!(matches!(heard[..], [PushInfo { kind: PushKind::Disconnection, .. }]), "{heard:?}");
}
