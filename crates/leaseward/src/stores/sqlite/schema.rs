//! The tables, and how an older or a foreign file is met.

use std::path::Path;

use rusqlite::{Connection, Result as SqlResult, TransactionBehavior, params};

use super::{
    boot::boot_id,
    connection::patiently,
    error::{Stage, translate},
};
use crate::{Error, ErrorKind, clock::Moment};

/// Marks a file as ours in its header: "LsWd".
const APPLICATION: i32 = 0x4C73_5764;

/// The newest schema this version knows, kept in the header's `user_version`.
const VERSION: i32 = 1;

// `mode` is 0 for exclusive, −1 for shared, else the capacity of a semaphore. Times are microseconds since boot.
// A hold is found by its token, and all holds of a name lie side by side; `first` orders them by age, because fences
// only grow. Places are counted and found through an index of their own, which is narrow: a crowd asks for both all the time.
const TABLES: &str = "
CREATE TABLE meta (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    boot TEXT NOT NULL,
    last_fence INTEGER NOT NULL,
    swept TEXT NOT NULL
) STRICT;
CREATE TABLE holds (
    name TEXT NOT NULL,
    token BLOB NOT NULL,
    who TEXT NOT NULL,
    mode INTEGER NOT NULL,
    first INTEGER NOT NULL,
    len INTEGER NOT NULL,
    slot INTEGER,
    condition INTEGER NOT NULL,
    ttl_ms INTEGER NOT NULL,
    delay_ms INTEGER NOT NULL,
    since_us INTEGER NOT NULL,
    expires_us INTEGER NOT NULL,
    client INTEGER NOT NULL,
    handed INTEGER NOT NULL,
    value BLOB,
    PRIMARY KEY (name, token)
) STRICT, WITHOUT ROWID;
CREATE INDEX handed_over ON holds (client) WHERE handed = 1;
CREATE TABLE places (
    name TEXT NOT NULL,
    seq INTEGER NOT NULL,
    token BLOB NOT NULL,
    who TEXT NOT NULL,
    mode INTEGER NOT NULL,
    ttl_us INTEGER NOT NULL,
    delay_ms INTEGER NOT NULL,
    block INTEGER NOT NULL,
    client INTEGER NOT NULL,
    since_us INTEGER NOT NULL,
    expires_us INTEGER NOT NULL,
    value BLOB,
    PRIMARY KEY (name, seq)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX place_tokens ON places (name, token);
INSERT INTO meta (id, boot, last_fence, swept) VALUES (1, '', 0, '');
";

/// Makes, migrates or refuses what is in the file, and brings it into this boot.
pub(super) fn ready(conn: &mut Connection, path: &Path, now: Moment) -> Result<(), Error> {
    let boot = boot_id();
    match patiently(path, || look(conn, &boot)).map_err(|e| translate(e, Stage::Before, path))? {
        State::Ready => Ok(()),
        State::Stale => patiently(path, || write(conn, &boot, now))
            .map_err(|e| translate(e, Stage::Before, path))
            .and_then(|state| match state {
                State::Ready | State::Stale => Ok(()),
                State::Newer(version) => Err(newer(path, version)),
                State::Foreign => Err(foreign(path)),
            }),
        State::Newer(version) => Err(newer(path, version)),
        State::Foreign => Err(foreign(path)),
    }
}

enum State {
    Ready,
    /// Empty, or of another boot: to be written.
    Stale,
    Newer(i32),
    Foreign,
}

/// Looks without the write lock, which most openings do not need.
fn look(conn: &mut Connection, boot: &str) -> SqlResult<State> {
    // In one snapshot: between two statements another process may have made the tables.
    let snapshot = conn.transaction()?;
    state(&snapshot, boot)
}

fn state(conn: &Connection, boot: &str) -> SqlResult<State> {
    let application: i32 = conn.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version: i32 = conn.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if application == APPLICATION {
        if version > VERSION {
            return Ok(State::Newer(version));
        }
        if version < 1 {
            return Ok(State::Foreign); // stamp and version are written together: this was somebody else
        }
        let stored: String = conn.query_row("SELECT boot FROM meta", [], |row| row.get(0))?;
        return Ok(if stored == boot { State::Ready } else { State::Stale });
    }
    let tables: i64 = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let is_empty = application == 0 && version == 0 && tables == 0;
    Ok(if is_empty { State::Stale } else { State::Foreign })
}

/// Looks again under the write lock, since another process may have been faster, and writes what is missing.
fn write(conn: &mut Connection, boot: &str, now: Moment) -> SqlResult<State> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found = state(&tx, boot)?;
    if !matches!(found, State::Stale) {
        return Ok(found);
    }
    let application: i32 = tx.pragma_query_value(None, "application_id", |row| row.get(0))?;
    if application == 0 {
        tx.execute_batch(TABLES)?;
        tx.pragma_update(None, "application_id", APPLICATION)?;
        tx.pragma_update(None, "user_version", VERSION)?;
    }
    let now_us = super::row::micros(now);
    // Nobody knows how long ago these were renewed: each is held until it was seen unchanged for its whole time. Those
    // who waited are gone with the processes of that boot.
    tx.execute(
        "UPDATE holds SET since_us = ?1, expires_us = ?1 + 1000 * ttl_ms, handed = 0",
        params![now_us],
    )?;
    tx.execute("DELETE FROM places", [])?;
    tx.execute("UPDATE meta SET boot = ?1", params![boot])?;
    tx.commit()?;
    Ok(State::Ready)
}

fn newer(path: &Path, version: i32) -> Error {
    Error::new(
        ErrorKind::Refused,
        format!(
            "`{}` was written by a newer version (schema {version}, this one knows {VERSION})",
            path.display()
        ),
    )
    .hint("upgrade this program, or name another file")
}

fn foreign(path: &Path) -> Error {
    Error::new(ErrorKind::Refused, format!("`{}` belongs to another program", path.display()))
        .hint("name a file of its own for the leases; this one is left as it is")
}
