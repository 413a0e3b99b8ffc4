//! The thread beside the lock path: copies the log back, sweeps, and reads for people, over a connection of its own.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
};

use parking_lot::Mutex;
use rusqlite::{Connection, Result as SqlResult};

use super::{
    config::Durability,
    connection::{self, Opened},
    error::{Stage, translate},
    inspect, log,
    sweep::{self, Swept},
    worker::Worker,
};
use crate::{
    Error,
    clock::{BoxFuture, Clock},
    store::{LockView, Query},
};

/// Pages in the log from which on it is copied back: 16 MiB. Copying waits for the disk and keeps
/// writers out at its end: the larger this is, the rarer that is.
const LOG_PAGES: u32 = 8_000;

/// Pages in the log from which on it is emptied at the end: reading so many takes a millisecond.
const LOG_PAGES_AT_END: u32 = 1_000;

/// Commits between two looks at the length of the log.
const LOOK_EVERY: u32 = 16;

/// How often a checkpoint tries to keep writers out, 50 µs apart: for about a second.
const TRIES_MAX: i32 = 10_000;

/// Commits between two sweeps.
const SWEEP_EVERY: u32 = 1_024;

/// A sweep goes on while it finds something, so that it keeps up with whatever is left behind; but only so often, because
/// others want the thread too.
const SWEEP_TURNS_MAX: u32 = 64;

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
    conn: Mutex<Option<Opened>>,
    is_copying: AtomicBool,
}

impl Keeper {
    pub(super) fn new(path: PathBuf, durability: Durability, clock: Arc<dyn Clock>) -> Self {
        let desk = Desk {
            path,
            durability,
            clock,
            conn: Mutex::new(None),
            is_copying: AtomicBool::new(false),
        };
        Self {
            worker: Worker::new("leaseward-sqlite-keeper"),
            desk: Arc::new(desk),
            commits: AtomicU32::new(0),
        }
    }

    /// Hears of a commit.
    pub(super) fn committed(&self) {
        let (desk, commits) = (&self.desk, self.commits.fetch_add(1, Ordering::Relaxed));
        if commits % LOOK_EVERY == LOOK_EVERY - 1
            && log::has_pages(&desk.path, LOG_PAGES)
            && !desk.is_copying.swap(true, Ordering::AcqRel)
        {
            self.post(|desk| {
                let copied = desk.copy_log();
                desk.is_copying.store(false, Ordering::Release);
                copied
            });
        }
        if commits % SWEEP_EVERY == SWEEP_EVERY - 1 {
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
        let is_long = log::has_pages(&self.desk.path, LOG_PAGES_AT_END);
        if !is_long && !self.worker.is_running() {
            self.worker.close();
            return Box::pin(std::future::ready(Ok(())));
        }
        let desk = self.desk.clone();
        let closed = self.worker.call(move || {
            let emptied = if is_long { desk.empty_log() } else { Ok(()) };
            *desk.conn.lock() = None;
            emptied
        });
        self.worker.close();
        closed
    }
}

impl Desk {
    fn open(&self) -> Result<Opened, Error> {
        let mut opened = connection::open(&self.path, self.durability)?;
        let conn = &mut opened.conn;
        conn.busy_handler(Some(wait_for_writers))
            .map_err(|e| translate(e, Stage::Before, &self.path))?;
        Ok(opened)
    }

    fn with<T>(&self, mut work: impl FnMut(&mut Connection) -> SqlResult<T>) -> Result<T, Error> {
        let mut slot = self.conn.lock();
        let opened = match slot.take().filter(Opened::is_current) {
            Some(opened) => opened,
            None => self.open()?,
        };
        let conn = &mut slot.insert(opened).conn;
        connection::patiently(&self.path, || work(conn))
            .map_err(|e| translate(e, Stage::Before, &self.path))
    }

    /// Copies the log back and has the next commit start it anew.
    ///
    /// Most of it without a lock. But while somebody commits all the time that never catches up, and the log would grow
    /// without end: so the rest is copied under the write lock, which keeps writers out for two waits for the disk.
    fn copy_log(&self) -> Result<(), Error> {
        self.with(|conn| checkpoint(conn, "PRAGMA wal_checkpoint(PASSIVE)"))?;
        self.with(|conn| checkpoint(conn, "PRAGMA wal_checkpoint(RESTART)"))?;
        // Whoever commits first waits for the disk once more: this thread, rather than a caller.
        self.with(|conn| conn.execute("UPDATE meta SET swept = swept", []).map(drop))
    }

    /// Empties a log that the next process would have to read when it opens the file, unless somebody else is there.
    fn empty_log(&self) -> Result<(), Error> {
        self.with(|conn| checkpoint(conn, "PRAGMA wal_checkpoint(TRUNCATE)"))
    }

    fn sweep(&self) -> Result<(), Error> {
        for _ in 0..SWEEP_TURNS_MAX {
            if self.with(|conn| sweep::sweep(conn, &*self.clock))? == Swept::Clean {
                break;
            }
        }
        Ok(())
    }
}

/// That others were in the way is not an error: the log is as long as before, and the next commit says so.
fn checkpoint(conn: &Connection, sql: &str) -> SqlResult<()> {
    conn.prepare_cached(sql)?.query_row([], |_| Ok(()))
}

/// A checkpoint cannot be tried again from outside without waiting for the disk again, so SQLite itself has to wait.
fn wait_for_writers(tries: i32) -> bool {
    thread::sleep(connection::PAUSE_MIN);
    tries < TRIES_MAX
}
