//! Waking waiters whose lease was given to them by another process.
//!
//! The process that releases writes the next waiter into the tables, marks the lease as handed to its client, and calls that
//! client alone once it has committed. While this client has places in a queue, a thread waits for such calls, and reads
//! what was marked for it. The read is made by the thread that was woken: no further hop. A call may be lost, so the thread
//! also looks by itself, the more seldom the longer it has waited. Pushes may come twice or too late; the fence in them tells
//! the engine whether they count.

mod bell;

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::{Arc, OnceLock},
    thread,
    time::Duration,
};

use parking_lot::Mutex;
use rusqlite::{Result as SqlResult, params};

pub(super) use self::bell::{Bell, call};
use super::{
    config::Durability,
    connection::{self, Opened},
    row::{self, Hold, hold_columns},
};
use crate::{
    Fence, Token,
    clock::{Clock, Moment},
    store::{Evidence, Grant, Push, PushSink, timing},
};

/// The net under the calls: a look after this share of the time waited so far, so that a call that is lost costs little of
/// what the wait costs anyway, and those who wait for long cost nothing.
const LOOK_SHARE: u32 = 16;
const LOOK_MIN: Duration = Duration::from_millis(2);
const LOOK_MAX: Duration = Duration::from_secs(2);

/// A place that was not asked for again is gone by then, and so is a lease handed to it.
const AFTERLIFE: Duration = timing::HANDED_MAX;

#[derive(Debug)]
pub(super) struct Wake {
    shared: Arc<Shared>,
    sink: OnceLock<Sink>,
}

#[derive(Clone)]
struct Sink(PushSink);

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sink")
    }
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    client: i64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Tokens that wait, and until when they may still be handed something without asking again.
    waiting: HashMap<u128, Moment>,
    /// When the last of them began to.
    since: Option<Moment>,
    bell: Option<Arc<Bell>>,
    is_closed: bool,
}

impl Wake {
    pub(super) fn new(path: PathBuf, clock: Arc<dyn Clock>, client: i64) -> Self {
        let shared = Arc::new(Shared { path, clock, client, state: Mutex::default() });
        Self { shared, sink: OnceLock::new() }
    }

    pub(super) fn start(&self, sink: PushSink) {
        // Called once, says the seam; a second sink would be a second engine.
        let _ = self.sink.set(Sink(sink));
    }

    /// Tells the engine, with no lock held.
    pub(super) fn push(&self, push: Push) {
        if let Some(sink) = self.sink.get() {
            (sink.0)(push);
        }
    }

    /// Whether nobody waits, as far as is known.
    pub(super) fn is_idle(&self) -> bool {
        self.shared.state.lock().waiting.is_empty()
    }

    /// Notes that a token waits.
    pub(super) fn expect(&self, token: &Token, place_ttl: Duration) {
        let Some(sink) = self.sink.get() else { return };
        let now = self.shared.clock.now();
        let mut state = self.shared.state.lock();
        if state.is_closed {
            return;
        }
        let was_idle = state.waiting.is_empty();
        if state.waiting.insert(token.random(), now + place_ttl + AFTERLIFE).is_none() {
            state.since = Some(now);
        }
        if let Some(bell) = &state.bell {
            if was_idle {
                bell.ring();
            }
            return;
        }
        // Without descriptors or threads left nobody hears calls: waiters are then served when they ask again.
        let Ok(bell) = Bell::new(self.shared.client).map(Arc::new) else { return };
        let (shared, sink, heard) = (self.shared.clone(), sink.clone(), bell.clone());
        let thread = thread::Builder::new().name("leaseward-sqlite-wake".into());
        state.bell = thread.spawn(move || shared.attend(&heard, &sink)).is_ok().then_some(bell);
    }

    /// Notes that a token no longer waits.
    pub(super) fn forget(&self, token: &Token) {
        self.shared.state.lock().waiting.remove(&token.random());
    }

    /// Ends the thread.
    pub(super) fn close(&self) {
        let mut state = self.shared.state.lock();
        state.is_closed = true;
        if let Some(bell) = state.bell.take() {
            bell.ring();
        }
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        self.close();
    }
}

/// What the thread has to do.
enum Need {
    /// To look, and again after this long at the latest.
    Look(Duration),
    Nothing,
    Closed,
}

impl Shared {
    fn need(&self) -> Need {
        let mut state = self.state.lock();
        if state.is_closed {
            return Need::Closed;
        }
        let now = self.clock.now();
        state.waiting.retain(|_, until| *until > now);
        match state.since {
            Some(since) if !state.waiting.is_empty() => {
                Need::Look((now.since(since) / LOOK_SHARE).clamp(LOOK_MIN, LOOK_MAX))
            }
            _ => Need::Nothing,
        }
    }

    fn attend(&self, bell: &Bell, sink: &Sink) {
        let mut mailbox = None;
        loop {
            match self.need() {
                Need::Closed => return,
                Need::Nothing => bell.hear(None),
                Need::Look(pause) => {
                    let pushes = self.look(&mut mailbox);
                    let pause = if pushes.is_none() { LOOK_MIN } else { pause };
                    pushes.into_iter().flatten().for_each(|push| (sink.0)(push));
                    bell.hear(Some(pause));
                }
            }
        }
    }

    /// What was handed to this client and not yet told; `None` if the file cannot be read now.
    fn look(&self, mailbox: &mut Option<Mailbox>) -> Option<Vec<Push>> {
        if !mailbox.as_ref().is_some_and(|mailbox| mailbox.opened.is_current()) {
            *mailbox = connection::open(&self.path, Durability::Normal).ok().map(Mailbox::new);
        }
        mailbox.as_mut()?.read(self.client).ok()
    }
}

/// The reading connection, and what it has seen.
#[derive(Debug)]
struct Mailbox {
    opened: Opened,
    version: Option<i64>,
    told: HashSet<Fence>,
}

impl Mailbox {
    fn new(opened: Opened) -> Self {
        Self { opened, version: None, told: HashSet::new() }
    }

    fn read(&mut self, client: i64) -> SqlResult<Vec<Push>> {
        let conn = &self.opened.conn;
        let version =
            conn.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
        if self.version == Some(version) {
            return Ok(Vec::new());
        }
        const SQL: &str = concat!(
            "SELECT h.name, (SELECT count(*) FROM places p WHERE p.name = h.name), ",
            hold_columns!(),
            " FROM holds h WHERE h.handed = 1 AND h.client = ?1"
        );
        let mut handed = HashSet::new();
        let mut pushes = Vec::new();
        let mut statement = conn.prepare_cached(SQL)?;
        let mut rows = statement.query(params![client])?;
        while let Some(row) = rows.next()? {
            let hold = Hold::read(row, 2)?;
            handed.insert(hold.block.first);
            if !self.told.contains(&hold.block.first) {
                let grant = Grant {
                    block: hold.block,
                    slot: hold.slot,
                    ttl: timing::handed_ttl(Duration::from_millis(hold.ttl_ms.into())),
                    evidence: Evidence::LargerFence,
                    waiters: row.get(1)?,
                };
                pushes.push(Push::Granted { name: row::name(row, 0)?, token: hold.token, grant });
            }
        }
        // Only now: after a failure all of it is read again.
        self.told = handed;
        self.version = Some(version);
        Ok(pushes)
    }
}
