//! The engine: everything a user sees, written once for all stores.
//!
//! Decisions are pure: [`acquisition`] makes them for one token, [`names`] brings them to the tokens of a name, [`breaker`],
//! [`backoff`] and [`order`] make those that are about no token. What remains here executes them: [`table`] holds the lock
//! under which they are made and carries out what follows, [`lane`] sends, [`timer`] wakes, [`acquire`] lets callers in,
//! [`release`] and [`shutdown`] give leases back. Nothing awaits while holding a lock, and callers are told when it is free.

pub(crate) mod acquire;
pub(crate) mod acquisition;
pub(crate) mod backoff;
mod breaker;
pub(crate) mod caller;
pub(crate) mod cell;
mod dump;
pub(crate) mod events;
mod lane;
mod meters;
mod names;
pub(crate) mod order;
mod release;
mod shutdown;
#[cfg(test)]
mod sim;
pub(crate) mod spec;
mod table;
mod timer;
mod waits;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use rand::{RngExt, SeedableRng, rngs::StdRng};

use self::{
    acquisition::{Event, Report, Setting},
    breaker::{Breaker, Change},
    caller::Holder,
    cell::TokenCell,
    events::{Events, Hold},
    lane::{Lane, Work},
    order::{Order, OrderCheck},
    spec::Spec,
    table::Table,
    timer::Timer,
    waits::Waits,
};
use crate::{
    Error, ErrorKind, LostReason, Name, Token,
    clock::{Clock, Moment},
    guard::Danger,
    store::{Answer, Push, Store, Waiting},
};

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
    waits: Waits,
    table: Table,
    lane: Lane,
    timer: Arc<Timer>,
    setting: Setting,
    breaker: Mutex<Breaker>,
    /// Whether the breaker is worth looking at.
    is_troubled: AtomicBool,
    /// Its own, from the operating system: a thread's would go on in a child that was forked, and give both the same tokens.
    random: Mutex<StdRng>,
    /// Acquisitions so far, as far as fairness to other tasks needs to know.
    acquisitions: AtomicU32,
    next_id: AtomicU64,
    closed: AtomicBool,
    /// Whether it has been shut down to the end.
    is_shut_down: tokio::sync::Mutex<bool>,
}

impl Engine {
    pub(crate) fn start(store: Arc<dyn Store>, settings: Settings) -> Arc<Self> {
        let capability = store.capability();
        let timer = Arc::new(Timer::new());
        let random = match settings.seed {
            Some(seed) => StdRng::seed_from_u64(seed),
            None => rand::make_rng(),
        };
        let setting = Setting {
            cohorts: settings.cohorts,
            blocks: capability.blocks,
            queues: capability.waiting != Waiting::AskAgain,
        };
        let engine = Arc::new(Self {
            clock: settings.clock,
            who: settings.who,
            runtime: tokio::runtime::Handle::current(),
            events: Events::new(),
            order: Order::new(settings.order_check),
            waits: Waits::new(settings.deadlock_check),
            table: Table::new(),
            lane: Lane::new(capability.batch_max, capability.one_batch_at_a_time),
            timer: timer.clone(),
            setting,
            breaker: Mutex::default(),
            is_troubled: AtomicBool::new(false),
            random: Mutex::new(random),
            acquisitions: AtomicU32::new(0),
            next_id: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            is_shut_down: tokio::sync::Mutex::default(),
            store,
        });
        engine.events.guarantee(&engine.store.guarantee());
        let weak = Arc::downgrade(&engine);
        engine.runtime.spawn(timer.run(weak.clone(), engine.clock.clone()));
        engine.store.start(Arc::new(move |push| {
            if let Some(engine) = weak.upgrade() {
                engine.on_push(push);
            }
        }));
        engine
    }

    fn new_token(&self) -> Token {
        Token::new(self.random.lock().random(), self.who.clone())
    }

    /// Between 0 and 1.
    fn random(&self) -> f64 {
        self.random.lock().random()
    }

    pub(crate) fn jitter(&self, base: Duration, cap: Duration, attempt: u32) -> Duration {
        backoff::full_jitter(base, cap, attempt, self.random())
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
        let random = self.random();
        let mut breaker = self.breaker.lock();
        let change = breaker.failed(error, self.clock.now(), random);
        self.is_troubled.store(true, Ordering::Relaxed);
        drop(breaker);
        if change == Change::Opened {
            self.events.breaker_opened(error);
        }
    }

    fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// The store answered an operation that was sent at this moment.
    fn answered(self: &Arc<Self>, work: Work, sent: Moment, answer: Answer) {
        self.note_health(answer.as_ref().err());
        match work {
            Work::Token(cell, send) => {
                self.visit(cell.hash, |visit| visit.answered(&cell, send, sent, answer));
            }
            Work::Extend(extend) => {
                let (cell, _, tell) = *extend;
                let copy = answer.as_ref().map(Clone::clone).map_err(Error::duplicate);
                self.on(&cell, Event::Renewed { sent, answer: copy });
                let _ = tell.send((sent, answer));
            }
            Work::Attach(attach) => drop(attach.1.send((sent, answer))),
            Work::ReleaseUnknown(_) => {}
        }
    }

    /// The store tells something without being asked.
    fn on_push(self: &Arc<Self>, push: Push) {
        match push {
            Push::Granted { name, token, grant } => {
                let key = (self.table.hash(&name), &name);
                self.visit(key.0, |visit| visit.pushed(key, &token, grant));
            }
            Push::Woken { name } => {
                for cell in self.tokens_of(&name) {
                    self.on(&cell, Event::LookAgain);
                }
            }
            Push::Lost { name, token, reason } => {
                for cell in self.tokens_of(&name) {
                    if cell.token == token {
                        self.on(&cell, Event::Lost(reason));
                    }
                }
            }
            Push::SessionLost => {
                for cell in self.table.select(|_| true) {
                    self.on(&cell, Event::Lost(LostReason::SessionEnded));
                }
            }
        }
    }

    fn tokens_of(&self, name: &Name) -> Vec<Arc<TokenCell>> {
        let hash = self.table.hash(name);
        let shard = self.table.lock(hash);
        shard.names.on(hash, name).iter().map(|entry| entry.cell.clone()).collect()
    }

    fn report(&self, cell: &TokenCell, report: Report, holder: Option<&Holder>) {
        let origin = holder.and_then(|holder| holder.origin.as_deref());
        match report {
            Report::Renewed => self.events.renewed(cell, origin),
            Report::RenewalFailed { error, is_first } => {
                self.events.renewal_failed(cell, &error, is_first, origin);
            }
            Report::Retried => self.events.retried(),
            Report::Lost { reason, fence, held } => {
                self.order.released(holder.and_then(|holder| holder.owner.as_ref()), &cell.name);
                self.events.lost(
                    cell,
                    reason,
                    &Hold { fence, held, origin: holder.and_then(|holder| holder.origin.clone()) },
                );
            }
            Report::Danger(remaining) => {
                let extras = cell.spec.extras.as_ref();
                if let Some(callback) = extras.and_then(|extras| extras.on_danger.clone()) {
                    let danger = Danger { name: cell.name.clone(), remaining };
                    // User code: on a task of its own.
                    self.runtime.spawn(async move { callback(danger) });
                }
            }
        }
    }
}

pub(crate) fn shut_down() -> Error {
    Error::new(ErrorKind::ShutDown, "this `Locks` was shut down")
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.timer.close();
        let closing = self.store.close();
        self.runtime.spawn(closing);
    }
}
