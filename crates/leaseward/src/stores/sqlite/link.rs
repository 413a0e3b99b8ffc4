//! A way to an SQLite file for what else of Leaseward keeps something in one: the same URL, the same connections, the same
//! meaning of errors, the same calls between processes.

use std::{
    io,
    path::{Path, PathBuf},
};

use rusqlite::Result as SqlResult;

use super::{
    config::{Config, Durability},
    connection::{self, Opened},
    error::{self, Stage},
    file,
    wake::{self, Bell},
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

    /// Whether what is not there is an error, instead of being made.
    pub fn must_exist(&self) -> bool {
        self.config.must_exist
    }

    /// Makes it again after what was open was deleted or replaced.
    pub fn prepare_anew(&self, old: &Opened) -> Result<(), Error> {
        file::prepare_anew(&self.config, old.files())
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
    pub fn connect(&self) -> Result<Opened, Error> {
        connection::open(&self.config.path, self.config.durability)
    }

    /// Tries until the file is not busy, or patience ends.
    pub fn patiently<T>(&self, attempt: impl FnMut() -> SqlResult<T>) -> Result<T, Error> {
        connection::patiently(&self.config.path, attempt).map_err(|error| self.meaning(error))
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
        file::beside(&self.config.path, suffix)
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

/// What a thread sleeps on that waits to be called, by whichever process: see [`call`].
#[derive(Debug)]
pub struct Rung(Bell);

impl Rung {
    /// One that hears calls to this address.
    pub fn new(address: i64) -> io::Result<Self> {
        Bell::new(address).map(Self)
    }

    /// Wakes the thread that waits.
    pub fn ring(&self) {
        self.0.ring();
    }

    /// Sleeps until it is rung or called.
    pub fn hear(&self) {
        self.0.hear(None);
    }
}

/// Calls those at these addresses, once what they are to look for is committed. A call may be lost.
pub fn call(addresses: &[i64]) {
    wake::call(addresses);
}
