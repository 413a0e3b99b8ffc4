//! One connection: requests go out as they come, answers come back in their order.
//!
//! The common client hands each request to a task that owns the connection, and each answer back. Both ways together cost
//! more than the work itself: a task has to be woken, often on another core. Here whoever sends writes to the socket
//! itself, and one task reads; what the socket does not take at once that task sends on.

mod carrier;
mod frames;
mod stream;
#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    fmt, io,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use redis::{Cmd, Pipeline, PushInfo, RedisError, Value};
use smallvec::SmallVec;
use tokio::{sync::oneshot, task::AbortHandle};

use self::{
    frames::Nonsense,
    stream::{Reader, Writer},
};
pub(super) use stream::{Stream, connect};

/// Hears what nobody asked for, and that the connection has ended by itself.
pub(in crate::stores) type OnPush = Box<dyn Fn(PushInfo) + Send + Sync>;

/// Why a connection has ended.
#[derive(Clone, Copy, Debug)]
enum End {
    /// What came was no answer of a Redis.
    Nonsense,
    Broken(io::ErrorKind),
}

impl From<End> for RedisError {
    fn from(end: End) -> Self {
        match end {
            End::Nonsense => (redis::ErrorKind::Parse, "what came is no answer of a redis").into(),
            End::Broken(kind) => io::Error::from(kind).into(),
        }
    }
}

/// Answers to the commands that were sent in one piece.
type Said = SmallVec<[Value; 1]>;

/// A connection. It ends when this is dropped: what is under way then may still be carried out.
pub(in crate::stores) struct Connection {
    shared: Arc<Shared>,
    carrier: AbortHandle,
    timeout: Duration,
}

/// What those who send and the one who reads have in common.
struct Shared {
    out: Mutex<Out>,
    /// Apart from the above, so that whoever reads need not wait for a system call of somebody who writes. Always taken
    /// after it.
    waiting: Mutex<VecDeque<Waiting>>,
    carrier: AtomicWaker,
}

struct Out {
    writer: Writer,
    bytes: Vec<u8>,
    /// How many of them were sent.
    sent: usize,
    /// The socket is full: nobody but the carrier writes.
    is_full: bool,
    end: Option<End>,
}

/// Who waits for answers, and for how many more.
struct Waiting {
    missing: usize,
    said: Said,
    to: oneshot::Sender<Result<Said, RedisError>>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.carrier.abort();
    }
}

impl Connection {
    /// Begins to use a stream. An answer that takes longer than `timeout` is not waited for.
    pub(super) fn new(stream: Stream, timeout: Duration, on_push: OnPush) -> Self {
        let (reader, writer) = stream.split();
        Self::over(reader, writer, timeout, on_push)
    }

    fn over(reader: Reader, writer: Writer, timeout: Duration, on_push: OnPush) -> Self {
        let out = Out { writer, bytes: Vec::new(), sent: 0, is_full: false, end: None };
        let shared = Arc::new(Shared {
            out: Mutex::new(out),
            waiting: Mutex::default(),
            carrier: AtomicWaker::new(),
        });
        let carrier = tokio::spawn(carrier::carry(reader, shared.clone(), on_push)).abort_handle();
        Self { shared, carrier, timeout }
    }

    /// Sends one command and waits for its answer.
    ///
    /// # Cancel safety
    /// Not cancel safe: the command was sent, and is carried out.
    pub(in crate::stores) async fn command(&self, command: &Cmd) -> Result<Value, RedisError> {
        let mut said = self.send(1, |bytes| command.write_packed_command(bytes)).await?;
        match said.pop() {
            Some(Value::ServerError(error)) => Err(error.into()),
            value => Ok(value.unwrap_or_default()),
        }
    }

    /// Sends commands in one piece and waits for all their answers; a refused one is an answer too.
    ///
    /// # Cancel safety
    /// Not cancel safe: the commands were sent, and are carried out.
    pub(in crate::stores) async fn pipeline(
        &self,
        pipeline: &Pipeline,
    ) -> Result<Vec<Value>, RedisError> {
        let write = |bytes: &mut Vec<u8>| bytes.extend_from_slice(&pipeline.get_packed_pipeline());
        self.send(pipeline.len(), write).await.map(SmallVec::into_vec)
    }

    async fn send(
        &self,
        count: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Said, RedisError> {
        if count == 0 {
            return Ok(Said::new());
        }
        let (to, answers) = oneshot::channel();
        self.shared.send(Waiting { missing: count, said: SmallVec::new(), to }, write)?;
        match tokio::time::timeout(self.timeout, answers).await {
            Ok(Ok(said)) => said,
            Ok(Err(_)) => Err(End::Broken(io::ErrorKind::BrokenPipe).into()),
            Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
        }
    }
}

impl Shared {
    fn send(&self, waiting: Waiting, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), RedisError> {
        let mut out = self.out.lock();
        if let Some(end) = out.end {
            return Err(end.into());
        }
        write(&mut out.bytes);
        self.waiting.lock().push_back(waiting);
        let mut nobody = Context::from_waker(Waker::noop());
        if !out.is_full && !matches!(out.poll_send(&mut nobody), Poll::Ready(Ok(()))) {
            // The carrier goes on, and meets the same failure if it was one.
            out.is_full = true;
            self.carrier.wake();
        }
        Ok(())
    }

    /// Sends on what the socket did not take. Whoever asks is woken when it takes more.
    fn poll_flush(&self, cx: &mut Context<'_>) -> io::Result<()> {
        let mut out = self.out.lock();
        if out.is_full
            && let Poll::Ready(sent) = out.poll_send(cx)
        {
            out.is_full = false;
            return sent;
        }
        Ok(())
    }

    /// Nobody gets an answer any more.
    fn end(&self, why: End) {
        let waiting = {
            let mut out = self.out.lock();
            out.end = Some(why);
            std::mem::take(&mut *self.waiting.lock())
        };
        for waiting in waiting {
            // Nobody waits any more: it took too long.
            let _ = waiting.to.send(Err(why.into()));
        }
    }

    /// Gives an answer to who waits for it.
    fn answer(&self, value: Value) -> Result<(), Nonsense> {
        let mut waiting = self.waiting.lock();
        let first = waiting.front_mut().ok_or(Nonsense)?;
        first.said.push(value);
        first.missing -= 1;
        if first.missing == 0
            && let Some(answered) = waiting.pop_front()
        {
            drop(waiting);
            // Nobody waits any more: it took too long.
            let _ = answered.to.send(Ok(answered.said));
        }
        Ok(())
    }
}

impl Out {
    /// Sends as much as the socket takes.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.bytes.len() {
            match ready!(self.writer.as_mut().poll_write(cx, &self.bytes[self.sent..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                len => self.sent += len,
            }
        }
        // The memory serves the next request too, unless this one was unusually large.
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_MAX);
        self.sent = 0;
        self.writer.as_mut().poll_flush(cx)
    }
}

/// How much memory a connection keeps for its requests.
const KEPT_MAX: usize = 1 << 16;
