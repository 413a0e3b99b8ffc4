//! The connections that carry batches: one to begin with, more under load, as few again when it is over.
//!
//! A statement goes out over the connection with the fewest under way; if even that is busy, another one is made, up to
//! `lanes`, for the next. When all are lost, whoever asks waits for the first attempt to connect again; if that fails,
//! asks fail at once with its reason while a task goes on trying, with full jitter.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::{runtime::Handle, sync::Notify, task::AbortHandle};
use tokio_postgres::Row;

use super::{
    config::Config,
    dial::{Dialled, Dialler},
    error::{self, Class, Stage},
    named::Namer,
    wire::Param,
};
use crate::{Error, ErrorKind};

/// Between attempts to connect: random up to this, doubled each time.
const RETRY_FIRST: Duration = Duration::from_millis(20);
const RETRY_LAST: Duration = Duration::from_secs(1);

/// A connection beyond the first that carried nothing for this long is closed.
const IDLE: Duration = Duration::from_secs(30);

/// One connection. Dropped, it says goodbye to the server.
pub(super) struct Line {
    server: Arc<Namer>,
    number: u64,
    under_way: AtomicUsize,
    used: Mutex<Instant>,
    carrier: AbortHandle,
}

/// A line that somebody uses.
struct InUse(Arc<Line>);

