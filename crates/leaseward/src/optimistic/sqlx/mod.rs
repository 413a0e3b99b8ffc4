//! PostgreSQL, on the caller's own tables, with `sqlx`.
//!
//! ```no_run
//! use leaseward::optimistic::{Failure, Retry, VersionColumn, Work, sqlx::{load, save, transact}};
//!
//! const ACCOUNTS: VersionColumn = VersionColumn::new("accounts");
//!
//! # async fn example(pool: &sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
//! use sqlx::Row as _;
//!
//! let left = transact(pool, &Retry::new(), |tx, _try| Work::new(async move {
//!     let found = load(tx, &ACCOUNTS, 1_i64, "balance", |row| row.try_get::<i64, _>(0)).await?;
//!     let account = found.ok_or_else(|| Failure::other("no such account"))?;
//!     let left = account.value() - 30;
//!     save(tx, &ACCOUNTS, 1_i64, &account, "balance = $3", |query| query.bind(left)).await?;
//!     Ok(left)
//! }))
//! .await?;
//! # drop(left);
//! # Ok(())
//! # }
//! ```

mod transact;

use sqlx::{
    AssertSqlSafe, Encode, Error, PgConnection, Postgres, Row as _, Type,
    postgres::{PgArguments, PgRow},
    query::Query,
};
pub use transact::{create_table, transact, transact_once};

use super::{
    Conflict, SaveError, Version, VersionColumn, Versioned, from_database, to_database, why,
};

/// A statement under way, to which the caller binds what its `set` needs.
pub type Statement<'q> = Query<'q, Postgres, PgArguments>;

/// Reads columns of one row and its version; nothing if there is no such row.
///
/// # Errors
/// What the server says, or `make` about the row.
///
/// # Cancel safety
/// Cancel safe: it only reads.
pub async fn load<'q, I, T>(
    connection: &mut PgConnection,
    column: &VersionColumn,
    id: I,
    columns: &str,
    make: impl FnOnce(&PgRow) -> Result<T, Error>,
) -> Result<Option<Versioned<T>>, Error>
where
    I: Encode<'q, Postgres> + Type<Postgres> + 'q,
{
    let load = sqlx::query(AssertSqlSafe(column.load_sql(columns))).bind(id);
    let Some(row) = load.fetch_optional(connection).await? else { return Ok(None) };
    let version = from_database(row.try_get(row.len() - 1)?);
    Ok(Some(Versioned::new(make(&row)?, version)))
}

/// Saves one row if it still has the version it was read with; answers the new one. In `set`, the parameters begin at `$3`;
/// `bind` binds them.
///
/// One statement, so it may also be sent outside of a transaction. On a conflict a second one asks what became of the row.
///
/// # Errors
/// [`SaveError::Conflict`] if it has another version, or is gone: nothing changed.
///
/// # Cancel safety
/// Dropped, the row may or may not be saved: in a transaction, roll back; outside, load it again.
pub async fn save<'q, I, T>(
    connection: &mut PgConnection,
    column: &VersionColumn,
    id: I,
    read: &Versioned<T>,
    set: &str,
    bind: impl FnOnce(Statement<'q>) -> Statement<'q>,
) -> Result<Version, SaveError<Error>>
where
    I: Encode<'q, Postgres> + Type<Postgres> + Clone + 'q,
{
    let saved = carry_out(connection, column, id, read.version(), set, bind).await?;
    saved.map_err(SaveError::Conflict)
}

/// Saves many rows, each an id, the version it was read with and what is to be bound; answers for each, in their order. Give
/// them in the order of their ids: two batches in opposite orders deadlock, and one of them is rolled back (`40P01`).
///
/// Rows with a conflict are left as they are, the others are saved. If it should be all or none, roll back.
///
/// # Errors
/// What the server says. In a transaction, nothing is saved then.
///
/// # Cancel safety
/// As [`save`].
pub async fn save_many<'q, I, B>(
    connection: &mut PgConnection,
    column: &VersionColumn,
    set: &str,
    changes: impl IntoIterator<Item = (I, Version, B)>,
) -> Result<Vec<Result<Version, Conflict>>, Error>
where
    I: Encode<'q, Postgres> + Type<Postgres> + Clone + 'q,
    B: FnOnce(Statement<'q>) -> Statement<'q>,
{
    let mut outcomes = Vec::new();
    for (id, seen, bind) in changes {
        outcomes.push(carry_out(connection, column, id, seen, set, bind).await?);
    }
    Ok(outcomes)
}

async fn carry_out<'q, I>(
    connection: &mut PgConnection,
    column: &VersionColumn,
    id: I,
    seen: Version,
    set: &str,
    bind: impl FnOnce(Statement<'q>) -> Statement<'q>,
) -> Result<Result<Version, Conflict>, Error>
where
    I: Encode<'q, Postgres> + Type<Postgres> + Clone + 'q,
{
    let sql = AssertSqlSafe(column.save_sql(set));
    let save = bind(sqlx::query(sql).bind(id.clone()).bind(to_database(seen)));
    if let Some(row) = save.fetch_optional(&mut *connection).await? {
        return Ok(Ok(from_database(row.try_get(0)?)));
    }
    let current = sqlx::query_scalar(AssertSqlSafe(column.current_sql())).bind(id);
    Ok(Err(why(current.fetch_optional(connection).await?)))
}

impl From<Error> for SaveError<Error> {
    fn from(error: Error) -> Self {
        Self::Driver(error)
    }
}
