//! The engine: everything a user sees, written once for all stores.
//!
//! Decisions are pure ([`claim`], [`cohort`], [`breaker`], [`backoff`], [`order`]); what remains here executes them:
//! [`lane`], [`drive`] and [`direct`] send, [`enter`] lets callers in, [`answers`] takes what stores say and [`follow`] does what follows from it, [`leave`] gives back, [`keeper`] minds
//! the time. A bid's state changes only under the lock of its name's shard; nothing awaits while holding one, and
//! callers are told after it is released.

mod answers;
mod attend;
pub(crate) mod backoff;
pub(crate) mod bid;
mod breaker;
pub(crate) mod claim;
mod cohort;
mod direct;
mod drive;
mod dump;
pub(crate) mod enter;
pub(crate) mod events;
mod flight;
mod follow;
mod ghosts;
mod keeper;
pub(crate) mod lane;
mod leave;
mod meters;
pub(crate) mod order;
mod outbox;
pub(crate) mod several;
mod shutdown;
#[cfg(test)]
mod sim;
mod submit;
mod table;
mod waiting;
mod waits;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use rand::{RngExt, SeedableRng, rngs::StdRng};

use self::{
    bid::Spec,
    breaker::{Breaker, Change},
    events::Events,
    ghosts::Ghosts,
    keeper::Keeper,
    lane::Lane,
    order::{Order, OrderCheck},
    table::Table,
    waits::Waits,
};
use crate::{Error, ErrorKind, Token, clock::Clock, store::Store};

/// What an engine is made with.
pub(crate) struct Settings {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) who: Arc<str>,
    /// Replays a run; from the operating system if absent.
    pub(crate) seed: Option<u64>,
    pub(crate) cohorts: bool,
    pub(crate) deadlock_check: bool,
    pub(crate) order_check: OrderCheck,
}

pub(crate) struct Engine {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) who: Arc<str>,
    pub(crate) runtime: tokio::runtime::Handle,
    pub(crate) events: Events,
    pub(crate) order: Order,
    pub(crate) waits: Waits,
    table: Table,
    asks: Lane,
    renewals: Lane,
    keeper: Arc<Keeper>,
    breaker: Mutex<Breaker>,
    /// Whether the breaker is worth looking at.
    is_troubled: AtomicBool,
    /// Its own, from the operating system: a thread's would go on in a child that was forked, and give both the same tokens.
    random: Mutex<StdRng>,
    cohorts: bool,
    ghosts: Ghosts,
    /// Bids there are.
    live: AtomicUsize,
    /// Acquisitions so far, as far as fairness to other tasks needs to know.
    acquisitions: AtomicU32,
    next_waiter: AtomicU64,
    closed: AtomicBool,
    /// Whether it has been shut down to the end.
    is_shut_down: tokio::sync::Mutex<bool>,
}

impl Engine {
    pub(crate) fn start(store: Arc<dyn Store>, settings: Settings) -> Arc<Self> {
        let capability = store.capability();
        let keeper = Arc::new(Keeper::new());
        let random = match settings.seed {
            Some(seed) => StdRng::seed_from_u64(seed),
            None => rand::make_rng(),
        };
        let engine = Arc::new(Self {
            clock: settings.clock,
            who: settings.who,
            runtime: tokio::runtime::Handle::current(),
            events: Events::new(),
            order: Order::new(settings.order_check),
            waits: Waits::new(settings.deadlock_check),
            table: Table::new(),
            asks: Lane::new(capability.lanes, capability.batch_max, capability.shares),
            renewals: Lane::new(1, capability.batch_max, 1),
            keeper: keeper.clone(),
            breaker: Mutex::default(),
            is_troubled: AtomicBool::new(false),
            random: Mutex::new(random),
            cohorts: settings.cohorts,
            ghosts: Ghosts::default(),
            live: AtomicUsize::new(0),
            acquisitions: AtomicU32::new(0),
            next_waiter: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            is_shut_down: tokio::sync::Mutex::default(),
            store,
        });
        engine.events.guarantee(&engine.store.guarantee());
        let weak = Arc::downgrade(&engine);
        engine.runtime.spawn(keeper.run(weak.clone(), engine.clock.clone()));
        engine.store.start(Arc::new(move |push| {
            if let Some(engine) = weak.upgrade() {
                engine.on_push(push);
            }
        }));
        engine
    }

    pub(crate) fn new_token(&self) -> Token {
        Token::new(self.random.lock().random(), self.who.clone())
    }

    pub(crate) fn jitter(&self, base: Duration, cap: Duration, attempt: u32) -> Duration {
        backoff::full_jitter(base, cap, attempt, self.random.lock().random())
    }

    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::Acquire) {
            return Err(shut_down());
        }
        Ok(())
    }

    /// Whether a new ask may go to the store: not while the breaker is open, unless its caller waits for the store anyway.
    fn admit(&self, spec: &Spec) -> Result<(), Error> {
        if self.is_troubled.load(Ordering::Relaxed) && !spec.rides_out() {
            self.breaker.lock().admit(self.clock.now())?;
        }
        Ok(())
    }

    pub(crate) fn breaker_is_open(&self) -> bool {
        self.breaker.lock().is_open()
    }

    /// Takes note of how the store fares.
    fn note_health(&self, failure: Option<&Error>) {
        // A refusal is an answer too: a probe that gets one must close the breaker, or nothing ever does. The same of a part
        // that fails: who asks for other names is not to suffer from it.
        let trouble = |error: &&Error| {
            matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate)
                && !error.is_partial()
        };
        let Some(error) = failure.filter(trouble) else {
            if self.is_troubled.load(Ordering::Relaxed) {
                let mut breaker = self.breaker.lock();
                let change = breaker.succeeded();
                // Under its lock: what fails from here on is not forgotten.
                self.is_troubled.store(false, Ordering::Relaxed);
                drop(breaker);
                if change == Change::Closed {
                    self.events.breaker_closed();
                }
            }
            return;
        };
        let random = self.random.lock().random();
        let mut breaker = self.breaker.lock();
        let change = breaker.failed(error, self.clock.now(), random);
        self.is_troubled.store(true, Ordering::Relaxed);
        drop(breaker);
        if change == Change::Opened {
            self.events.breaker_opened(error);
        }
    }

    /// Has the keeper see to it that what callers drive and are not polled for is not left standing.
    fn mind_callers(&self) {
        self.keeper.mind_callers(&self.clock);
    }

    fn waiter_id(&self) -> u64 {
        self.next_waiter.fetch_add(1, Ordering::Relaxed)
    }
}

pub(crate) fn shut_down() -> Error {
    Error::new(ErrorKind::ShutDown, "this `Locks` was shut down")
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.keeper.close();
        let closing = self.store.close();
        self.runtime.spawn(closing);
    }
}
