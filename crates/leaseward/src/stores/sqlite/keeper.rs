//! The thread beside the lock path: copies the log back, sweeps, and reads for people, over a connection of its own.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use parking_lot::Mutex;
use rusqlite::{Connection, Result as SqlResult};

use super::{
    config::Durability,
    connection,
    error::{Stage, translate},
    inspect, sweep,
    worker::{self, Worker},
};
use crate::{
    Error,
    clock::{BoxFuture, Clock},
    store::{LockView, Query},
};

/// Pages in the log from which on it is copied back. The next commit then starts the log anew, which waits for the disk
/// once: the larger this is, the rarer that is, and the longer a first process reads when it opens the file.
const LOG_PAGES: u32 = 1_000;

/// Commits between two sweeps: each leaves at most one row behind, each sweep looks at 128 names.
const SWEEP_EVERY: u32 = 64;

#[derive(Debug)]
pub(super) struct Keeper {
    worker: Worker,
    desk: Arc<Desk>,
    commits: AtomicU32,
}

/// What the thread works with.
#[derive(Debug)]
struct Desk {
    path: PathBuf,
    durability: Durability,
    clock: Arc<dyn Clock>,
    /// Opened when it is first needed: a short-lived process never does.
    conn: Mutex<Option<Connection>>,
    is_copying: AtomicBool,
    is_closed: AtomicBool,
}

impl Keeper {
    pub(super) fn new(path: PathBuf, durability: Durability, clock: Arc<dyn Clock>) -> Self {
        let desk = Desk {
            path,
            durability,
            clock,
            conn: Mutex::new(None),
            is_copying: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
        };
        Self {
            worker: Worker::new("leaseward-sqlite-keeper"),
            desk: Arc::new(desk),
            commits: AtomicU32::new(0),
        }
    }

    /// Hears of a commit and of the length of the log after it.
    pub(super) fn committed(&self, log_pages: u32) {
        let desk = &self.desk;
        if log_pages >= LOG_PAGES && !desk.is_copying.swap(true, Ordering::AcqRel) {
            self.post(|desk| {
                let copied = desk.copy_log();
                desk.is_copying.store(false, Ordering::Release);
                copied
            });
        }
        if self.commits.fetch_add(1, Ordering::Relaxed) % SWEEP_EVERY == SWEEP_EVERY - 1 {
            self.post(Desk::sweep);
        }
    }

    /// Housekeeping that fails is tried again after the next commits; what fails it fails those too, and loudly.
    fn post(&self, chore: impl FnOnce(&Desk) -> Result<(), Error> + Send + 'static) {
        let desk = self.desk.clone();
        let _ = self.worker.post(move || drop(chore(&desk)));
    }

    pub(super) fn inspect(&self, query: Query) -> BoxFuture<'static, Result<Vec<LockView>, Error>> {
        let desk = self.desk.clone();
        self.worker.call(move || {
            let now = desk.clock.now();
            desk.with(|conn| inspect::inspect(conn, &query, now))
        })
    }

    /// Has the thread compute something that needs no connection.
    pub(super) fn call<T: Send + 'static>(
        &self,
        compute: impl FnOnce() -> T + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Error>> {
        self.worker.call(move || Ok(compute()))
    }

    /// Ends the thread once it has finished what it is at, and closes the connection.
    pub(super) fn close(&self) -> BoxFuture<'static, Result<(), Error>> {
        self.desk.is_closed.store(true, Ordering::Release);
        let desk = self.desk.clone();
        let closed = self.worker.call(move || {
            *desk.conn.lock() = None;
            Ok(())
        });
        self.worker.close();
        closed
    }
}

impl Desk {
    fn with<T>(&self, mut work: impl FnMut(&mut Connection) -> SqlResult<T>) -> Result<T, Error> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(worker::closed());
        }
        let mut slot = self.conn.lock();
        let conn = match slot.take() {
            Some(conn) => conn,
            None => connection::open(&self.path, self.durability)?,
        };
        let conn = slot.insert(conn);
        connection::patiently(|| work(conn)).map_err(|e| translate(e, Stage::Before, &self.path))
    }

    /// Copies what it can of the log back into the file, in nobody's way.
    fn copy_log(&self) -> Result<(), Error> {
        self.with(|conn| {
            conn.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")?.query_row([], |_| Ok(()))
        })
    }

    fn sweep(&self) -> Result<(), Error> {
        self.with(|conn| sweep::sweep(conn, &*self.clock))
    }
}
