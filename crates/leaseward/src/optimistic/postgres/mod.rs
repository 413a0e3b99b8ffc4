//! PostgreSQL, on the caller's own tables, with `tokio-postgres`.
//!
//! ```no_run
//! use leaseward::optimistic::{Failure, Retry, VersionColumn, Work, postgres::{load, save, transact}};
//!
//! const ACCOUNTS: VersionColumn = VersionColumn::new("accounts");
//!
//! # async fn example(client: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let left = transact(client, &Retry::new(), |tx, _try| Work::new(async move {
//!     let found = load(tx, &ACCOUNTS, &1_i64, "balance", |row| row.try_get::<_, i64>(0)).await?;
//!     let account = found.ok_or_else(|| Failure::other("no such account"))?;
//!     let left = account.value() - 30;
//!     save(tx, &ACCOUNTS, &1_i64, &account, "balance = $3", &[&left]).await?;
//!     Ok(left)
//! }))
//! .await?;
//! # drop(left);
//! # Ok(())
//! # }
//! ```

mod prepared;
mod transact;

use futures_util::future::try_join_all;
pub use prepared::Prepared;
use tokio_postgres::{Error, GenericClient, Row, ToStatement, types::ToSql};
pub use transact::{create_table, transact, transact_once};

use super::{
    Conflict, SaveError, Version, VersionColumn, Versioned, from_database, to_database, why,
};

/// Reads columns of one row and its version; nothing if there is no such row.
///
/// # Errors
/// What the server says, or `make` about the row.
///
/// # Cancel safety
/// Cancel safe: it only reads.
pub async fn load<T>(
    client: &impl GenericClient,
    column: &VersionColumn,
    id: &(dyn ToSql + Sync),
    columns: &str,
    make: impl FnOnce(&Row) -> Result<T, Error>,
) -> Result<Option<Versioned<T>>, Error> {
    load_by(client, &column.load_sql(columns), id, make).await
}

async fn load_by<T>(
    client: &impl GenericClient,
    statement: &(impl ToStatement + ?Sized + Sync + Send),
    id: &(dyn ToSql + Sync),
    make: impl FnOnce(&Row) -> Result<T, Error>,
) -> Result<Option<Versioned<T>>, Error> {
    let Some(row) = client.query_opt(statement, &[id]).await? else { return Ok(None) };
    let version = from_database(row.try_get(row.len() - 1)?);
    Ok(Some(Versioned::new(make(&row)?, version)))
}

/// Saves one row if it still has the version it was read with; answers the new one. In `set`, the parameters begin at `$3`.
///
/// One statement, so it may also be sent outside of a transaction. On a conflict a second one asks what became of the row.
///
/// # Errors
/// [`SaveError::Conflict`] if it has another version, or is gone: nothing changed.
///
/// # Cancel safety
/// Dropped, the row may or may not be saved: in a transaction, roll back; outside, load it again.
pub async fn save<T>(
    client: &impl GenericClient,
    column: &VersionColumn,
    id: &(dyn ToSql + Sync),
    read: &Versioned<T>,
    set: &str,
    parameters: &[&(dyn ToSql + Sync)],
) -> Result<Version, SaveError<Error>> {
    let change = Change { id, seen: read.version(), parameters };
    let saved = change.send(client, &column.save_sql(set), column).await?;
    saved.map_err(SaveError::Conflict)
}

/// One row of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// Which row.
    pub id: &'a (dyn ToSql + Sync),
    /// The version it was read with.
    pub seen: Version,
    /// What it is set to, from `$3` on.
    pub parameters: &'a [&'a (dyn ToSql + Sync)],
}

/// Saves many rows, each if it still has the version it was read with; answers for each, in their order. All are sent at once,
/// without waiting for each other's answers. Give them in the order of their ids: two batches in opposite orders deadlock, and
/// one of them is rolled back (`40P01`).
///
/// Rows with a conflict are left as they are, the others are saved. If it should be all or none, roll back.
///
/// # Errors
/// What the server says. In a transaction, nothing is saved then.
///
/// # Cancel safety
/// As [`save`].
pub async fn save_many(
    client: &impl GenericClient,
    column: &VersionColumn,
    set: &str,
    changes: &[Change<'_>],
) -> Result<Vec<Result<Version, Conflict>>, Error> {
    let statement = client.prepare(&column.save_sql(set)).await?;
    try_join_all(changes.iter().map(|change| change.send(client, &statement, column))).await
}

impl Change<'_> {
    async fn send(
        &self,
        client: &impl GenericClient,
        statement: &(impl ToStatement + ?Sized + Sync + Send),
        column: &VersionColumn,
    ) -> Result<Result<Version, Conflict>, Error> {
        let seen = to_database(self.seen);
        let mut all: Vec<&(dyn ToSql + Sync)> = vec![self.id, &seen];
        all.extend(self.parameters);
        if let Some(row) = client.query_opt(statement, &all).await? {
            return Ok(Ok(from_database(row.try_get(0)?)));
        }
        // Not in the same statement: that one would see the row as it was when the statement began.
        let current = client.query_opt(&column.current_sql(), &[self.id]).await?;
        Ok(Err(why(current.map(|row| row.try_get(0)).transpose()?)))
    }
}

impl From<Error> for SaveError<Error> {
    fn from(error: Error) -> Self {
        Self::Driver(error)
    }
}
