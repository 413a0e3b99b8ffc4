//! In transactions of `tokio-postgres`.
//!
//! ```no_run
//! use leaseward_queue::{Context, NewJob, Queue, tx};
//!
//! # async fn example(client: &mut tokio_postgres::Client, queue: &Queue, context: &Context) -> Result<(), Box<dyn std::error::Error>> {
//! let transaction = client.transaction().await?;
//! transaction.execute("INSERT INTO users (mail) VALUES ('a@example.org')", &[]).await?;
//! tx::postgres::push(&transaction, queue, [NewJob::new("mail", "a@example.org")]).await?;
//! transaction.commit().await?;
//!
//! // In a handler: the effect and the end of the job are one commit.
//! let transaction = client.transaction().await?;
//! transaction.execute("UPDATE users SET welcomed = true WHERE mail = 'a@example.org'", &[]).await?;
//! tx::postgres::complete(&transaction, context).await?;
//! transaction.commit().await?;
//! # Ok(())
//! # }
//! ```

use tokio_postgres::{
    Error, Transaction,
    types::{ToSql, Type},
};

use super::{TxError, elsewhere, poison, rows};
use crate::{
    Context, NewJob, Pushed, Queue,
    backend::postgres::{Columns, pushed},
};

/// Pushes jobs: they are there once the transaction commits. Workers that sleep are told then.
///
/// # Errors
/// [`TxError::Queue`] for jobs that cannot be, or a queue in another kind of database: the transaction is as it was.
///
/// # Cancel safety
/// Dropped, the jobs may or may not be pushed in the transaction: roll it back.
pub async fn push(
    tx: &Transaction<'_>,
    queue: &Queue,
    jobs: impl IntoIterator<Item = NewJob>,
) -> Result<Vec<Pushed>, TxError<Error>> {
    let schema = queue.inner.backend.schema().ok_or_else(elsewhere)?;
    let rows = rows(queue, jobs).await?;
    let columns = Columns::of(&rows);
    let sql = format!("SELECT ids, fresh FROM {schema}.push_in($1, $2, $3, $4, $5, $6)");
    let given: [(&(dyn ToSql + Sync), Type); 6] = [
        (&columns.slots, Type::INT8_ARRAY),
        (&columns.bodies, Type::BYTEA_ARRAY),
        (&columns.dues, Type::INT8_ARRAY),
        (&columns.keys, Type::TEXT_ARRAY),
        (&columns.uniques, Type::TEXT_ARRAY),
        (&columns.windows, Type::INT8_ARRAY),
    ];
    let rows = tx.query_typed(&sql, &given).await?;
    let Some(row) = rows.first() else { return Ok(Vec::new()) };
    let (ids, fresh): (Vec<i64>, Vec<bool>) = (row.try_get(0)?, row.try_get(1)?);
    Ok(pushed(&ids, &fresh).into_iter().map(Pushed::of).collect())
}

/// Completes the job of a handler: it is done once the transaction commits, and not if it does not. Until then its lease
/// cannot be taken away. Call it last, and commit soon.
///
/// If the handler ends well without a commit, the job is done all the same; if it fails, the job is tried again unless the
/// transaction has been committed.
///
/// # Errors
/// [`TxError::Stale`] if the job was given to another worker: the transaction can only be rolled back.
///
/// # Cancel safety
/// Dropped, the job may or may not be completed in the transaction: roll it back.
pub async fn complete(tx: &Transaction<'_>, context: &Context) -> Result<(), TxError<Error>> {
    let schema = context.handle().inner.backend.schema().ok_or_else(elsewhere)?;
    let sql = format!("SELECT {schema}.complete_in($1, $2, $3)");
    let (session, token, id) = context.completes();
    let given: [(&(dyn ToSql + Sync), Type); 3] =
        [(&session, Type::INT8), (&token, Type::INT8), (&id, Type::INT8)];
    let rows = tx.query_typed(&sql, &given).await?;
    let is_ours = rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or(false);
    if is_ours {
        return Ok(());
    }
    // Whatever error comes of it, the transaction has failed: a caller who goes on to commit it commits nothing.
    let _ = tx.batch_execute(&poison(context.id())).await;
    Err(TxError::Stale(context.id()))
}

impl From<Error> for TxError<Error> {
    fn from(error: Error) -> Self {
        Self::Driver(error)
    }
}
