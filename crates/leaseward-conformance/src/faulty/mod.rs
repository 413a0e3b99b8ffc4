//! A store behind a bad line: requests, replies and pushes are lost, repeated or held back, by script or by seed.
//!
//! It is a [`Store`] around another, so every store suffers the same faults in the same way. What is lost is reported as
//! the seam asks for it: *unavailable* if nothing happened, *indeterminate* if it may have. It breaks the line only;
//! what the store itself does is untouched.

mod fate;
mod gate;
mod store;

use std::{fmt, sync::Arc};

use leaseward::{
    Token,
    clock::Clock,
    store::{Push, PushSink, Store},
};
use parking_lot::Mutex;
use tokio::sync::watch;

use self::{fate::Script, gate::Gate};

pub use self::fate::{Fate, Kind, PushFate};

/// A store behind a bad line.
pub struct Faulty {
    inner: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    line: Arc<Line>,
}

/// What is between the client and the store.
struct Line {
    script: Mutex<Script>,
    pushes: Mutex<Pushes>,
    gate: Gate,
    seen: watch::Sender<Seen>,
    last_asked: Mutex<Option<Token>>,
}

#[derive(Default)]
struct Pushes {
    fate: PushFate,
    held: Vec<Push>,
    sink: Option<PushSink>,
}

/// What has come by.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    asks: usize,
    renewals: usize,
    releases: usize,
}

impl Seen {
    fn of(&self, kind: Kind) -> usize {
        match kind {
            Kind::Ask => self.asks,
            Kind::Renew => self.renewals,
            Kind::Release => self.releases,
        }
    }
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faulty").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Faulty {
    /// A good line, until told otherwise.
    pub fn new(inner: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        let line = Line {
            script: Mutex::default(),
            pushes: Mutex::default(),
            gate: Gate::new(),
            seen: watch::Sender::new(Seen::default()),
            last_asked: Mutex::default(),
        };
        Self { inner, clock, line: Arc::new(line) }
    }

    /// The next operations of a kind meet these fates, one each; then all is well again.
    pub fn next(&self, kind: Kind, fates: impl IntoIterator<Item = Fate>) {
        self.line.script.lock().plan(kind, fates);
    }

    /// From now on every operation without a planned fate meets this one.
    pub fn always(&self, fate: Fate) {
        self.line.script.lock().otherwise(fate);
    }

    /// From now on fates and pushes are decided by this seed.
    pub fn chaos(&self, seed: u64) {
        self.line.script.lock().chaos(seed);
    }

    /// Nothing passes any more, in either direction.
    pub fn cut(&self) {
        self.always(Fate::Refuse);
        self.pushes(PushFate::Drop);
    }

    /// Everything passes again.
    pub fn heal(&self) {
        self.line.script.lock().heal();
        self.pushes(PushFate::Through);
    }

    /// From now on pushes meet this fate.
    pub fn pushes(&self, fate: PushFate) {
        self.line.pushes.lock().fate = fate;
    }

    /// Delivers the pushes held back so far, oldest first.
    pub fn deliver_pushes(&self) {
        let held = std::mem::take(&mut self.line.pushes.lock().held);
        for push in held {
            self.push(push);
        }
    }

    /// Tells the client something the store never said.
    pub fn push(&self, push: Push) {
        let sink = self.line.pushes.lock().sink.clone();
        sink.expect("the client has started")(push);
    }

    /// Waits until so many batches in all have come to the gate.
    pub async fn held_back(&self, count: usize) {
        self.line.gate.reached(count).await;
    }

    /// Lets through what waits at the gate.
    pub fn let_go(&self) {
        self.line.gate.open();
    }

    /// How many operations of a kind the client has sent.
    pub fn seen(&self, kind: Kind) -> usize {
        self.line.seen.borrow().of(kind)
    }

    /// Waits until the client has sent so many.
    pub async fn sent(&self, kind: Kind, count: usize) {
        let mut seen = self.line.seen.subscribe();
        seen.wait_for(|seen| seen.of(kind) >= count).await.expect("the line outlives its users");
    }

    /// With which token the client last asked.
    pub fn last_asked(&self) -> Token {
        self.line.last_asked.lock().clone().expect("something was asked")
    }
}
