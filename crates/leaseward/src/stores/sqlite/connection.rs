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

/// The pause between two tries, and the longer one once somebody seems to be stopped. Pauses that grow early, as those
/// of SQLite's own handler do up to 100 ms, starve whoever meets a busy neighbour: the longer it waited, the rarer it
/// tries. Two busy writers on a disk that never waits saw up to 85 ms with growing pauses, up to 27 ms with even ones.
pub(super) const PAUSE: Duration = Duration::from_micros(50);
const PAUSE_LONG: Duration = Duration::from_millis(1);
const LONG_AFTER: Duration = Duration::from_millis(100);

/// Statements kept prepared: more than there are.
const STATEMENTS: usize = 48;

/// Tries until the file is not busy, or patience ends.
pub(super) fn patiently<T>(mut attempt: impl FnMut() -> SqlResult<T>) -> SqlResult<T> {
    let start = Instant::now();
    loop {
        match attempt() {
            Err(e) if error::is_busy(&e) && start.elapsed() < PATIENCE => {
                let is_stuck = start.elapsed() > LONG_AFTER;
                thread::sleep(if is_stuck { PAUSE_LONG } else { PAUSE });
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
