//! Fenced writes in PostgreSQL, in the caller's own transaction, with `tokio-postgres`.
//!
//! ```no_run
//! use leaseward::{Guard, fenced::{self, FenceColumn}};
//!
//! const ACCOUNTS: FenceColumn = FenceColumn::new("accounts");
//!
//! # async fn example(client: &mut tokio_postgres::Client, guard: &Guard) -> Result<(), Box<dyn std::error::Error>> {
//! let tx = client.transaction().await?;
//! fenced::postgres::update(&tx, &ACCOUNTS, &1_i64, guard.fence(), "balance = balance - $3", &[&30_i64]).await?;
//! fenced::postgres::check(&tx, "report:accounts", guard.fence()).await?; // for what has no fence column
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! A stale fence ends the transaction where the server keeps it: whatever the program does next, a commit is a rollback.

use tokio_postgres::{
    Client, Error, Transaction,
    types::{ToSql, Type},
};

use super::{
    FenceColumn, FencedError, StaleFence,
    postgres_sql::{self, Held, SCHEMA, poison, stale_by},
    side::{CHECK_SQL, SEEN_SQL, SIDE_TABLE_SQL},
    to_database,
};
use crate::{Fence, Name};

/// Creates the table that [`check`] uses, in the first schema of the search path; harmless if it is there.
///
/// # Errors
/// What the server says.
///
/// # Cancel safety
/// Dropped, the table may or may not be there. Call it again.
pub async fn create_table(client: &Client) -> Result<(), Error> {
    client.batch_execute(SIDE_TABLE_SQL).await
}

/// Accepts and records a fence for a resource of any kind, in the table beside: what the transaction writes is written under
/// it. The resource is whatever the lease protects; its name will do.
///
/// The resource's row stays locked until the transaction ends, so a later holder's check waits for this commit. Call it
/// before the reads on which the writes depend.
///
/// # Errors
/// [`FencedError::Stale`] if the resource has seen a larger one: the transaction can only be rolled back.
///
/// # Cancel safety
/// Dropped, the fence may or may not be recorded in the transaction: roll it back.
pub async fn check(
    tx: &Transaction<'_>,
    resource: &str,
    fence: Fence,
) -> Result<(), FencedError<Error>> {
    // With its types, the statement needs no round trip to be prepared.
    let kept = to_database(fence);
    let given: [(&(dyn ToSql + Sync), Type); 2] = [(&resource, Type::TEXT), (&kept, Type::INT8)];
    if tx.execute_typed(CHECK_SQL, &given).await? > 0 {
        return Ok(());
    }
    let seen = tx.query_one(SEEN_SQL, &[&resource]).await?.try_get(0)?;
    Err(refuse(tx, stale_by(fence, seen)).await)
}

/// Updates one row of the caller's table, and its fence with it. In `set`, the parameters begin at `$3`.
///
/// # Errors
/// [`FencedError::Stale`] if the row has seen a larger fence: the transaction can only be rolled back.
/// [`FencedError::Missing`] if there is no such row.
///
/// # Cancel safety
/// Dropped, the row may or may not be changed in the transaction: roll it back.
pub async fn update(
    tx: &Transaction<'_>,
    column: &FenceColumn,
    id: &(dyn ToSql + Sync),
    fence: Fence,
    set: &str,
    parameters: &[&(dyn ToSql + Sync)],
) -> Result<(), FencedError<Error>> {
    let kept = to_database(fence);
    let mut all: Vec<&(dyn ToSql + Sync)> = vec![id, &kept];
    all.extend(parameters);
    if tx.execute(&column.update_sql(set), &all).await? > 0 {
        return Ok(());
    }
    match tx.query_opt(&column.seen_sql(), &[id]).await? {
        Some(row) => Err(refuse(tx, stale_by(fence, row.try_get(0)?)).await),
        None => Err(FencedError::Missing),
    }
}

/// Shows the fence to one row of the caller's table and changes nothing else: before what it holds is read.
///
/// # Errors
/// As [`update`].
///
/// # Cancel safety
/// As [`update`].
pub async fn claim(
    tx: &Transaction<'_>,
    column: &FenceColumn,
    id: &(dyn ToSql + Sync),
    fence: Fence,
) -> Result<(), FencedError<Error>> {
    update(tx, column, id, fence, "", &[]).await
}

/// Keeps the lease's name from being given to anybody else until the transaction ends, if the lease is still the newest: for
/// leases in the PostgreSQL store, and tables in the same database. Nothing has to be added to the tables, and every writer of
/// the name is safe by construction: before the commit there is no next holder. Renewals do not wait for it.
///
/// Keep the transaction short: whoever waits for the name waits for it too. The user needs `SELECT` and `UPDATE` on the
/// table `leaseward.fences`, and `SELECT` on `leaseward.meta`.
///
/// # Errors
/// [`FencedError::Stale`] if the name has been given to somebody else since: the transaction can only be rolled back.
/// [`FencedError::Missing`] if the fence was never given out for this name in this database.
///
/// # Cancel safety
/// Dropped, the name may or may not be kept until the transaction ends: roll it back.
pub async fn hold(
    tx: &Transaction<'_>,
    name: &Name,
    fence: Fence,
) -> Result<(), FencedError<Error>> {
    hold_in(tx, SCHEMA, name, fence).await
}

/// [`hold`] for a store with a schema of another name (`?schema=…`). The name is put into the SQL as it is.
///
/// # Errors
/// As [`hold`].
///
/// # Cancel safety
/// As [`hold`].
pub async fn hold_in(
    tx: &Transaction<'_>,
    schema: &str,
    name: &Name,
    fence: Fence,
) -> Result<(), FencedError<Error>> {
    let given: [(&(dyn ToSql + Sync), Type); 1] = [(&name.as_str(), Type::TEXT)];
    let row = tx.query_typed_opt(&postgres_sql::hold(schema), &given).await?;
    let newest = row.map(|row| Ok::<_, Error>((row.try_get(0)?, row.try_get(1)?))).transpose()?;
    let stale = match Held::judge(fence, newest) {
        Held::Newest => return Ok(()),
        Held::Stale(stale) => stale,
        Held::Unknown => {
            let floor = tx.query_one(&postgres_sql::floor(schema), &[]).await?.try_get(0)?;
            Held::forgotten(fence, floor).ok_or(FencedError::Missing)?
        }
    };
    Err(refuse(tx, stale).await)
}

/// Fails the transaction on the server, so that a caller who goes on to commit it commits nothing.
async fn refuse(tx: &Transaction<'_>, stale: StaleFence) -> FencedError<Error> {
    // Whatever error comes of it, the transaction has failed; without a connection there is none any more.
    let _ = tx.batch_execute(&poison(stale)).await;
    stale.into()
}

impl From<Error> for FencedError<Error> {
    fn from(error: Error) -> Self {
        Self::Driver(error)
    }
}
