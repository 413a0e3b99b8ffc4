//! Waking waiters whose lease was given to them by another process.
//!
//! The process that releases writes the next waiter into the tables and marks the lease as handed to its client. While
//! this client has places in a queue, a thread watches the write-ahead log, and reads what was marked for it when
//! somebody committed. The read is made by the thread that was woken: no further hop. Pushes may come twice or too late;
//! the fence in them tells the engine whether they count.

mod bell;

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::{Arc, OnceLock},
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use rusqlite::{Connection, Result as SqlResult, params};

pub(super) use self::bell::Bell;
use super::{
    config::Durability,
    connection,
    row::{self, Hold, hold_columns},
};
use crate::{
    Fence, Token,
    clock::{Clock, Moment},
    store::{Evidence, Grant, Push, PushSink, timing},
};

/// The net under the watch: how often the file is looked at while somebody waits and nothing is heard.
const NET: Duration = Duration::from_millis(50);

/// How long the watch stays after the last place was given up, for whoever waits again and again.
const LINGER: Duration = Duration::from_millis(100);

/// A commit becomes visible only after the last write to the log, which is what the watch reports: look again after
/// these pauses.
const AGAIN: [Duration; 6] = [
    Duration::from_micros(30),
    Duration::from_micros(60),
    Duration::from_micros(120),
    Duration::from_micros(250),
    Duration::from_micros(500),
    Duration::from_millis(2),
];

/// After so many commits in a row that were not about us, looks are spaced out, so that a busy file does not keep every
/// waiting process busy.
const FRUITLESS_MAX: u32 = 16;
const SPACING: Duration = Duration::from_micros(200);

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
        let until = self.shared.clock.now() + place_ttl + AFTERLIFE;
        let mut state = self.shared.state.lock();
        if state.is_closed {
            return;
        }
        let was_idle = state.waiting.is_empty();
        state.waiting.insert(token.random(), until);
        if let Some(bell) = &state.bell {
            if was_idle {
                bell.ring();
            }
            return;
        }
        // Without descriptors or threads left there is no watch: waiters are then served when they ask again.
        let Ok(bell) = Bell::new().map(Arc::new) else { return };
        let (shared, sink, heard) = (self.shared.clone(), sink.clone(), bell.clone());
        let thread = thread::Builder::new().name("leaseward-sqlite-wake".into());
        state.bell = thread.spawn(move || shared.watch(&heard, &sink)).is_ok().then_some(bell);
    }

    /// Notes that a token no longer waits.
    pub(super) fn forget(&self, token: &Token) {
        self.shared.state.lock().waiting.remove(&token.random());
    }

    /// Ends the watch.
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

/// Whether there is something to watch for.
enum Need {
    Somebody,
    Nobody,
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
        if state.waiting.is_empty() { Need::Nobody } else { Need::Somebody }
    }

    fn watch(&self, bell: &Bell, sink: &Sink) {
        let mut mailbox = None;
        loop {
            match self.need() {
                Need::Closed => return,
                Need::Nobody => bell.wait(),
                Need::Somebody => {
                    bell.watch(&super::diagnose::beside(&self.path, "-wal"));
                    self.attend(bell, sink, &mut mailbox);
                    bell.unwatch();
                }
            }
        }
    }

    /// Looks whenever something is heard, until nobody has waited for a while.
    fn attend(&self, bell: &Bell, sink: &Sink, mailbox: &mut Option<Mailbox>) {
        let (mut step, mut fruitless, mut idle_since) = (0, 0, None);
        loop {
            match self.need() {
                Need::Closed => return,
                Need::Nobody => {
                    if idle_since.get_or_insert_with(Instant::now).elapsed() >= LINGER {
                        return;
                    }
                }
                Need::Somebody => {
                    idle_since = None;
                    let pushes = self.look(mailbox);
                    fruitless = if pushes.is_empty() { fruitless + 1 } else { 0 };
                    pushes.into_iter().for_each(|push| (sink.0)(push));
                }
            }
            if bell.hear(AGAIN.get(step).copied().unwrap_or(NET)) {
                step = 0;
                if fruitless > FRUITLESS_MAX {
                    thread::sleep(SPACING);
                }
            } else {
                step += 1;
                fruitless = 0;
            }
        }
    }

    /// What was handed to this client and not yet told. A file that cannot be read now is looked at again soon.
    fn look(&self, mailbox: &mut Option<Mailbox>) -> Vec<Push> {
        if mailbox.is_none() {
            *mailbox = connection::open(&self.path, Durability::Normal).ok().map(Mailbox::new);
        }
        mailbox.as_mut().and_then(|mailbox| mailbox.read(self.client).ok()).unwrap_or_default()
    }
}

/// The reading connection, and what it has seen.
#[derive(Debug)]
struct Mailbox {
    conn: Connection,
    version: Option<i64>,
    told: HashSet<Fence>,
}

impl Mailbox {
    fn new(conn: Connection) -> Self {
        Self { conn, version: None, told: HashSet::new() }
    }

    fn read(&mut self, client: i64) -> SqlResult<Vec<Push>> {
        let version =
            self.conn.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
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
        let mut statement = self.conn.prepare_cached(SQL)?;
        let mut rows = statement.query(params![client])?;
        while let Some(row) = rows.next()? {
            let hold = Hold::read(row, 2)?;
            handed.insert(hold.block.first);
            if !self.told.contains(&hold.block.first) {
                let grant = Grant {
                    blocks: smallvec::smallvec![hold.block],
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
