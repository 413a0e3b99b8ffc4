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

use tokio_postgres::{Client, Error, Transaction, types::ToSql};

use super::{
    FenceColumn, FencedError, StaleFence, from_database,
    postgres_sql::poison,
    side::{CHECK_SQL, SEEN_SQL, SIDE_TABLE_SQL},
    to_database,
};
use crate::Fence;

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
    if tx.execute(CHECK_SQL, &[&resource, &to_database(fence)]).await? > 0 {
        return Ok(());
    }
    let seen = tx.query_one(SEEN_SQL, &[&resource]).await?.try_get(0)?;
    Err(refuse(tx, fence, seen).await)
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
        Some(row) => Err(refuse(tx, fence, row.try_get(0)?).await),
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

/// Fails the transaction on the server, so that a caller who goes on to commit it commits nothing.
async fn refuse(tx: &Transaction<'_>, given: Fence, seen: i64) -> FencedError<Error> {
    let stale = StaleFence { given, seen: from_database(seen) };
    // Whatever error comes of it, the transaction has failed; without a connection there is none any more.
    let _ = tx.batch_execute(&poison(stale)).await;
    stale.into()
}

impl From<Error> for FencedError<Error> {
    fn from(error: Error) -> Self {
        Self::Driver(error)
    }
}
