//! Batching: a queue and a count, with one rule.
//!
//! **A batch is sent when what has gathered is at least half of what is under way.** A lone operation on an idle lane goes
//! at once; every next batch in flight is larger than the one before it, and so the number of batches in flight grows with
//! the logarithm of the number of callers. A store that gains nothing from several gets one at a time.
//!
//! Releases and renewals that have stood for 50 ms go whatever else is under way: without that, a batch that hangs loses
//! the leases whose renewals stand behind it.
//!
//! Nothing recurses: while a batch is being submitted, what its answers want sent stays in the queue, and is looked at when
//! the store returns.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{Engine, acquisition::Send, cell::TokenCell};
use crate::{
    Name, Token,
    clock::Moment,
    store::{Answer, Ask, Completion, Operation, Release, Renew},
};

/// Releases and renewals stand for at most this long.
const STANDS_MAX: Duration = Duration::from_millis(50);

/// How many operations an empty queue keeps room for.
const ROOM_MAX: usize = 1024;

/// The target of a bare answer to an operation.
pub(crate) type Teller = oneshot::Sender<(Moment, Answer)>;

/// An operation to be sent, and the target of its answer. Small: a hundred thousand renewals may be due at one moment.
pub(crate) enum Work {
    /// To the token's acquisition.
    Token(Arc<TokenCell>, Send),
    /// A renewal at its holder's wish, for a time of its own: to the acquisition and to the holder.
    Extend(Box<(Arc<TokenCell>, Duration, Teller)>),
    /// A renewal of a lease that another process had until now: to the caller that attaches.
    Attach(Box<(Renew, Teller)>),
    /// A release of a token that is not known any more. Nothing follows from its answer.
    ReleaseUnknown(Box<(Name, Token)>),
}

impl Work {
    fn operation(&self) -> Operation {
        match self {
            Self::Token(cell, send) => operation(cell, *send),
            Self::Extend(extend) => renew(&extend.0, extend.1),
            Self::Attach(attach) => Operation::Renew(attach.0.clone()),
            Self::ReleaseUnknown(unknown) => {
                let (name, token) = (**unknown).clone();
                Operation::Release(Release { name, token, keep: Duration::ZERO })
            }
        }
    }

    fn name(&self) -> &Name {
        match self {
            Self::Token(cell, _) => &cell.name,
            Self::Extend(extend) => &extend.0.name,
            Self::Attach(attach) => &attach.0.name,
            Self::ReleaseUnknown(unknown) => &unknown.0,
        }
    }

    fn is_ask(&self) -> bool {
        matches!(self, Self::Token(_, Send::Ask { .. }))
    }

    fn is_ask_of(&self, of: &Arc<TokenCell>) -> bool {
        matches!(self, Self::Token(cell, Send::Ask { .. }) if Arc::ptr_eq(cell, of))
    }
}

/// An operation of a token, as the store gets it.
pub(super) fn operation(cell: &TokenCell, send: Send) -> Operation {
    let (name, token, spec) = (cell.name.clone(), cell.token.clone(), &cell.spec);
    match send {
        Send::Ask { block } => Operation::Ask(Ask {
            name,
            token,
            mode: spec.mode(),
            ttl: spec.ttl(),
            if_busy: spec.if_busy,
            block,
            value: spec.value().cloned(),
        }),
        Send::Renew => renew(cell, spec.ttl()),
        Send::Release { rest } => Operation::Release(Release { name, token, keep: rest }),
    }
}

fn renew(cell: &TokenCell, ttl: Duration) -> Operation {
    Operation::Renew(Renew { name: cell.name.clone(), token: cell.token.clone(), ttl })
}

pub(super) struct Lane {
    state: Mutex<State>,
    batch_max: usize,
    one_at_a_time: bool,
}

#[derive(Default)]
struct State {
    queue: VecDeque<(Moment, Work)>,
    /// Operations that were sent and not answered.
    under_way: usize,
    /// A batch is being submitted, or a round of renewals gathers: what comes meanwhile is looked at afterwards.
    is_sending: bool,
    /// The client has gone: nothing is sent any more.
    is_closed: bool,
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("Lane")
            .field("to_send", &state.queue.len())
            .field("under_way", &state.under_way)
            .finish_non_exhaustive()
    }
}

impl Lane {
    pub(super) fn new(batch_max: usize, one_at_a_time: bool) -> Self {
        Self { state: Mutex::default(), batch_max: batch_max.max(1), one_at_a_time }
    }

    /// Takes an ask back that has not been sent.
    pub(super) fn withdraw(&self, cell: &Arc<TokenCell>) -> bool {
        let mut state = self.state.lock();
        let found = state.queue.iter().rposition(|(_, work)| work.is_ask_of(cell));
        found.and_then(|at| state.queue.remove(at)).is_some()
    }

    /// Whether everything that was to be sent has been answered.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.queue.is_empty() && state.under_way == 0
    }

    /// Sends nothing any more. What stands in the queue is given up.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let given_up = std::mem::take(&mut state.queue);
        drop(state);
        drop(given_up);
    }
}

