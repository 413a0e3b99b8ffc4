//! The connection that writes: one transaction a turn.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use rusqlite::{Connection, Error as SqlError, Result as SqlResult};

use super::{
    connection::patiently,
    error::{self, Stage, translate},
    turn::{Now, Turn},
};
use crate::{Error, ErrorKind, Fence, clock::Clock, store::Push};

/// What to do while another process writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IfWriting {
    /// Come back with [`Failure::Busy`]: the caller's thread must not sleep.
    Return,
    /// Wait, with an end.
    Wait,
}

/// Why a turn left nothing behind, or may have.
#[derive(Debug)]
pub(super) enum Failure {
    /// Another process writes; nothing was begun.
    Busy,
    /// It failed.
    Failed(Error),
}

impl Failure {
    pub(super) fn into_error(self) -> Error {
        match self {
            Self::Busy => Error::new(ErrorKind::Unavailable, "the store's file is busy"),
            Self::Failed(error) => error,
        }
    }
}

/// What a committed turn did.
#[derive(Debug)]
pub(super) struct Done<T> {
    pub(super) answer: T,
    /// To be told now that it is committed.
    pub(super) pushes: Vec<Push>,
    /// The newest fence, if the turn learned it.
    pub(super) last_fence: Option<Fence>,
}

pub(super) struct Writer {
    conn: Connection,
    path: PathBuf,
    clock: Arc<dyn Clock>,
    client: i64,
}

impl Writer {
    /// Writes over this connection for a client; the length of the log, in pages, goes to `log_pages` at each commit.
    pub(super) fn new(
        mut conn: Connection,
        path: PathBuf,
        clock: Arc<dyn Clock>,
        client: i64,
        log_pages: Arc<AtomicU32>,
    ) -> Result<Self, Error> {
        let hook = move |_: &mut rusqlite::hooks::Wal, pages: std::ffi::c_int| {
            log_pages.store(u32::try_from(pages).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        };
        conn.wal_hook(Some(hook)).map_err(|e| translate(e, Stage::Before, &path))?;
        Ok(Self { conn, path, clock, client })
    }

    /// Carries out one transaction.
    pub(super) fn turn<T>(
        &mut self,
        if_writing: IfWriting,
        work: impl FnOnce(&mut Turn<'_>) -> SqlResult<T>,
    ) -> Result<Done<T>, Failure> {
        let begun = match if_writing {
            IfWriting::Return => self.begin(),
            IfWriting::Wait => patiently(|| self.begin()),
        };
        match begun {
            Ok(()) => {}
            Err(e) if if_writing == IfWriting::Return && error::is_busy(&e) => {
                return Err(Failure::Busy);
            }
            Err(e) => return Err(self.failed(e, Stage::Before)),
        }
        // The clock is read under the write lock, so that turns see time in the order they run in.
        let mut turn = Turn::new(&self.conn, Now::read(&*self.clock), self.client);
        let outcome = work(&mut turn).and_then(|answer| Ok((answer, turn.finish()?)));
        match outcome {
            Ok((answer, last_fence)) => {
                let pushes = turn.pushes;
                self.run("COMMIT").map_err(|e| self.failed(e, Stage::Commit))?;
                Ok(Done { answer, pushes, last_fence })
            }
            Err(e) => Err(self.failed(e, Stage::Before)),
        }
    }

    fn begin(&self) -> SqlResult<()> {
        if !self.conn.is_autocommit() {
            // A turn before this one panicked, or could not be rolled back.
            self.run("ROLLBACK")?;
        }
        self.run("BEGIN IMMEDIATE")
    }

    fn run(&self, sql: &str) -> SqlResult<()> {
        self.conn.prepare_cached(sql)?.execute([]).map(drop)
    }

    fn failed(&self, error: SqlError, stage: Stage) -> Failure {
        if !self.conn.is_autocommit() {
            // Should this fail too, the next turn tries it again before it begins.
            let _ = self.run("ROLLBACK");
        }
        Failure::Failed(translate(error, stage, &self.path))
    }
}
