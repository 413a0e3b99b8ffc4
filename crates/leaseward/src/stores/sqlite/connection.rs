//! Connections to the file, set up alike.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use rusqlite::{Connection, OpenFlags, Result as SqlResult, config::DbConfig};

use super::{
    config::Durability,
    error::{self, Stage},
};
use crate::Error;

/// How long an operation may wait for other processes to let go of the file. Healthy ones hold it for microseconds, so
/// after this one of them is stopped or at it with a tool, and the caller should hear of it.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The first and the longest pause between two tries. SQLite's own handler would sleep for up to 100 ms at a time, which
/// is thousands of turns of a busy neighbour.
const PAUSE_FIRST: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_millis(2);

/// Statements kept prepared: more than there are.
const STATEMENTS: usize = 48;

/// Tries until the file is not busy, or patience ends.
pub(super) fn patiently<T>(mut attempt: impl FnMut() -> SqlResult<T>) -> SqlResult<T> {
    let start = Instant::now();
    let mut pause = PAUSE_FIRST;
    loop {
        match attempt() {
            Err(e) if error::is_busy(&e) && start.elapsed() < PATIENCE => {
                thread::sleep(pause);
                pause = (pause * 2).min(PAUSE_MAX);
            }
            outcome => return outcome,
        }
    }
}

/// Opens a connection that never waits by itself: see [`patiently`].
pub(super) fn open(path: &Path, durability: Durability) -> Result<Connection, Error> {
    patiently(|| try_open(path, durability)).map_err(|e| error::translate(e, Stage::Before, path))
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