impl InUse {
    fn new(line: Arc<Line>) -> Self {
        line.under_way.fetch_add(1, Ordering::Relaxed);
        *line.used.lock() = Instant::now();
        Self(line)
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why a statement has no answer, and what the server said, if it was the server.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: Error,
    pub(super) class: Option<Class>,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, class: None }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

#[derive(Default)]
struct State {
    open: Vec<Arc<Line>>,
    /// Whether one is being made.
    is_connecting: bool,
    /// Why the last attempt failed, while there is no connection.
    why: Option<Error>,
    is_closed: bool,
}

pub(super) struct Lines {
    server: tokio_postgres::Config,
    dialler: Dialler,
    /// Where it is, for messages.
    pub(super) at: String,
    lanes: usize,
    timeout: Duration,
    state: Mutex<State>,
    /// Something about the state has changed.
    changed: Notify,
    numbers: AtomicU64,
    runtime: Handle,
    me: Weak<Self>,
}

impl Lines {
    pub(super) fn new(config: &Config, dialler: Dialler) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            server: config.server.clone(),
            dialler,
            at: config.location(),
            lanes: config.lanes,
            timeout: config.timeout,
            state: Mutex::default(),
            changed: Notify::new(),
            numbers: AtomicU64::new(0),
            runtime: Handle::current(),
            me: me.clone(),
        })
    }

    /// Makes the first connection.
    pub(super) async fn open(&self) -> Result<(), Error> {
        let line = self.connect().await?;
        self.state.lock().open.push(line);
        Ok(())
    }

    /// Sends a statement of which nothing is kept on the connection, and awaits its answer.
    pub(super) async fn query(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Failure> {
        let line = self.line().await?;
        self.answer(&line.0, line.0.server.query(sql, params)).await
    }

    /// Calls a function with nothing but these parameters, and awaits its answer. Where it is safe to, the server parses
    /// the call once.
    pub(super) async fn call(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Failure> {
        let line = self.line().await?;
        let called = line.0.server.call(&self.runtime, self.timeout, sql, params);
        self.answer(&line.0, called).await
    }

    async fn answer(
        &self,
        line: &Line,
        asked: impl Future<Output = Result<Vec<Row>, tokio_postgres::Error>>,
    ) -> Result<Vec<Row>, Failure> {
        match tokio::time::timeout(self.timeout, asked).await {
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err(failure)) => {
                let class = error::class_of(&failure);
                let error = error::translate(&failure, Stage::Asked, &self.at);
                if class.is_none_or(Class::ends_connection) {
                    self.lost(line, &error);
                }
                Err(Failure { error, class })
            }
            Err(_) => {
                let error = error::timed_out(&self.at);
                self.lost(line, &error);
                Err(error.into())
            }
        }
    }

    /// A connection to send something over.
    async fn line(&self) -> Result<InUse, Error> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // From here on no change is missed.
            changed.as_mut().enable();
            {
                let mut state = self.state.lock();
                if state.is_closed {
                    return Err(error::closed());
                }
                state.open.retain(|line| !line.server.is_closed());
                let least = state
                    .open
                    .iter()
                    .min_by_key(|line| line.under_way.load(Ordering::Relaxed))
                    .cloned();
                if let Some(line) = least {
                    let is_busy = line.under_way.load(Ordering::Relaxed) > 0;
                    if is_busy && state.open.len() < self.lanes && !state.is_connecting {
                        state.is_connecting = true;
                        self.runtime.spawn(grow(self.me.clone()));
                    }
                    return Ok(InUse::new(line));
                }
                if let Some(why) = &state.why {
                    return Err(why.duplicate());
                }
                self.start_connecting(&mut state);
            }
            if tokio::time::timeout(self.timeout, changed).await.is_err() {
                return Err(Error::new(
                    ErrorKind::Unavailable,
                    format!("{} does not answer", self.at),
                )
                .hint("is it overloaded or stopped? it is being connected again"));
            }
        }
    }

    /// Has a task connect until it succeeds, unless one does.
    fn start_connecting(&self, state: &mut State) {
        if !state.is_connecting && !state.is_closed {
            state.is_connecting = true;
            self.runtime.spawn(keep_connecting(self.me.clone()));
        }
    }

    async fn connect(&self) -> Result<Arc<Line>, Error> {
        let Dialled { client, carrier, is_own } =
            self.dialler.dial_and_look(&self.server, &self.at).await?;
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let me = self.me.clone();
        let carrying = self.runtime.spawn(async move {
            // Its error says no more than that it ended.
            let _ = carrier.await;
            if let Some(lines) = me.upgrade() {
                lines.ended(number);
            }
        });
        Ok(Arc::new(Line {
            server: Arc::new(Namer::new(client, is_own)),
            number,
            under_way: AtomicUsize::new(0),
            used: Mutex::new(Instant::now()),
            carrier: carrying.abort_handle(),
        }))
    }

    /// Gives a connection up.
    fn lost(&self, line: &Line, why: &Error) {
        tracing::warn!(at = %self.at, error = %why, "lost a connection to postgresql");
        // The driver would go on waiting for answers that nobody wants any more.
        line.carrier.abort();
        self.ended(line.number);
    }

    fn ended(&self, number: u64) {
        let mut state = self.state.lock();
        let before = state.open.len();
        state.open.retain(|line| line.number != number);
        if state.open.is_empty() && before > 0 {
            self.start_connecting(&mut state);
        }
    }

    /// Closes connections that are not needed any more, all but one.
    pub(super) fn shrink(&self) {
        let mut state = self.state.lock();
        while state.open.len() > 1 {
            let is_idle = |line: &Arc<Line>| {
                line.under_way.load(Ordering::Relaxed) == 0 && line.used.lock().elapsed() > IDLE
            };
            let Some(at) = state.open.iter().rposition(is_idle) else { return };
            state.open.remove(at);
        }
    }

    /// Takes what an attempt came to; answers whether no more are needed.
    fn take(&self, outcome: Result<Arc<Line>, Error>) -> bool {
        let mut state = self.state.lock();
        let is_done = match outcome {
            _ if state.is_closed => true,
            Ok(line) => {
                state.open.push(line);
                state.why = None;
                true
            }
            Err(why) => {
                state.why = Some(why);
                false
            }
        };
        state.is_connecting &= !is_done;
        drop(state);
        self.changed.notify_waiters();
        is_done
    }

    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.open.clear();
        drop(state);
        self.changed.notify_waiters();
    }
}

/// One more connection for a load that one cannot carry. If the server gives none, there are enough.
async fn grow(lines: Weak<Lines>) {
    let Some(lines) = lines.upgrade() else { return };
    let made = lines.connect().await;
    let mut state = lines.state.lock();
    state.is_connecting = false;
    if let Ok(line) = made
        && !state.is_closed
    {
        state.open.push(line);
        state.why = None;
    } else if state.open.is_empty() {
        lines.start_connecting(&mut state);
    }
    drop(state);
    lines.changed.notify_waiters();
}

async fn keep_connecting(lines: Weak<Lines>) {
    let mut bound = RETRY_FIRST;
    loop {
        let Some(this) = lines.upgrade() else { return };
        let outcome = this.connect().await;
        if this.take(outcome) {
            return;
        }
        // Nothing keeps the client alive meanwhile: one that was dropped stops connecting.
        drop(this);
        tokio::time::sleep(bound.mul_f64(rand::random())).await;
        bound = (bound * 2).min(RETRY_LAST);
    }
}
