//! Connections to the file, set up alike.

use std::{
    fs::File,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant, SystemTime},
};

use rusqlite::{Connection, OpenFlags, Result as SqlResult, config::DbConfig};

use super::{
    config::Durability,
    error::{self, Stage},
    file::{Files, beside},
    pinned::Pinned,
};
use crate::Error;

/// How long an operation waits while nobody else gets anywhere: healthy processes hold the file for microseconds, so one of
/// them is stopped then, or at it with a tool, and the caller should hear of it. As long as others commit it is only a crowd.
const PATIENCE: Duration = Duration::from_secs(5);

/// The pause between two tries: this share of the time waited so far, within bounds. Even short pauses cost a crowd all the
/// time there is, those who hold the file included.
const PAUSE_SHARE: u32 = 8;
pub(super) const PAUSE_MIN: Duration = Duration::from_micros(50);
/// In the line.
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// At its head, where there is one: who tries rarely starves beside a busy neighbour.
const PAUSE_MAX_FIRST: Duration = Duration::from_millis(1);

/// How often the line is passed, in case its head is stopped.
const PASS_EVERY: Duration = Duration::from_secs(1);

/// Statements kept prepared: more than there are.
const STATEMENTS: usize = 48;

/// Tries until the file is not busy, or patience ends.
pub(super) fn patiently<T>(path: &Path, mut attempt: impl FnMut() -> SqlResult<T>) -> SqlResult<T> {
    let mut waiting: Option<Waiting<'_>> = None;
    loop {
        match attempt() {
            Err(e) if error::is_busy(&e) => {
                if !waiting.get_or_insert_with(|| Waiting::begin(path)).until_next_try() {
                    return Err(e);
                }
            }
            outcome => return outcome,
        }
    }
}

/// Waiting for others to let go of a file.
///
/// A try costs the more the more processes have the file open, so those who wait stand in a line: a lock on the log, which
/// SQLite does not lock, and only who has it goes on to try.
struct Waiting<'a> {
    path: &'a Path,
    begun: Instant,
    /// Since when the file is as it is, as far as was looked.
    still_since: Instant,
    written: [Option<SystemTime>; 2],
    line: Option<File>,
    /// Since when it is the head of the line.
    first_since: Option<Instant>,
    passed: Instant,
}

impl<'a> Waiting<'a> {
    fn begin(path: &'a Path) -> Self {
        let now = Instant::now();
        Self {
            path,
            begun: now,
            still_since: now,
            written: written(path),
            line: File::open(beside(path, "-wal")).ok(),
            first_since: None,
            passed: now,
        }
    }

    /// Sleeps until it is time to try; `false` once others have not got anywhere for too long.
    fn until_next_try(&mut self) -> bool {
        while self.others_get_on() {
            // Jittered, so that a crowd does not try in step.
            thread::sleep(self.pause().mul_f64(0.5 + rand::random::<f64>()));
            if self.may_try() {
                return true;
            }
        }
        false
    }

    fn pause(&self) -> Duration {
        let (since, longest) = match self.first_since {
            Some(since) => (since, PAUSE_MAX_FIRST),
            None => (self.begun, PAUSE_MAX),
        };
        (since.elapsed() / PAUSE_SHARE).clamp(PAUSE_MIN, longest)
    }

    fn may_try(&mut self) -> bool {
        if self.first_since.is_some() {
            return true;
        }
        if self.line.as_ref().is_none_or(lock) {
            self.first_since = self.line.as_ref().map(|_| Instant::now());
            return true;
        }
        let passes = self.passed.elapsed() >= PASS_EVERY;
        if passes {
            self.passed = Instant::now();
        }
        passes
    }

    /// Whether somebody wrote lately.
    fn others_get_on(&mut self) -> bool {
        if self.still_since.elapsed() < PATIENCE {
            return true;
        }
        let written = written(self.path);
        let is_still = written == self.written;
        (self.still_since, self.written) = (Instant::now(), written);
        !is_still
    }
}

/// Takes the lock that is the head of the line if it is free; where there are no such locks there is no line either.
#[cfg(unix)]
fn lock(line: &File) -> bool {
    use rustix::{
        fs::{FlockOperation, flock},
        io::Errno,
    };
    flock(line, FlockOperation::NonBlockingLockExclusive) != Err(Errno::WOULDBLOCK)
}

#[cfg(not(unix))]
fn lock(_line: &File) -> bool {
    true
}

/// When the file and its log were last written.
fn written(path: &Path) -> [Option<SystemTime>; 2] {
    let modified = |path: &Path| path.metadata().and_then(|meta| meta.modified()).ok();
    [modified(path), modified(&beside(path, "-wal"))]
}

/// A connection, and which files it has open.
#[derive(Debug)]
pub struct Opened {
    /// The connection: it never waits by itself, see `patiently`.
    pub conn: Connection,
    path: PathBuf,
    files: Files,
    pinned: Pinned,
}

impl Opened {
    /// Whether the path still names these files. Others under the same name, or none, and what is written here is read by
    /// nobody who comes anew.
    pub fn is_current(&self) -> bool {
        self.pinned.are_current(|| self.files == Files::at(&self.path))
    }

    /// What it has open.
    pub(super) fn files(&self) -> Files {
        self.files
    }
}

/// Opens a connection.
pub(super) fn open(path: &Path, durability: Durability) -> Result<Opened, Error> {
    // Looked up before: a file that is replaced in this moment is taken for replaced.
    let before = Files::at(path);
    patiently(path, || try_open(path, durability))
        .map(|conn| {
            // The log was made just now if it was not there.
            let files = before.or_log(path);
            Opened { conn, path: path.to_owned(), files, pinned: Pinned::of(path, files) }
        })
        .map_err(|e| error::translate(e, Stage::Before, path))
}

fn try_open(path: &Path, durability: Durability) -> SqlResult<Connection> {
    // One thread at a time uses a connection: SQLite need not lock it. Each connection has caches of its own.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_PRIVATE_CACHE;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.busy_timeout(Duration::ZERO)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    // The last one to close would otherwise copy the log and wait for the disk; a short-lived process has no time for
    // that, and the next one reads the log as it stands.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // The partial index makes SQLite prepare a statement anew whenever another name is bound, unless it may not let
    // bound values choose the plan: a quarter of all time went there.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // Only for a file that is made now. Commits write whole pages: half the usual size is a tenth faster and halves what
    // the disk is given to write; still smaller ones are slower in batches.
    conn.pragma_update(None, "page_size", 2_048)?;
    enter_wal(&conn)?;
    let synchronous = match durability {
        Durability::Normal => "NORMAL",
        Durability::Full => "FULL",
    };
    conn.pragma_update(None, "synchronous", synchronous)?;
    // Checkpoints wait for the disk: the housekeeping thread makes them, never a committing caller.
    conn.pragma_update(None, "wal_autocheckpoint", 0)?;
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    conn.pragma_update(None, "foreign_keys", false)?;
    // In KiB when negative: a file of leases is small, and many processes have it open.
    conn.pragma_update(None, "cache_size", -1024)?;
    // Reading anything opens the log.
    conn.pragma_query_value(None, "schema_version", |_| Ok(()))?;
    Ok(conn)
}

/// Switches the file to the write-ahead log unless it is. The switch itself answers `busy` at once while another process
/// does the same, whatever the time-out is: hence look first, and [`patiently`] around it.
fn enter_wal(conn: &Connection) -> SqlResult<()> {
    let mode: String = conn.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    if mode.eq_ignore_ascii_case("wal") {
        return Ok(());
    }
    conn.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))
}
