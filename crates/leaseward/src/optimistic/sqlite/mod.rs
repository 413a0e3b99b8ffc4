//! SQLite, on the caller's own tables.
//!
//! Calls block: in a task, use `tokio::task::spawn_blocking`.
//!
//! ```
//! use leaseward::optimistic::{Failure, Retry, VersionColumn, sqlite::{load, save, transact}};
//! use rusqlite::{Connection, params};
//!
//! const ACCOUNTS: VersionColumn = VersionColumn::new("accounts");
//! # let mut database = Connection::open_in_memory()?;
//! # database.execute_batch("CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER, version INTEGER NOT NULL DEFAULT 1);
//! #     INSERT INTO accounts (id, balance) VALUES (1, 100)")?;
//!
//! let left = transact(&mut database, &Retry::new(), |tx, _try| {
//!     let found = load(tx, &ACCOUNTS, 1, "balance", |row| row.get::<_, i64>(0))?;
//!     let account = found.ok_or_else(|| Failure::other("no such account"))?;
//!     let left = account.value() - 30;
//!     save(tx, &ACCOUNTS, 1, &account, "balance = ?3", params![left])?;
//!     Ok(left)
//! })?;
//! assert_eq!(left, 70);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod transact;

use rusqlite::{Connection, Error, OptionalExtension, Row, ToSql, params_from_iter};
pub use transact::{create_table, transact, transact_once};

use super::{
    Conflict, SaveError, Version, VersionColumn, Versioned, from_database, to_database, why,
};

/// Reads columns of one row and its version; nothing if there is no such row.
///
/// # Errors
/// What SQLite says, or `make` about the row.
pub fn load<T>(
    connection: &Connection,
    column: &VersionColumn,
    id: impl ToSql,
    columns: &str,
    make: impl FnOnce(&Row<'_>) -> Result<T, Error>,
) -> Result<Option<Versioned<T>>, Error> {
    let mut statement = connection.prepare_cached(&column.load_sql(columns))?;
    let last = statement.column_count() - 1;
    let row = statement
        .query_row([id], |row| Ok(Versioned::new(make(row)?, from_database(row.get(last)?))));
    row.optional()
}

/// Saves one row if it still has the version it was read with; answers the new one. In `set`, the parameters begin at `?3`.
///
/// # Errors
/// [`SaveError::Conflict`] if it has another version, or is gone: nothing changed.
pub fn save<T>(
    connection: &Connection,
    column: &VersionColumn,
    id: impl ToSql,
    read: &Versioned<T>,
    set: &str,
    parameters: &[&dyn ToSql],
) -> Result<Version, SaveError<Error>> {
    let change = Change { id: &id, seen: read.version(), parameters };
    change.carry_out(connection, column, set)?.map_err(SaveError::Conflict)
}

/// One row of a batch.
#[derive(Clone, Copy)]
pub struct Change<'a> {
    /// Which row.
    pub id: &'a dyn ToSql,
    /// The version it was read with.
    pub seen: Version,
    /// What it is set to, from `?3` on.
    pub parameters: &'a [&'a dyn ToSql],
}

/// Saves many rows, each if it still has the version it was read with; answers for each, in their order.
///
/// Rows with a conflict are left as they are, the others are saved. If it should be all or none, roll back. Outside of a
/// transaction each row is one.
///
/// # Errors
/// What SQLite says.
pub fn save_many(
    connection: &Connection,
    column: &VersionColumn,
    set: &str,
    changes: &[Change<'_>],
) -> Result<Vec<Result<Version, Conflict>>, Error> {
    changes.iter().map(|change| change.carry_out(connection, column, set)).collect()
}

impl Change<'_> {
    fn carry_out(
        &self,
        connection: &Connection,
        column: &VersionColumn,
        set: &str,
    ) -> Result<Result<Version, Conflict>, Error> {
        let seen = to_database(self.seen);
        let first: [&dyn ToSql; 2] = [self.id, &seen];
        let all = params_from_iter(first.iter().chain(self.parameters));
        let mut save = connection.prepare_cached(&column.save_sqlite(set))?;
        if let Some(kept) = save.query_row(all, |row| row.get(0)).optional()? {
            return Ok(Ok(from_database(kept)));
        }
        let mut current = connection.prepare_cached(&column.current_sql())?;
        Ok(Err(why(current.query_row([self.id], |row| row.get(0)).optional()?)))
    }
}

impl std::fmt::Debug for Change<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Change").field("seen", &self.seen).finish_non_exhaustive()
    }
}

impl From<Error> for SaveError<Error> {
    fn from(error: Error) -> Self {
        Self::Driver(error)
    }
}
