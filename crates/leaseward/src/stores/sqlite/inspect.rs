//! What is held and who waits, for people.

use std::collections::BTreeMap;

use rusqlite::{Connection, Result as SqlResult, Row, params};

use super::row::{self, Hold, Place, hold_columns, place_columns};
use crate::{
    Name,
    clock::Moment,
    store::{LockView, Query},
};

/// Reads both tables as of one moment.
pub(super) fn inspect(
    conn: &mut Connection,
    query: &Query,
    now: Moment,
) -> SqlResult<Vec<LockView>> {
    let snapshot = conn.transaction()?;
    let mut views = BTreeMap::new();
    read(
        &snapshot,
        concat!(
            "SELECT h.name, h.value, ",
            hold_columns!(),
            " FROM holds h WHERE h.name >= ?1 AND h.name > ?2 AND h.expires_us > ?3 ORDER BY h.name, h.first"
        ),
        query,
        now,
        &mut views,
        |row, view| {
            view.holders.push(Hold::read(row, 2)?.view(row::value(row, 1)?, now));
            Ok(())
        },
    )?;
    read(
        &snapshot,
        concat!(
            "SELECT p.name, ",
            place_columns!(),
            " FROM places p WHERE p.name >= ?1 AND p.name > ?2 AND p.expires_us > ?3 ORDER BY p.name, p.seq"
        ),
        query,
        now,
        &mut views,
        |row, view| {
            view.waiters.push(Place::read(row, 1)?.view(now));
            Ok(())
        },
    )?;
    let (_, _, limit) = bounds(query);
    Ok(views.into_values().take(limit).collect())
}

/// Where the names wanted begin, after which one, and how many.
fn bounds(query: &Query) -> (&str, &str, usize) {
    match query {
        Query::Name(name) => (name, "", 1),
        Query::Prefix { prefix, after, limit } => {
            (prefix, after.as_ref().map_or("", Name::as_str), *limit)
        }
    }
}

/// Reads one table in the order of names, up to the first one that is not wanted.
fn read(
    conn: &Connection,
    sql: &str,
    query: &Query,
    now: Moment,
    views: &mut BTreeMap<Name, LockView>,
    mut add: impl FnMut(&Row<'_>, &mut LockView) -> SqlResult<()>,
) -> SqlResult<()> {
    let (begin, after, limit) = bounds(query);
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(params![begin, after, row::micros(now)])?;
    let (mut current, mut count) = (None, 0);
    while let Some(row) = rows.next()? {
        let name = row::name(row, 0)?;
        let is_wanted = match query {
            Query::Name(one) => name == *one,
            Query::Prefix { prefix, .. } => name.starts_with(prefix.as_str()),
        };
        if !is_wanted {
            break;
        }
        if current.as_ref() != Some(&name) {
            count += 1;
            current = Some(name.clone());
        }
        if count > limit {
            break;
        }
        let view = views.entry(name.clone()).or_insert_with(|| LockView {
            name,
            holders: Vec::new(),
            waiters: Vec::new(),
        });
        add(row, view)?;
    }
    Ok(())
}
