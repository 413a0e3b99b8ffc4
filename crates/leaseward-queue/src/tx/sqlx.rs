//! In transactions of `sqlx` on PostgreSQL.
//!
//! ```no_run
//! use leaseward_queue::{Context, NewJob, Queue, tx};
//!
//! # async fn example(pool: &sqlx::PgPool, queue: &Queue, context: &Context) -> Result<(), Box<dyn std::error::Error>> {
//! let mut transaction = pool.begin().await?;
//! tx::sqlx::push(&mut transaction, queue, [NewJob::new("mail", "a@example.org")]).await?;
//! transaction.commit().await?;
//!
//! let mut transaction = pool.begin().await?;
//! tx::sqlx::complete(&mut transaction, context).await?;
//! transaction.commit().await?;
//! # Ok(())
//! # }
//! ```

use sqlx::{AssertSqlSafe, Error, Executor as _, PgConnection, Row as _};

use super::{TxError, elsewhere, poison, rows};
use crate::{
    Context, NewJob, Pushed, Queue,
    backend::postgres::{Columns, pushed},
};

/// As [`postgres::push`](super::postgres::push), with the connection of a transaction.
///
/// # Errors
/// As there.
///
/// # Cancel safety
/// As there.
pub async fn push(
    tx: &mut PgConnection,
    queue: &Queue,
    jobs: impl IntoIterator<Item = NewJob>,
) -> Result<Vec<Pushed>, TxError<Error>> {
    let schema = queue.inner.backend.schema().ok_or_else(elsewhere)?;
    let rows = rows(queue, jobs).await?;
    let Columns { slots, bodies, dues, keys, uniques, windows } = Columns::of(&rows);
    let sql =
        AssertSqlSafe(format!("SELECT ids, fresh FROM {schema}.push_in($1, $2, $3, $4, $5, $6)"));
    let call =
        sqlx::query(sql).bind(slots).bind(bodies).bind(dues).bind(keys).bind(uniques).bind(windows);
    let row = call.fetch_one(tx).await?;
    let (ids, fresh): (Vec<i64>, Vec<bool>) = (row.try_get(0)?, row.try_get(1)?);
    Ok(pushed(&ids, &fresh).into_iter().map(Pushed::of).collect())
}

/// As [`postgres::complete`](super::postgres::complete), with the connection of a transaction.
///
/// # Errors
/// As there.
///
/// # Cancel safety
/// As there.
pub async fn complete(tx: &mut PgConnection, context: &Context) -> Result<(), TxError<Error>> {
    let schema = context.handle().inner.backend.schema().ok_or_else(elsewhere)?;
    let sql = AssertSqlSafe(format!("SELECT {schema}.complete_in($1, $2, $3)"));
    let (session, token, id) = context.completes();
    let call = sqlx::query_scalar(sql).bind(session).bind(token).bind(id);
    if call.fetch_one(&mut *tx).await? {
        return Ok(());
    }
    // Whatever error comes of it, the transaction has failed: a caller who goes on to commit it commits nothing.
    let _ = tx.execute(AssertSqlSafe(poison(context.id()))).await;
    Err(TxError::Stale(context.id()))
}

impl From<Error> for TxError<Error> {
    fn from(error: Error) -> Self {
        Self::Driver(error)
    }
}
