//! Transactions that are tried again.

use std::ops::ControlFlow;

use rusqlite::{Connection, Error, ErrorCode, Transaction};

use crate::{
    fenced,
    optimistic::{
        DONE_SQL, DONE_TABLE_SQL, Failure, GaveUp, Once, Retry, Try,
        rounds::{Ambiguity, Ended},
        run::BlockingTries,
    },
};

/// Creates the table in which [`transact_once`] keeps its keys; harmless if it is there.
///
/// # Errors
/// What SQLite says.
pub fn create_table(connection: &Connection) -> Result<(), Error> {
    connection.execute_batch(DONE_TABLE_SQL)
}

/// Runs the work in a transaction and commits it. After a conflict (a [`Conflict`](crate::optimistic::Conflict),
/// `SQLITE_BUSY_SNAPSHOT`, `SQLITE_BUSY`) all of it is done again in a new transaction, so the work must do everything anew,
/// reading included, and touch nothing outside.
///
/// The transaction begins deferred: it reads beside other writers, and finds out at its first write that it was overtaken.
///
/// # Errors
/// [`GaveUp`] with the last failure. Nothing changed, except perhaps if the disk failed during the commit
/// ([`Why::Ambiguous`](crate::optimistic::Why)).
pub fn transact<T>(
    connection: &mut Connection,
    retry: &Retry,
    mut work: impl FnMut(&Transaction<'_>, &Try) -> Result<T, Failure>,
) -> Result<T, GaveUp> {
    let mut tries = BlockingTries::new(retry, Ambiguity::Ends);
    loop {
        let this = tries.next()?;
        let outcome = attempt(connection, None, &this, &mut work);
        if let ControlFlow::Break(settled) = tries.settle(outcome) {
            return settled.map(|done| done.expect("BUG: there is no key"));
        }
    }
}

/// Runs the work at most once for a key, also if it is unknown whether a commit happened: it is tried again then, and finds
/// its own key. [`create_table`] must have been called.
///
/// The key names what the caller wants done (`transfer:8731`), and is in the table from the commit on.
///
/// # Errors
/// As [`transact`].
pub fn transact_once<T>(
    connection: &mut Connection,
    retry: &Retry,
    key: &str,
    mut work: impl FnMut(&Transaction<'_>, &Try) -> Result<T, Failure>,
) -> Result<Once<T>, GaveUp> {
    let mut tries = BlockingTries::new(retry, Ambiguity::IsTriedAgain);
    loop {
        let this = tries.next()?;
        let outcome = attempt(connection, Some(key), &this, &mut work);
        if let ControlFlow::Break(settled) = tries.settle(outcome) {
            return settled.map(|done| done.map_or(Once::Before, Once::Now));
        }
    }
}

/// One try; nothing if the key is taken.
fn attempt<T>(
    connection: &mut Connection,
    key: Option<&str>,
    this: &Try,
    work: &mut impl FnMut(&Transaction<'_>, &Try) -> Result<T, Failure>,
) -> Result<Option<T>, Ended> {
    let tx = connection.transaction()?;
    if let Some(key) = key
        && tx.execute(DONE_SQL, [key])? == 0
    {
        return Ok(None);
    }
    if let Some(lease) = this.lease() {
        fenced::sqlite::check(&tx, lease.name(), lease.fence()).map_err(Failure::from)?;
    }
    let done = work(&tx, this)?;
    tx.commit().map_err(commit_ended)?;
    Ok(Some(done))
}

/// After these nothing is committed. After any other the log may hold the whole commit though SQLite reports a failure.
fn commit_ended(error: Error) -> Ended {
    match error.sqlite_error_code() {
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::DiskFull
            | ErrorCode::ReadOnly
            | ErrorCode::ConstraintViolation,
        ) => Ended::Failed(error.into()),
        _ => Ended::Ambiguous(error.into()),
    }
}
