//! A memory store behind a gate that a test opens and shuts.

use std::{fmt, mem, sync::Arc, time::Duration};

use leaseward::{
    Error, ErrorKind,
    clock::BoxFuture,
    store::{
        Batch, Break, Broken, Capability, Completion, Guarantee, LockView, Operation, Push,
        PushSink, Query, Store,
    },
    stores::memory::Memory,
};
use parking_lot::Mutex;

/// What becomes of batches.
#[derive(Clone, Copy, Debug)]
enum State {
    Open,
    /// They are turned away: nothing happens.
    Refusing(ErrorKind),
    /// They stand before the gate.
    Keeping,
}

/// What a test does to the batches of one client.
#[derive(Debug)]
pub(crate) struct Gate {
    inner: Memory,
    state: Mutex<State>,
    kept: Mutex<Vec<(Batch, Completion)>>,
    seen: Mutex<Vec<Batch>>,
    sink: Mutex<Option<Sink>>,
}

struct Sink(PushSink);

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sink")
    }
}

impl Gate {
    fn become_so(&self, state: State) -> Vec<(Batch, Completion)> {
        *self.state.lock() = state;
        mem::take(&mut self.kept.lock())
    }

    fn turn_away(kept: Vec<(Batch, Completion)>, kind: ErrorKind) {
        for (batch, reply) in kept {
            reply.answer_all(batch.iter().map(|_| Err(Error::new(kind, "the gate is shut"))));
        }
    }

    /// Batches pass. Those that stand before the gate are turned away.
    pub(crate) fn open(&self) {
        Self::turn_away(self.become_so(State::Open), ErrorKind::Unavailable);
    }

    /// Batches are turned away, those that stand before the gate too.
    pub(crate) fn refuse(&self) {
        self.refuse_as(ErrorKind::Unavailable);
    }

    pub(crate) fn refuse_as(&self, kind: ErrorKind) {
        Self::turn_away(self.become_so(State::Refusing(kind)), kind);
    }

    /// Batches stand before the gate from here on.
    pub(crate) fn keep(&self) {
        *self.state.lock() = State::Keeping;
        self.seen.lock().clear();
    }

    /// What stands before the gate is carried out, and the gate is open.
    pub(crate) fn let_go(&self) {
        for (batch, reply) in self.become_so(State::Open) {
            self.inner.submit(batch, reply);
        }
    }

    /// What stands before the gate is lost. More is kept.
    pub(crate) fn lose(&self) {
        drop(self.become_so(State::Keeping));
    }

    /// The client is told this, as if by the store.
    pub(crate) fn push(&self, push: Push) {
        let sink = self.sink.lock().as_ref().map(|sink| sink.0.clone());
        sink.expect("it has started")(push);
    }

    /// The sizes of the batches that came since the gate keeps them.
    pub(crate) fn sizes(&self) -> Vec<usize> {
        self.seen.lock().iter().map(Vec::len).collect()
    }

    /// What has come since the gate keeps it.
    pub(crate) fn seen(&self) -> Vec<Operation> {
        self.seen.lock().iter().flatten().cloned().collect()
    }
}

/// One client's way to the memory store.
#[derive(Debug)]
pub(crate) struct Gated {
    gate: Arc<Gate>,
    capability: Capability,
}

impl Gated {
    pub(crate) fn new(inner: Memory) -> (Arc<Self>, Arc<Gate>) {
        Self::with(inner, false)
    }

    pub(crate) fn with(inner: Memory, one_batch_at_a_time: bool) -> (Arc<Self>, Arc<Gate>) {
        let mut capability = inner.capability().clone();
        capability.one_batch_at_a_time = one_batch_at_a_time;
        let (kept, seen, sink) = (Mutex::default(), Mutex::default(), Mutex::default());
        let gate = Arc::new(Gate { inner, state: Mutex::new(State::Open), kept, seen, sink });
        (Arc::new(Self { gate: gate.clone(), capability }), gate)
    }
}

impl Store for Gated {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    fn guarantee(&self) -> Guarantee {
        self.gate.inner.guarantee()
    }

    fn location(&self) -> String {
        "memory: behind a gate".into()
    }

    fn start(&self, sink: PushSink) {
        *self.gate.sink.lock() = Some(Sink(sink.clone()));
        self.gate.inner.start(sink);
    }

    fn submit(&self, batch: Batch, reply: Completion) {
        self.gate.seen.lock().push(batch.clone());
        let state = *self.gate.state.lock();
        match state {
            State::Open => self.gate.inner.submit(batch, reply),
            State::Refusing(kind) => Gate::turn_away(vec![(batch, reply)], kind),
            State::Keeping => self.gate.kept.lock().push((batch, reply)),
        }
    }

    fn inspect(&self, query: Query) -> BoxFuture<'static, Result<Vec<LockView>, Error>> {
        self.gate.inner.inspect(query)
    }

    fn break_lease(&self, order: Break) -> BoxFuture<'static, Result<Broken, Error>> {
        self.gate.inner.break_lease(order)
    }

    fn ping(&self) -> BoxFuture<'static, Result<Duration, Error>> {
        self.gate.inner.ping()
    }
}
