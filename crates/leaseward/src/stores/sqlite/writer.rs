//! The connection that writes: one transaction a turn.

use std::{path::PathBuf, sync::Arc};

use rusqlite::{Error as SqlError, Result as SqlResult};

use super::{
    connection::{Opened, patiently},
    error::{self, Stage, translate},
    file::Files,
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
    /// Clients to be called then, because something was handed to them.
    pub(super) calls: Vec<i64>,
    /// The newest fence, if the turn learned it.
    pub(super) last_fence: Option<Fence>,
}

pub(super) struct Writer {
    opened: Opened,
    path: PathBuf,
    clock: Arc<dyn Clock>,
    client: i64,
}

impl Writer {
    /// Writes over this connection for a client.
    pub(super) fn new(opened: Opened, path: PathBuf, clock: Arc<dyn Clock>, client: i64) -> Self {
        Self { opened, path, clock, client }
    }

    /// Whether the path still names the file that is written.
    pub(super) fn is_current(&self) -> bool {
        self.opened.is_current()
    }

    /// The files that are written.
    pub(super) fn files(&self) -> Files {
        self.opened.files()
    }

    /// Carries out one transaction.
    pub(super) fn turn<T>(
        &mut self,
        if_writing: IfWriting,
        work: impl FnOnce(&mut Turn<'_>) -> SqlResult<T>,
    ) -> Result<Done<T>, Failure> {
        let begun = match if_writing {
            IfWriting::Return => self.begin(),
            IfWriting::Wait => patiently(&self.path, || self.begin()),
        };
        match begun {
            Ok(()) => {}
            Err(e) if if_writing == IfWriting::Return && error::is_busy(&e) => {
                return Err(Failure::Busy);
            }
            Err(e) => return Err(self.failed(e, Stage::Before)),
        }
        // The clock is read under the write lock, so that turns see time in the order they run in.
        let mut turn = Turn::new(&self.opened.conn, Now::read(&*self.clock), self.client);
        let outcome = work(&mut turn).and_then(|answer| Ok((answer, turn.finish()?)));
        match outcome {
            Ok((answer, last_fence)) => {
                let (pushes, calls) = (turn.pushes, turn.calls);
                self.run("COMMIT").map_err(|e| self.failed(e, Stage::Commit))?;
                Ok(Done { answer, pushes, calls, last_fence })
            }
            Err(e) => Err(self.failed(e, Stage::Before)),
        }
    }

    fn begin(&self) -> SqlResult<()> {
        if !self.opened.conn.is_autocommit() {
            // A turn before this one panicked, or could not be rolled back.
            self.run("ROLLBACK")?;
        }
        self.run("BEGIN IMMEDIATE")
    }

    fn run(&self, sql: &str) -> SqlResult<()> {
        self.opened.conn.prepare_cached(sql)?.execute([]).map(drop)
    }

    fn failed(&self, error: SqlError, stage: Stage) -> Failure {
        if !self.opened.conn.is_autocommit() {
            // Should this fail too, the next turn tries it again before it begins.
            let _ = self.run("ROLLBACK");
        }
        Failure::Failed(translate(error, stage, &self.path))
    }
}
