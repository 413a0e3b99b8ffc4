//! One connection: requests go out as they come, answers come back in their order.
//!
//! The common client hands each request to a task that owns the connection, and each answer back. Both ways together cost
//! more than the work itself: a task has to be woken, often on another core. Here whoever sends writes to the socket
//! itself, and one task reads; what the socket does not take at once that task sends on. Whoever waits for answers of
//! several connections at once may read them himself.

mod carrier;
mod frames;
mod inbox;
mod out;
mod stream;
#[cfg(test)]
mod tests;
mod usual;

use std::{
    collections::VecDeque,
    fmt, io,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use parking_lot::Mutex;
use redis::{Cmd, Pipeline, PushInfo, PushKind, RedisError, ServerError, Value};
use rustls::AlertDescription;
use smallvec::SmallVec;
use tokio::{sync::oneshot, task::AbortHandle};

use self::{
    inbox::{Inbox, Ready},
    out::Out,
    stream::{Reader, Writer},
};
pub(super) use stream::{Stream, connect};

/// Hears what nobody asked for, and that the connection has ended by itself.
pub(in crate::stores) type OnPush = Box<dyn Fn(PushInfo) + Send + Sync>;

/// Why a connection has ended.
#[derive(Clone, Debug)]
enum End {
    /// What came was no answer of a Redis.
    Nonsense,
    /// The server spoke before it was asked anything: it does not take us.
    Refused(ServerError),
    Broken(io::ErrorKind),
    /// The server has ended it, and said why: in TLS 1.3 it asks for a certificate when to us all is settled.
    Alert(AlertDescription),
}

impl From<&io::Error> for End {
    fn from(error: &io::Error) -> Self {
        match error.get_ref().and_then(|cause| cause.downcast_ref()) {
            Some(rustls::Error::AlertReceived(alert)) => Self::Alert(*alert),
            _ => Self::Broken(error.kind()),
        }
    }
}

impl From<End> for RedisError {
    fn from(end: End) -> Self {
        match end {
            End::Nonsense => (redis::ErrorKind::Parse, "what came is no answer of a redis").into(),
            End::Refused(refusal) => refusal.into(),
            End::Broken(kind) => io::Error::from(kind).into(),
            End::Alert(alert) => {
                let alert = rustls::Error::AlertReceived(alert);
                io::Error::new(io::ErrorKind::InvalidData, alert).into()
            }
        }
    }
}

/// Answers to the commands that were sent in one piece.
type Said = SmallVec<[Value; 1]>;

/// Hears the answer to a command that was posted.
pub(in crate::stores) trait Hear: Send + Sync {
    /// Called by whoever has read the answer, or found that there will be none.
    fn hear(self: Arc<Self>, tag: usize, answer: Result<Value, RedisError>);

    /// Whether somebody waits for it.
    fn is_awaited(&self) -> bool;
}

/// A connection. It ends when this is dropped: what is under way then may still be carried out.
pub(in crate::stores) struct Connection {
    shared: Arc<Shared>,
    carrier: AbortHandle,
    timeout: Duration,
}

/// What those who send and the one who reads have in common.
struct Shared {
    out: Out,
    /// In the order in which requests go out.
    waiting: Mutex<VecDeque<Waiting>>,
    /// Held by whoever reads; nobody is told anything meanwhile.
    inbox: Mutex<Inbox>,
    ready: Arc<Ready>,
    /// The same, as the socket wants it.
    waker: Waker,
    on_push: OnPush,
}

/// Who waits for answers, and for how many more.
struct Waiting {
    missing: usize,
    said: Said,
    to: To,
}

enum To {
    One(oneshot::Sender<Result<Said, RedisError>>),
    Posted(Arc<dyn Hear>, usize),
}

impl To {
    fn is_told(&self, whom: &dyn Hear) -> bool {
        matches!(self, Self::Posted(to, _) if std::ptr::addr_eq(Arc::as_ptr(to), whom))
    }

    fn is_awaited(&self) -> bool {
        match self {
            Self::One(to) => !to.is_closed(),
            Self::Posted(to, _) => to.is_awaited(),
        }
    }

    fn tell(self, answers: Result<Said, RedisError>) {
        match self {
            // Nobody waits any more: it took too long.
            Self::One(to) => drop(to.send(answers)),
            Self::Posted(to, tag) => to.hear(tag, answers.and_then(only)),
        }
    }
}

/// What was read, on its way out.
enum News {
    Answer(Waiting),
    Push(PushInfo),
}

/// Answers that come in while others are read are read too, but not without end.
const READS_MAX: usize = 16;

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
        let ready = Arc::new(Ready::default());
        let shared = Arc::new(Shared {
            out: Out::new(writer),
            waiting: Mutex::default(),
            inbox: Mutex::new(Inbox::new(reader)),
            waker: ready.clone().into(),
            ready,
            on_push,
        });
        let carrier = tokio::spawn(carrier::carry(shared.clone())).abort_handle();
        Self { shared, carrier, timeout }
    }

    /// Whether nothing is sent over it any more.
    pub(super) fn is_ended(&self) -> bool {
        self.shared.out.is_ended()
    }

    /// Sends one command and waits for its answer.
    ///
    /// # Cancel safety
    /// Not cancel safe: the command was sent, and is carried out.
    pub(in crate::stores) async fn command(&self, command: &Cmd) -> Result<Value, RedisError> {
        self.send(1, |bytes| command.write_packed_command(bytes)).await.and_then(only)
    }

    /// Sends one command before it returns; the answer is told to somebody. How long that may take is his matter.
    pub(in crate::stores) fn post(
        &self,
        command: &[u8],
        to: Arc<dyn Hear>,
        tag: usize,
    ) -> Result<(), RedisError> {
        let waiting = Waiting { missing: 1, said: SmallVec::new(), to: To::Posted(to, tag) };
        self.shared.send(waiting, |bytes| bytes.extend_from_slice(command))
    }

    /// Reads what has come, for whoever it is. The one whom an answer is to be told is woken when more comes, until
    /// [`Self::leave_reading`] or until somebody else waits too: he need not look after it when he is woken.
    pub(in crate::stores) fn read(&self, whose: &dyn Hear, waker: &Waker) {
        {
            // Under this lock, so that whoever comes next finds him.
            let waiting = self.shared.waiting.lock();
            let is_his = |one: &Waiting| one.to.is_told(whose);
            if waiting.iter().any(is_his)
                && waiting.iter().all(|one| is_his(one) || !one.to.is_awaited())
            {
                self.shared.ready.invite(waker);
            } else {
                self.shared.ready.dismiss(Some(waker));
            }
        }
        if self.shared.read().is_some() {
            // It meets the same end, and tells of it.
            self.shared.ready.carrier.wake();
        }
    }

    /// The connection's own task reads again, unless somebody else than this one does.
    pub(in crate::stores) fn leave_reading(&self, waker: Option<&Waker>) {
        self.shared.ready.dismiss(waker);
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
        let waiting = Waiting { missing: count, said: SmallVec::new(), to: To::One(to) };
        self.shared.send(waiting, write)?;
        match tokio::time::timeout(self.timeout, answers).await {
            Ok(Ok(said)) => said,
            Ok(Err(_)) => Err(End::Broken(io::ErrorKind::BrokenPipe).into()),
            Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
        }
    }
}

