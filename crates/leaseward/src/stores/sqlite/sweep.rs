//! Keeping the file small: leases and places whose owners vanished, on names nobody asks for again.

use rusqlite::{Connection, Result as SqlResult, TransactionBehavior, params};

use super::{
    row,
    turn::{Now, Turn},
    wake,
};
use crate::{Name, clock::Clock};

/// Names looked at in one go, so that it takes about as long as any other turn.
const NAMES: usize = 128;

/// No client's turn, so that what a sweep hands over is found by its waiters themselves.
const NOBODY: i64 = 0;

/// What one go found.
#[derive(Debug)]
struct Found {
    names: Vec<Name>,
    from: String,
    to: String,
}

/// Whether a go found something that had expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Swept {
    Clean,
    Some,
}

/// Looks at some names and settles those that need it, as any operation on them would.
pub(super) fn sweep(conn: &mut Connection, clock: &dyn Clock) -> SqlResult<Swept> {
    // Most of the time there is nothing, and looking needs no write lock.
    let found = look(conn, Now::read(clock))?;
    if found.names.is_empty() && found.from == found.to {
        return Ok(Swept::Clean);
    }
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut turn = Turn::new(&tx, Now::read(clock), NOBODY);
    for name in &found.names {
        let room = turn.enter(name)?;
        turn.leave(room);
    }
    if found.from != found.to {
        turn.change("UPDATE meta SET swept = ?1 WHERE id = 1", params![found.to])?;
    }
    turn.finish()?;
    let calls = turn.calls;
    tx.commit()?;
    wake::call(&calls);
    Ok(if found.names.is_empty() { Swept::Clean } else { Swept::Some })
}

/// Looks for names with something that has expired, from where the last go of any process ended.
fn look(conn: &Connection, now: Now) -> SqlResult<Found> {
    let from: String =
        conn.prepare_cached("SELECT swept FROM meta")?.query_row([], |row| row.get(0))?;
    let mut names = Vec::new();
    let holds = expired(
        conn,
        "SELECT name, min(expires_us) FROM holds WHERE name > ?1 GROUP BY name ORDER BY name LIMIT ?2",
        &from,
        now,
        &mut names,
    )?;
    let places = expired(
        conn,
        "SELECT name, min(expires_us) FROM places WHERE name > ?1 GROUP BY name ORDER BY name LIMIT ?2",
        &from,
        now,
        &mut names,
    )?;
    names.sort();
    names.dedup();
    // The nearer end: beyond it one of the tables was not looked at. No end: from the start again.
    let to = holds.into_iter().chain(places).min().unwrap_or_default();
    Ok(Found { names, from, to })
}

/// Adds the names with something expired; answers the last one looked at if there may be more.
fn expired(
    conn: &Connection,
    sql: &str,
    from: &str,
    now: Now,
    names: &mut Vec<Name>,
) -> SqlResult<Option<String>> {
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(params![from, i64::try_from(NAMES).unwrap_or(i64::MAX)])?;
    let (mut seen, mut last) = (0, None);
    while let Some(row) = rows.next()? {
        let name = row::name(row, 0)?;
        seen += 1;
        last = Some(name.as_str().to_owned());
        if row.get::<_, i64>(1)? <= row::micros(now.moment) {
            names.push(name);
        }
    }
    Ok(last.filter(|_| seen == NAMES))
}
