//! A store whose requests can be refused or kept under way at will.

use std::{sync::Arc, time::Duration};

use leaseward::{
    Error, ErrorKind,
    clock::BoxFuture,
    store::{
        Batch, Break, Broken, Capability, Completion, Guarantee, LockView, PushSink, Query, Store,
        answer_later,
    },
    stores::memory::Memory,
};
use parking_lot::Mutex;
use tokio::sync::Notify;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Refusing(ErrorKind),
    Keeping,
}

#[derive(Debug)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Notify,
}

impl Gate {
    fn set(&self, state: State) {
        *self.state.lock() = state;
        self.changed.notify_waiters();
    }

    /// Requests are carried out.
    pub(crate) fn open(&self) {
        self.set(State::Open);
    }

    /// Requests fail, and so do those that were kept.
    pub(crate) fn refuse(&self) {
        self.refuse_as(ErrorKind::Unavailable);
    }

    pub(crate) fn refuse_as(&self, kind: ErrorKind) {
        self.set(State::Refusing(kind));
    }

    /// Requests stay under way until the gate changes, and fail then.
    pub(crate) fn keep(&self) {
        self.set(State::Keeping);
    }
}

#[derive(Debug)]
pub(crate) struct Gated {
    inner: Arc<Memory>,
    gate: Arc<Gate>,
    capability: Capability,
}

impl Gated {
    pub(crate) fn new(inner: Memory) -> (Arc<Self>, Arc<Gate>) {
        let gate = Arc::new(Gate { state: Mutex::new(State::Open), changed: Notify::new() });
        let capability = inner.capability().clone();
        (Arc::new(Self { inner: Arc::new(inner), gate: gate.clone(), capability }), gate)
    }
}

impl Store for Gated {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    fn guarantee(&self) -> Guarantee {
        self.inner.guarantee()
    }

    fn location(&self) -> String {
        "memory: behind a gate".into()
    }

    fn start(&self, sink: PushSink) {
        self.inner.start(sink);
    }

    fn submit(&self, batch: Batch, reply: Completion) {
        let (inner, gate) = (self.inner.clone(), self.gate.clone());
        let answers = async move {
            let changed = gate.changed.notified();
            let state = *gate.state.lock();
            let kind = match state {
                State::Open => return inner.carry_out(batch).await,
                State::Refusing(kind) => kind,
                State::Keeping => {
                    changed.await;
                    ErrorKind::Unavailable
                }
            };
            let refused = |_| Err(Error::new(kind, "the gate is shut"));
            batch.iter().map(refused).collect()
        };
        answer_later(answers, reply);
    }

    fn inspect(&self, query: Query) -> BoxFuture<'static, Result<Vec<LockView>, Error>> {
        self.inner.inspect(query)
    }

    fn break_lease(&self, order: Break) -> BoxFuture<'static, Result<Broken, Error>> {
        self.inner.break_lease(order)
    }

    fn ping(&self) -> BoxFuture<'static, Result<Duration, Error>> {
        self.inner.ping()
    }
}
