//! The SQLite store's work with no library around it: the same file, pragmas and statements, one transaction an
//! operation.

use std::{path::Path, time::Duration};

use rusqlite::{Connection, OpenFlags, config::DbConfig, params};

const LOAD: &str = "SELECT m.last_fence, (SELECT count(*) FROM places WHERE name = ?1), \
    h.token, h.who, h.mode, h.first, h.len, h.slot, h.condition, h.ttl_ms, h.delay_ms, h.since_us, \
    h.expires_us, h.handed FROM meta m LEFT JOIN holds h ON h.name = ?1";
const HOLD: &str = "INSERT INTO holds (name, token, who, mode, first, len, slot, condition, ttl_ms, delay_ms, \
    since_us, expires_us, client, handed, value) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)";
const FENCE: &str = "UPDATE meta SET last_fence = ?1 WHERE id = 1";
const FREE: &str = "DELETE FROM holds WHERE name = ?1 AND token = ?2";

/// When the log is copied back.
#[derive(Clone, Copy)]
pub(crate) enum Checkpoints {
    /// By the committing caller, every 1,000 pages: what SQLite does unless told otherwise.
    Usual,
    /// Never: faster than anything that is to run for long.
    Never,
}

/// A connection to a file that the store has made.
pub(crate) struct RawSqlite {
    conn: Connection,
    token: u128,
}

impl RawSqlite {
    pub(crate) fn open(path: &Path, checkpoints: Checkpoints) -> Result<Self, String> {
        let open = || {
            // All that the store sets on its connections, or this would be the limit of something else. Without QPSG
            // SQLite prepares statements anew because of the partial index, and is half as fast.
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
                | OpenFlags::SQLITE_OPEN_NO_MUTEX
                | OpenFlags::SQLITE_OPEN_PRIVATE_CACHE;
            let conn = Connection::open_with_flags(path, flags)?;
            conn.busy_timeout(Duration::from_secs(5))?;
            conn.set_prepared_statement_cache_capacity(48);
            conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
            conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
            conn.pragma_update(None, "foreign_keys", false)?;
            conn.pragma_update(None, "synchronous", "NORMAL")?;
            conn.pragma_update(None, "temp_store", "MEMORY")?;
            conn.pragma_update(None, "cache_size", -1024)?;
            if let Checkpoints::Never = checkpoints {
                conn.pragma_update(None, "wal_autocheckpoint", 0)?;
            }
            Ok(conn)
        };
        let conn = open().map_err(said)?;
        Ok(Self { conn, token: u128::from(std::process::id()) << 64 })
    }

    /// Takes a free name and gives it back: two transactions.
    pub(crate) fn pair(&mut self, name: &str) -> Result<(), String> {
        self.token += 1;
        let token = self.token.to_be_bytes();
        self.acquire(name, &token).and_then(|()| self.release(name, &token)).map_err(said)
    }

    fn acquire(&self, name: &str, token: &[u8]) -> rusqlite::Result<()> {
        self.run("BEGIN IMMEDIATE")?;
        let fence = self.load(name)? + 1;
        let (since_us, expires_us) = (1_000_000_i64, 31_000_000_i64);
        self.conn.prepare_cached(HOLD)?.execute(params![
            name,
            token,
            "host:1234",
            0,
            fence,
            1,
            None::<u32>,
            0,
            30_000,
            0,
            since_us,
            expires_us,
            7_i64,
            false,
            None::<&[u8]>,
        ])?;
        self.conn.prepare_cached(FENCE)?.execute(params![fence])?;
        self.run("COMMIT")
    }

    fn release(&self, name: &str, token: &[u8]) -> rusqlite::Result<()> {
        self.run("BEGIN IMMEDIATE")?;
        self.load(name)?;
        self.conn.prepare_cached(FREE)?.execute(params![name, token])?;
        self.run("COMMIT")
    }

    /// Reads a name as the store does; answers the newest fence.
    fn load(&self, name: &str) -> rusqlite::Result<i64> {
        let mut statement = self.conn.prepare_cached(LOAD)?;
        let mut rows = statement.query(params![name])?;
        let mut fence = 0;
        while let Some(row) = rows.next()? {
            fence = row.get(0)?;
            let _waiters: u32 = row.get(1)?;
            let _who: Option<String> = row.get(3)?;
            let _expires_us: Option<i64> = row.get(12)?;
        }
        Ok(fence)
    }

    fn run(&self, sql: &str) -> rusqlite::Result<()> {
        self.conn.prepare_cached(sql)?.execute([]).map(drop)
    }
}

fn said(error: rusqlite::Error) -> String {
    error.to_string()
}
