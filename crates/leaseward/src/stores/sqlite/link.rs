//! A way to an SQLite file for what else of Leaseward keeps something in one: the same URL, the same connections, the same
//! meaning of errors, the same watch for what other processes write.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, Result as SqlResult};

use super::{
    config::{Config, Durability},
    connection, diagnose,
    error::{self, Stage},
    file,
    wake::Bell,
    worker::Worker,
};
use crate::{Error, clock::BoxFuture, store::StoreUrl};

/// One file, and how firmly it is written.
#[derive(Clone, Debug)]
pub struct Link {
    config: Config,
}

impl Link {
    /// Makes the file a URL names, unless it is there.
    pub fn open(url: &StoreUrl) -> Result<Self, Error> {
        let config = Config::from_url(url)?;
        file::prepare(&config)?;
        Ok(Self { config })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.config.path
    }

    /// Whether commits wait for the disk.
    pub fn durability(&self) -> Durability {
        self.config.durability
    }

    /// A connection that never waits by itself: see [`Link::patiently`].
    pub fn connect(&self) -> Result<Connection, Error> {
        connection::open(&self.config.path, self.config.durability)
    }

    /// Tries until the file is not busy, or patience ends.
    pub fn patiently<T>(&self, attempt: impl FnMut() -> SqlResult<T>) -> Result<T, Error> {
        connection::patiently(attempt).map_err(|error| self.meaning(error))
    }

    /// What a failure means if nothing was committed.
    pub fn meaning(&self, error: rusqlite::Error) -> Error {
        error::translate(error, Stage::Before, &self.config.path)
    }

    /// What a failure of a commit means.
    pub fn meaning_of_commit(&self, error: rusqlite::Error) -> Error {
        error::translate(error, Stage::Commit, &self.config.path)
    }

    /// Whether another connection is in the way, so that trying again helps.
    pub fn is_busy(error: &rusqlite::Error) -> bool {
        error::is_busy(error)
    }

    /// The file beside it with this at the end of its name.
    pub fn beside(&self, suffix: &str) -> PathBuf {
        diagnose::beside(&self.config.path, suffix)
    }
}

/// A thread that does one job after the other, started when there is a first one.
#[derive(Clone, Debug)]
pub struct Thread(Worker);

impl Thread {
    /// One that is not started yet.
    pub fn new(name: &'static str) -> Self {
        Self(Worker::new(name))
    }

    /// Has the thread compute something.
    pub fn call<T: Send + 'static>(
        &self,
        compute: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Error>> {
        self.0.call(compute)
    }

    /// Takes no more jobs; the thread ends after those it has.
    pub fn close(&self) {
        self.0.close();
    }
}

/// Tells when a file was written, by whichever process, or when it is rung.
#[derive(Debug)]
pub struct Rung(Bell);

impl Rung {
    /// One that watches nothing yet.
    pub fn new() -> io::Result<Self> {
        Bell::new().map(Self)
    }

    /// Begins to hear of writes to a file.
    pub fn watch(&self, path: &Path) {
        self.0.watch(path);
    }

    /// Wakes the thread that waits.
    pub fn ring(&self) {
        self.0.ring();
    }

    /// Sleeps until it is rung or the file was written; answers whether that came before the time was up.
    pub fn hear(&self, timeout: Duration) -> bool {
        self.0.hear(timeout)
    }
}
