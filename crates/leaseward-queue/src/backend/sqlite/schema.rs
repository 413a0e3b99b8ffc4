//! The tables in the file, which may be the application's own: their names begin with `lq_`, and nothing else is touched.

use rusqlite::{Connection, OptionalExtension as _, Result as SqlResult, TransactionBehavior};

/// What each version added, in their order. Never changed once released: forward only.
const STEPS: [&str; 3] = [
    "
CREATE TABLE lq_meta (id INTEGER PRIMARY KEY CHECK (id = 1), version INTEGER NOT NULL, seq INTEGER NOT NULL) STRICT;
INSERT INTO lq_meta (id, version, seq) VALUES (1, 0, 0);
CREATE TABLE lq_queues (no INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, paused INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE TABLE lq_ready (id INTEGER PRIMARY KEY, fence INTEGER, lkey TEXT, body BLOB NOT NULL) STRICT;
CREATE TABLE lq_suspect (id INTEGER PRIMARY KEY, fence INTEGER, lkey TEXT, body BLOB NOT NULL) STRICT;
CREATE TABLE lq_later (id INTEGER PRIMARY KEY, due INTEGER NOT NULL, alone INTEGER NOT NULL, fence INTEGER, lkey TEXT,
    body BLOB NOT NULL) STRICT;
CREATE INDEX lq_later_due ON lq_later (due, id);
CREATE TABLE lq_leased (id INTEGER PRIMARY KEY, token INTEGER NOT NULL, session INTEGER NOT NULL, since INTEGER NOT NULL,
    lkey TEXT, body BLOB NOT NULL, finished INTEGER NOT NULL DEFAULT 0, cancelled INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE TABLE lq_session (id INTEGER PRIMARY KEY, who TEXT NOT NULL, boot TEXT NOT NULL, expires INTEGER NOT NULL) STRICT;
CREATE TABLE lq_uniq (queue INTEGER NOT NULL, key TEXT NOT NULL, job INTEGER NOT NULL, until INTEGER NOT NULL,
    PRIMARY KEY (queue, key)) STRICT, WITHOUT ROWID;
CREATE TABLE lq_tally (queue INTEGER PRIMARY KEY, pushed INTEGER NOT NULL DEFAULT 0, done INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0, dead INTEGER NOT NULL DEFAULT 0, cancelled INTEGER NOT NULL DEFAULT 0,
    later INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE TABLE lq_dead (id INTEGER PRIMARY KEY, at INTEGER NOT NULL, fence INTEGER, lkey TEXT, body BLOB NOT NULL) STRICT;
CREATE TABLE lq_kept (id INTEGER PRIMARY KEY, at INTEGER NOT NULL, until INTEGER NOT NULL, state INTEGER NOT NULL,
    fence INTEGER, body BLOB NOT NULL, result BLOB) STRICT;
CREATE INDEX lq_kept_until ON lq_kept (until);
",
    "
ALTER TABLE lq_queues ADD COLUMN lim INTEGER;
ALTER TABLE lq_queues ADD COLUMN key_lim INTEGER NOT NULL DEFAULT 1;
ALTER TABLE lq_queues ADD COLUMN running INTEGER NOT NULL DEFAULT 0;
ALTER TABLE lq_leased ADD COLUMN counted INTEGER NOT NULL DEFAULT 0;
CREATE TABLE lq_keys (queue INTEGER NOT NULL, lkey TEXT NOT NULL, running INTEGER NOT NULL,
    PRIMARY KEY (queue, lkey)) STRICT, WITHOUT ROWID;
CREATE TABLE lq_blocked (id INTEGER PRIMARY KEY, queue INTEGER NOT NULL, lkey TEXT NOT NULL, fence INTEGER,
    body BLOB NOT NULL) STRICT;
CREATE INDEX lq_blocked_key ON lq_blocked (queue, lkey, id);
ALTER TABLE lq_tally ADD COLUMN blocked INTEGER NOT NULL DEFAULT 0;
CREATE TABLE lq_progress (id INTEGER PRIMARY KEY, fence INTEGER NOT NULL, at INTEGER NOT NULL, value BLOB NOT NULL) STRICT;
CREATE TABLE lq_cron (name TEXT PRIMARY KEY, last INTEGER NOT NULL) STRICT, WITHOUT ROWID;
",
    "
ALTER TABLE lq_tally ADD COLUMN interrupted INTEGER NOT NULL DEFAULT 0;
ALTER TABLE lq_session ADD COLUMN address INTEGER NOT NULL DEFAULT 0;
ALTER TABLE lq_session ADD COLUMN idle INTEGER NOT NULL DEFAULT 0;
CREATE INDEX lq_session_idle ON lq_session (address) WHERE idle = 1;
",
];

/// The newest version of the tables.
pub(super) const VERSION: usize = STEPS.len();

/// Brings the tables to a version, from whichever was there; answers which is there now.
pub(super) fn migrate_to(conn: &mut Connection, wanted: usize) -> SqlResult<usize> {
    let found = version(conn)?;
    if found >= wanted {
        return Ok(found);
    }
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have been faster.
    let found = version(&tx)?;
    for (at, step) in STEPS.iter().enumerate().take(wanted).skip(found) {
        tx.execute_batch(step)?;
        tx.execute("UPDATE lq_meta SET version = ?1", [i64::try_from(at + 1).unwrap_or(0)])?;
    }
    tx.commit()?;
    Ok(found.max(wanted))
}

pub(super) fn version(conn: &Connection) -> SqlResult<usize> {
    let there = conn
        .query_row("SELECT 1 FROM sqlite_schema WHERE name = 'lq_meta'", [], |_| Ok(()))
        .optional()?;
    match there {
        None => Ok(0),
        Some(()) => conn
            .query_row("SELECT version FROM lq_meta", [], |row| row.get::<_, i64>(0))
            .map(|version| usize::try_from(version).unwrap_or(usize::MAX)),
    }
}