impl State {
    /// The next batch, if one is due.
    fn take(&mut self, lane: &Lane, now: Moment) -> Option<Vec<Work>> {
        let is_due = if lane.one_at_a_time {
            self.under_way == 0
        } else {
            self.queue.len() * 2 >= self.under_way
        };
        let batch: Vec<_> = if is_due {
            let len = self.queue.len().min(lane.batch_max);
            self.queue.drain(..len).map(|(_, work)| work).collect()
        } else {
            self.take_overdue(lane, now)
        };
        if batch.is_empty() {
            return None;
        }
        self.under_way += batch.len();
        if self.queue.is_empty() && self.queue.capacity() > ROOM_MAX {
            self.queue = VecDeque::new();
        }
        Some(batch)
    }

    /// Releases and renewals that have stood for too long.
    fn take_overdue(&mut self, lane: &Lane, now: Moment) -> Vec<Work> {
        // In the order of their coming, so the first tells whether there are any.
        if self.queue.front().is_none_or(|(since, _)| now.since(*since) < STANDS_MAX) {
            return Vec::new();
        }
        let (mut overdue, mut rest) = (Vec::new(), VecDeque::with_capacity(self.queue.len()));
        for (since, work) in self.queue.drain(..) {
            let goes =
                !work.is_ask() && now.since(since) >= STANDS_MAX && overdue.len() < lane.batch_max;
            if goes {
                overdue.push(work);
            } else {
                rest.push_back((since, work));
            }
        }
        self.queue = rest;
        overdue
    }

    /// When what stands here is overdue.
    fn overdue_at(&self) -> Option<Moment> {
        let mut urgent = self.queue.iter().filter(|(_, work)| !work.is_ask());
        urgent.next().map(|(since, _)| *since + STANDS_MAX)
    }
}

/// The right to send: one at a time has it. Given up whatever becomes of it.
pub(super) struct Sending<'a> {
    engine: &'a Arc<Engine>,
    is_given_up: bool,
}

impl Sending<'_> {
    /// The next batch that is due; the right is given up if there is none.
    fn next(&mut self) -> Option<Vec<Work>> {
        let lane = &self.engine.lane;
        let now = self.engine.clock.now();
        let mut state = lane.state.lock();
        let batch = if state.is_closed { None } else { state.take(lane, now) };
        if batch.is_none() {
            self.is_given_up = true;
            state.is_sending = false;
            let overdue_at = state.overdue_at();
            drop(state);
            if let Some(at) = overdue_at {
                self.engine.timer.look_at_lane_at(at.max(now));
            }
        }
        batch
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        if !self.is_given_up {
            self.engine.lane.state.lock().is_sending = false;
        }
    }
}

/// A batch under way; no longer so once this is dropped.
struct UnderWay {
    engine: Weak<Engine>,
    count: usize,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.upgrade() {
            engine.lane.state.lock().under_way -= self.count;
            engine.send_due();
        }
    }
}

impl Engine {
    pub(super) fn send(self: &Arc<Self>, work: Work) {
        let now = self.clock.now();
        let mut state = self.lane.state.lock();
        if state.is_closed {
            return;
        }
        state.queue.push_back((now, work));
        let is_sending = state.is_sending;
        drop(state);
        if !is_sending {
            self.send_due();
        }
    }

    /// The right to send; `None` if another thread has it, which will look again.
    pub(super) fn begin_sending(self: &Arc<Self>) -> Option<Sending<'_>> {
        let is_sending = std::mem::replace(&mut self.lane.state.lock().is_sending, true);
        (!is_sending).then(|| Sending { engine: self, is_given_up: false })
    }

    /// Sends what is due.
    pub(super) fn send_due(self: &Arc<Self>) {
        if let Some(sending) = self.begin_sending() {
            self.send_all_due(sending);
        }
    }

    pub(super) fn send_all_due(self: &Arc<Self>, mut sending: Sending<'_>) {
        while let Some(batch) = sending.next() {
            self.submit(batch);
        }
    }

    fn submit(self: &Arc<Self>, mut batch: Vec<Work>) {
        // By name: two batches that take rows in one order never deadlock in a database. Releases of a name come before
        // asks: what a token gives back, the next one may get.
        batch.sort_by(|a, b| (a.name(), a.is_ask()).cmp(&(b.name(), b.is_ask())));
        let operations = batch.iter().map(Work::operation).collect();
        let engine = Arc::downgrade(self);
        let under_way = UnderWay { engine: engine.clone(), count: batch.len() };
        let mut batch: Vec<_> = batch.into_iter().map(Some).collect();
        // Before the store sees it: deadlines count from here.
        let sent = self.clock.now();
        let reply = Completion::new(batch.len(), move |at, answer| {
            let _under_way = &under_way;
            if let (Some(engine), Some(work)) = (engine.upgrade(), batch[at].take()) {
                engine.answered(work, sent, answer);
            }
        });
        // The store's tasks and timers are those of the engine's runtime, wherever this is called.
        let _here = self.runtime.enter();
        self.store.submit(operations, reply);
    }
}