impl Shared {
    fn send(&self, waiting: Waiting, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), RedisError> {
        let note = || {
            self.waiting.lock().push_back(waiting);
            self.ready.dismiss(None);
        };
        match self.out.send(write, note) {
            Ok(true) => Ok(()),
            Ok(false) => {
                self.ready.carrier.wake();
                Ok(())
            }
            // Nothing of it was sent, as if nobody had been there: that is no doubt.
            Err(End::Broken(_)) => Err(End::Broken(io::ErrorKind::ConnectionRefused).into()),
            Err(end) => Err(end.into()),
        }
    }

    /// Nobody gets an answer any more.
    fn end(&self, why: End) {
        let waiting = self.out.end(why.clone(), || std::mem::take(&mut *self.waiting.lock()));
        for waiting in waiting {
            waiting.to.tell(Err(why.clone().into()));
        }
    }

    /// Reads what has come, and tells it. Answers with the end, if there is one.
    fn read(&self) -> Option<End> {
        let (mut news, mut cx) = (SmallVec::new(), Context::from_waker(&self.waker));
        let mut inbox = self.inbox.lock();
        self.ready.begin();
        let mut reads = 0;
        while inbox.end.is_none() {
            if reads == READS_MAX {
                self.waker.wake_by_ref();
                break;
            }
            reads += 1;
            match inbox.poll_read(&mut cx) {
                Poll::Pending => break,
                Poll::Ready(Err(error)) => inbox.end = Some((&error).into()),
                Poll::Ready(Ok(())) => {
                    inbox.hand_out(|value, is_first| self.take(value, is_first, &mut news));
                }
            }
        }
        let end = inbox.end.clone();
        drop(inbox);
        for one in news {
            match one {
                News::Answer(answered) => answered.to.tell(Ok(answered.said)),
                News::Push(info) => (self.on_push)(info),
            }
        }
        end
    }

    /// Takes one value that has come; whoever waited for it is among the news once he has all.
    fn take(
        &self,
        value: Value,
        is_first: bool,
        news: &mut SmallVec<[News; 2]>,
    ) -> Result<(), End> {
        let value = match value {
            // The only kind that somebody waits for.
            Value::Push { kind: PushKind::Subscribe, data } => Value::Array(data),
            Value::Push { kind, data } => {
                news.push(News::Push(PushInfo { kind, data }));
                return Ok(());
            }
            value => value,
        };
        let mut waiting = self.waiting.lock();
        let Some(first) = waiting.front_mut() else {
            return Err(match value {
                // Such as when it has too many clients.
                Value::ServerError(refusal) if is_first => End::Refused(refusal),
                _ => End::Nonsense,
            });
        };
        first.said.push(value);
        first.missing -= 1;
        if first.missing == 0 {
            news.extend(waiting.pop_front().map(News::Answer));
        }
        Ok(())
    }
}

/// The answer to one command.
fn only(mut said: Said) -> Result<Value, RedisError> {
    match said.pop() {
        Some(Value::ServerError(error)) => Err(error.into()),
        value => Ok(value.unwrap_or_default()),
    }
}
