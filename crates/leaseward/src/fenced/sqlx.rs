//! Fenced writes in PostgreSQL, in the caller's own transaction, with `sqlx`.
//!
//! ```no_run
//! use leaseward::{Guard, fenced::{self, FenceColumn}};
//!
//! const ACCOUNTS: FenceColumn = FenceColumn::new("accounts");
//!
//! # async fn example(pool: &sqlx::PgPool, guard: &Guard) -> Result<(), Box<dyn std::error::Error>> {
//! let mut tx = pool.begin().await?;
//! fenced::sqlx::update(&mut tx, &ACCOUNTS, 1_i64, guard.fence(), "balance = balance - $3", |query| query.bind(30_i64)).await?;
//! fenced::sqlx::check(&mut tx, "report:accounts", guard.fence()).await?; // for what has no fence column
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Give them the transaction, or the connection inside of one (as `optimistic::sqlx::transact` does); outside of one they are
//! refused. A stale fence ends the transaction where the server keeps it: whatever the program does next, a commit is a rollback.

use sqlx::{
    AssertSqlSafe, Connection as _, Encode, Error, Executor, PgConnection, Postgres, Type,
    postgres::PgArguments, query::Query,
};

use super::{
    FenceColumn, FencedError, StaleFence,
    postgres_sql::{self, Held, SCHEMA, poison, stale_by},
    side::{CHECK_SQL, SEEN_SQL, SIDE_TABLE_SQL},
    to_database,
};
use crate::{Fence, Name};

/// A statement under way, to which the caller binds what its `set` needs.
pub type Statement<'q> = Query<'q, Postgres, PgArguments>;

/// Creates the table that [`check`] uses, in the first schema of the search path; harmless if it is there.
///
/// # Errors
/// What the server says.
///
/// # Cancel safety
/// Dropped, the table may or may not be there. Call it again.
pub async fn create_table(connection: &mut PgConnection) -> Result<(), Error> {
    connection.execute(SIDE_TABLE_SQL).await.map(drop)
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
    tx: &mut PgConnection,
    resource: &str,
    fence: Fence,
) -> Result<(), FencedError<Error>> {
    inside(tx)?;
    let check = sqlx::query(CHECK_SQL).bind(resource).bind(to_database(fence));
    if check.execute(&mut *tx).await?.rows_affected() > 0 {
        return Ok(());
    }
    let seen = sqlx::query_scalar(SEEN_SQL).bind(resource).fetch_one(&mut *tx).await?;
    Err(refuse(tx, stale_by(fence, seen)).await)
}

/// Updates one row of the caller's table, and its fence with it. In `set`, the parameters begin at `$3`; `bind` binds them.
///
/// # Errors
/// [`FencedError::Stale`] if the row has seen a larger fence: the transaction can only be rolled back.
/// [`FencedError::Missing`] if there is no such row.
///
/// # Cancel safety
/// Dropped, the row may or may not be changed in the transaction: roll it back.
pub async fn update<'q, I>(
    tx: &mut PgConnection,
    column: &FenceColumn,
    id: I,
    fence: Fence,
    set: &str,
    bind: impl FnOnce(Statement<'q>) -> Statement<'q>,
) -> Result<(), FencedError<Error>>
where
    I: Encode<'q, Postgres> + Type<Postgres> + Clone + Send + 'q,
{
    inside(tx)?;
    let sql = AssertSqlSafe(column.update_sql(set));
    let update = bind(sqlx::query(sql).bind(id.clone()).bind(to_database(fence)));
    if update.execute(&mut *tx).await?.rows_affected() > 0 {
        return Ok(());
    }
    let seen = sqlx::query_scalar(AssertSqlSafe(column.seen_sql())).bind(id);
    match seen.fetch_optional(&mut *tx).await? {
        Some(seen) => Err(refuse(tx, stale_by(fence, seen)).await),
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
pub async fn claim<'q, I>(
    tx: &mut PgConnection,
    column: &FenceColumn,
    id: I,
    fence: Fence,
) -> Result<(), FencedError<Error>>
where
    I: Encode<'q, Postgres> + Type<Postgres> + Clone + Send + 'q,
{
    update(tx, column, id, fence, "", |statement| statement).await
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
    tx: &mut PgConnection,
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
    tx: &mut PgConnection,
    schema: &str,
    name: &Name,
    fence: Fence,
) -> Result<(), FencedError<Error>> {
    inside(tx)?;
    let hold = sqlx::query_as(AssertSqlSafe(postgres_sql::hold(schema))).bind(name.as_str());
    let stale = match Held::judge(fence, hold.fetch_optional(&mut *tx).await?) {
        Held::Newest => return Ok(()),
        Held::Stale(stale) => stale,
        Held::Unknown => {
            let floor = sqlx::query_scalar(AssertSqlSafe(postgres_sql::floor(schema)));
            let floor = floor.fetch_one(&mut *tx).await?;
            Held::forgotten(fence, floor).ok_or(FencedError::Missing)?
        }
    };
    Err(refuse(tx, stale).await)
}

/// Refuses a connection that is in no transaction: check and write would be two steps.
fn inside(tx: &PgConnection) -> Result<(), Error> {
    let why = || Error::InvalidArgument("a fenced write needs a transaction: `begin` one".into());
    if tx.is_in_transaction() { Ok(()) } else { Err(why()) }
}

/// Fails the transaction on the server, so that a caller who goes on to commit it commits nothing.
async fn refuse(tx: &mut PgConnection, stale: StaleFence) -> FencedError<Error> {
    // Whatever error comes of it, the transaction has failed; without a connection there is none any more.
    let _ = tx.execute(AssertSqlSafe(poison(stale))).await;
    stale.into()
}

impl From<Error> for FencedError<Error> {
    fn from(error: Error) -> Self {
        Self::Driver(error)
    }
}
