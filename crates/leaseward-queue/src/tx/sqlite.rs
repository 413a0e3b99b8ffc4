//! In transactions of `rusqlite`, on the queue's own file.
//!
//! ```no_run
//! use leaseward_queue::{Context, NewJob, Queue, tx};
//!
//! # async fn example(mut conn: rusqlite::Connection, queue: &Queue, context: &Context) -> Result<(), Box<dyn std::error::Error>> {
//! // Known before the transaction begins, because the queue has a connection of its own to the file.
//! let jobs = tx::sqlite::prepare(queue, [NewJob::new("mail", "a@example.org")]).await?;
//! let transaction = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
//! transaction.execute("INSERT INTO users (mail) VALUES ('a@example.org')", [])?;
//! tx::sqlite::push(&transaction, &jobs)?;
//! transaction.commit()?;
//! queue.wake("mail");
//!
//! let transaction = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
//! tx::sqlite::complete(&transaction, context)?;
//! transaction.commit()?;
//! # Ok(())
//! # }
//! ```

use rusqlite::{Error, Transaction, params};

use super::{TxError, elsewhere, rows};
use crate::{
    Context, NewJob, Pushed, Queue,
    backend::{Row, sqlite::push_rows},
    events::wall_us,
};

/// Jobs that can be pushed in a transaction.
#[derive(Clone, Debug)]
pub struct Prepared(Vec<Row>);

/// Makes jobs ready to be pushed in a transaction: outside of it, because a queue that is new is written to the file.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](leaseward::ErrorKind) for jobs that cannot be, or a queue in another kind of database.
///
/// # Cancel safety
/// Cancel safe: a queue may have been made.
pub async fn prepare(
    queue: &Queue,
    jobs: impl IntoIterator<Item = NewJob>,
) -> Result<Prepared, leaseward::Error> {
    if queue.inner.backend.schema().is_some() {
        return Err(elsewhere());
    }
    rows(queue, jobs).await.map(Prepared)
}

/// Pushes jobs: they are there once the transaction commits. Workers are told of it by [`Queue::wake`], and find them within
/// a second without.
///
/// # Errors
/// What SQLite says.
pub fn push(tx: &Transaction<'_>, jobs: &Prepared) -> Result<Vec<Pushed>, TxError<Error>> {
    let now = i64::try_from(wall_us()).unwrap_or(i64::MAX);
    let pushes = push_rows(tx, now, &jobs.0)?;
    Ok(pushes.jobs.into_iter().map(Pushed::of).collect())
}

/// Completes the job of a handler: it is done once the transaction commits, and not if it does not.
///
/// # Errors
/// [`TxError::Stale`] if the job was given to another worker: what the transaction had changed is undone.
pub fn complete(tx: &Transaction<'_>, context: &Context) -> Result<(), TxError<Error>> {
    let (session, token, id) = context.completes();
    let sql = "UPDATE lq_leased SET finished = 1 WHERE id = ?1 AND token = ?2 AND session = ?3 AND finished = 0";
    if tx.prepare_cached(sql)?.execute(params![id, token, session])? > 0 {
        return Ok(());
    }
    // So that a caller who goes on to commit it commits nothing of it.
    tx.execute_batch("ROLLBACK; BEGIN")?;
    Err(TxError::Stale(context.id()))
}

impl From<Error> for TxError<Error> {
    fn from(error: Error) -> Self {
        Self::Driver(error)
    }
}
