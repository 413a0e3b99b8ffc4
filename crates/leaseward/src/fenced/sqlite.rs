//! Fenced writes in SQLite, in the caller's own transaction.
//!
//! ```
//! use leaseward::fenced::{self, FenceColumn};
//! use rusqlite::{Connection, TransactionBehavior::Immediate, params};
//! # use leaseward::Fence;
//!
//! const ACCOUNTS: FenceColumn = FenceColumn::new("accounts");
//! # let mut database = Connection::open_in_memory()?;
//! # database.execute_batch("CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER, fence INTEGER NOT NULL DEFAULT 0);
//! #     INSERT INTO accounts (id, balance) VALUES (1, 100)")?;
//! fenced::sqlite::create_table(&database)?; // once
//!
//! let fence = Fence::new(7); // guard.fence()
//! let tx = database.transaction_with_behavior(Immediate)?;
//! fenced::sqlite::claim(&tx, &ACCOUNTS, 1, fence)?; // before it is read
//! let balance: i64 = tx.query_row("SELECT balance FROM accounts WHERE id = 1", [], |row| row.get(0))?;
//! tx.commit()?;
//!
//! // Work that takes its time, then the write.
//! let tx = database.transaction_with_behavior(Immediate)?;
//! fenced::sqlite::update(&tx, &ACCOUNTS, 1, fence, "balance = ?3", params![balance - 30])?;
//! fenced::sqlite::check(&tx, "report:accounts", fence)?; // for what has no fence column
//! tx.commit()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use rusqlite::{Connection, Error, OptionalExtension, ToSql, Transaction, params_from_iter};

use super::{
    FenceColumn, FencedError, StaleFence, from_database,
    side::{CHECK_SQL, SEEN_SQL, SIDE_TABLE_SQL},
    to_database,
};
use crate::Fence;

/// Creates the table that [`check`] uses; harmless if it is there.
///
/// # Errors
/// What SQLite says.
pub fn create_table(connection: &Connection) -> Result<(), Error> {
    connection.execute_batch(SIDE_TABLE_SQL)
}

/// Accepts and records a fence for a resource of any kind, in the table beside: what the transaction writes from here on is
/// written under it. The resource is whatever the lease protects; its name will do.
///
/// Begin the transaction with `IMMEDIATE`, or let this be its first statement: then nobody comes in between.
///
/// # Errors
/// [`FencedError::Stale`] if the resource has seen a larger one: what the transaction has changed so far is undone, and it
/// goes on empty. Return the error; a transaction that is dropped is rolled back.
pub fn check(tx: &Transaction<'_>, resource: &str, fence: Fence) -> Result<(), FencedError<Error>> {
    let changed = tx.prepare_cached(CHECK_SQL)?.execute((resource, to_database(fence)))?;
    if changed > 0 {
        return Ok(());
    }
    let seen = tx.query_row(SEEN_SQL, [resource], |row| row.get(0))?;
    Err(refuse(tx, fence, seen))
}

/// Updates one row of the caller's table, and its fence with it. In `set`, the parameters begin at `?3`.
///
/// # Errors
/// [`FencedError::Stale`] if the row has seen a larger fence: what the transaction has changed so far is undone, and it goes
/// on empty. [`FencedError::Missing`] if there is no such row.
pub fn update(
    tx: &Transaction<'_>,
    column: &FenceColumn,
    id: impl ToSql,
    fence: Fence,
    set: &str,
    parameters: &[&dyn ToSql],
) -> Result<(), FencedError<Error>> {
    let kept = to_database(fence);
    let first: [&dyn ToSql; 2] = [&id, &kept];
    let all = first.iter().chain(parameters);
    if tx.prepare_cached(&column.update_sqlite(set))?.execute(params_from_iter(all))? > 0 {
        return Ok(());
    }
    let seen = tx.query_row(&column.seen_sql(), [&id], |row| row.get(0)).optional()?;
    Err(seen.map_or(FencedError::Missing, |seen| refuse(tx, fence, seen)))
}

/// Shows the fence to one row of the caller's table and changes nothing else: before what it holds is read.
///
/// # Errors
/// As [`update`].
pub fn claim(
    tx: &Transaction<'_>,
    column: &FenceColumn,
    id: impl ToSql,
    fence: Fence,
) -> Result<(), FencedError<Error>> {
    update(tx, column, id, fence, "", &[])
}

/// Undoes what the transaction has changed, so that a caller who goes on to commit it commits nothing of it.
fn refuse(tx: &Transaction<'_>, given: Fence, seen: i64) -> FencedError<Error> {
    match tx.execute_batch("ROLLBACK; BEGIN") {
        Ok(()) => StaleFence { given, seen: from_database(seen) }.into(),
        Err(error) => FencedError::Driver(error),
    }
}

impl From<Error> for FencedError<Error> {
    fn from(error: Error) -> Self {
        Self::Driver(error)
    }
}
