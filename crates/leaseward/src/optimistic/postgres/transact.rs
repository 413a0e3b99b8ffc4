//! Transactions that are tried again.

use std::{
    io,
    ops::{ControlFlow, DerefMut},
};

use tokio_postgres::{Client, Error, Transaction, error::Severity};

use crate::{
    fenced,
    optimistic::{
        DONE_SQL, DONE_TABLE_SQL, Failure, GaveUp, Once, Retry, Try, Work,
        rounds::{Ambiguity, Ended},
        run::Tries,
    },
};

/// Creates the table in which [`transact_once`] keeps its keys; harmless if it is there.
///
/// # Errors
/// What the server says.
///
/// # Cancel safety
/// Dropped, the table may or may not be there. Call it again.
pub async fn create_table(client: &Client) -> Result<(), Error> {
    client.batch_execute(DONE_TABLE_SQL).await
}

/// Runs the work in a transaction and commits it. After a conflict (a [`Conflict`](crate::optimistic::Conflict),
/// serialization failure, deadlock) all of it is done again in a new transaction, so the work must do everything anew, reading
/// included, and touch nothing outside.
///
/// # Errors
/// [`GaveUp`] with the last failure. Nothing changed, except perhaps if the commit's answer was lost
/// ([`Why::Ambiguous`](crate::optimistic::Why)).
///
/// # Cancel safety
/// Dropped before the commit, nothing changed; during the commit, it may or may not have happened.
pub async fn transact<'env, T, F>(
    client: &mut Client,
    retry: &Retry,
    mut work: F,
) -> Result<T, GaveUp>
where
    F: for<'a> FnMut(&'a Transaction<'a>, &'a Try) -> Work<'env, 'a, T>,
{
    let mut tries = Tries::new(retry, Ambiguity::Ends);
    loop {
        let this = tries.next().await?;
        let outcome = attempt(client, None, &this, &mut work).await;
        if let ControlFlow::Break(settled) = tries.settle(outcome).await {
            return settled.map(|done| done.expect("BUG: there is no key"));
        }
    }
}

/// Runs the work at most once for a key, also if a commit's answer is lost: it is tried again then, and finds its own key.
/// `connect` gives a connection for each try, from a pool or made anew. [`create_table`] must have been called.
///
/// The key names what the caller wants done (`transfer:8731`), and is in the table from the commit on.
///
/// # Errors
/// As [`transact`]; lost connections are tried again too.
///
/// # Cancel safety
/// Dropped, it may or may not have happened. Call it again with the same key.
pub async fn transact_once<'env, T, F, C, E, Connecting>(
    mut connect: impl FnMut() -> Connecting,
    retry: &Retry,
    key: &str,
    mut work: F,
) -> Result<Once<T>, GaveUp>
where
    F: for<'a> FnMut(&'a Transaction<'a>, &'a Try) -> Work<'env, 'a, T>,
    Connecting: Future<Output = Result<C, E>>,
    C: DerefMut<Target = Client>,
    E: std::error::Error + Send + Sync + 'static,
{
    let mut tries = Tries::new(retry, Ambiguity::IsTriedAgain);
    loop {
        let this = tries.next().await?;
        let outcome = match connect().await {
            Ok(mut client) => attempt(&mut client, Some(key), &this, &mut work).await,
            Err(error) => Err(Ended::Lost(Failure::other(error))),
        };
        if let ControlFlow::Break(settled) = tries.settle(outcome).await {
            return settled.map(|done| done.map_or(Once::Before, Once::Now));
        }
    }
}

/// One try; nothing if the key is taken.
async fn attempt<'env, T, F>(
    client: &mut Client,
    key: Option<&str>,
    this: &Try,
    work: &mut F,
) -> Result<Option<T>, Ended>
where
    F: for<'a> FnMut(&'a Transaction<'a>, &'a Try) -> Work<'env, 'a, T>,
{
    let tx = client.transaction().await.map_err(ended)?;
    if let Some(key) = key
        && tx.execute(DONE_SQL, &[&key]).await.map_err(ended)? == 0
    {
        return Ok(None);
    }
    if let Some(lease) = this.lease() {
        fenced::postgres::check(&tx, lease.name(), lease.fence()).await.map_err(Failure::from)?;
    }
    let done = work(&tx, this).await.map_err(|failure| match failure {
        Failure::Postgres(error) => ended(error),
        other => Ended::Failed(other),
    })?;
    tx.commit().await.map_err(commit_ended)?;
    Ok(Some(done))
}

/// Before the commit.
fn ended(error: Error) -> Ended {
    let is_io = std::error::Error::source(&error).is_some_and(|source| source.is::<io::Error>());
    if is_refusal(&error) || !(error.is_closed() || is_io || error.as_db_error().is_some()) {
        Ended::Failed(error.into())
    } else {
        Ended::Lost(error.into())
    }
}

/// An error in answer to a commit means that there was none. Without an answer nobody knows.
fn commit_ended(error: Error) -> Ended {
    if is_refusal(&error) { Ended::Failed(error.into()) } else { Ended::Ambiguous(error.into()) }
}

/// Whether the server refused something and the connection goes on. Else the connection is lost, or the server is ending it,
/// before or after what was asked.
fn is_refusal(error: &Error) -> bool {
    error.as_db_error().is_some_and(|answer| answer.parsed_severity() == Some(Severity::Error))
}
