//! Locks for the length of a transaction of the caller's own: `leaseward::postgres::lock_in(&tx, "orders")`.
//!
//! They need no store, no lease and no release: the server frees them with the commit or the rollback, and never before
//! what the transaction did is visible to the next holder. The keys are those of [`AdvisoryKey`], so they keep out, and
//! are kept out by, the locks of a `postgres+advisory` store.

use tokio_postgres::{Transaction, types::Type};

use super::{
    super::{
        error::{self, Stage},
        wire::Param,
    },
    key::{AdvisoryKey, Slot},
};
use crate::{Error, ErrorKind};

/// Takes a lock until the end of the transaction, waiting for it in the server's queue.
///
/// Wait no longer than this by `SET LOCAL lock_timeout`. A transaction that waits for a second lock while another one
/// waits for its first is ended by the server's own deadlock check.
///
/// # Cancel safety
/// Dropped while it waits, it goes on waiting in the server until the transaction's connection is told otherwise: roll
/// the transaction back, or cancel the statement by the connection's cancel token. The lock never outlives the
/// transaction.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] for a name that is none, [`ErrorKind::Deadlock`] if the server broke a deadlock,
/// [`ErrorKind::Timeout`] after `lock_timeout`; else what the server says. The transaction can then only be rolled back.
pub async fn lock_in<K>(tx: &Transaction<'_>, key: K) -> Result<(), Error>
where
    K: TryInto<AdvisoryKey>,
    Error: From<K::Error>,
{
    call(tx, "pg_advisory_xact_lock", key.try_into()?.slot()).await.map(drop)
}

/// The same, together with other readers.
///
/// # Cancel safety
/// As [`lock_in`].
///
/// # Errors
/// As [`lock_in`].
pub async fn lock_shared_in<K>(tx: &Transaction<'_>, key: K) -> Result<(), Error>
where
    K: TryInto<AdvisoryKey>,
    Error: From<K::Error>,
{
    call(tx, "pg_advisory_xact_lock_shared", key.try_into()?.slot()).await.map(drop)
}

/// Takes a lock until the end of the transaction if it is free. `false` if it is not.
///
/// # Cancel safety
/// Cancel safe as far as the lock is concerned: it never outlives the transaction.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] for a name that is none; else what the server says. The transaction can then only be
/// rolled back.
pub async fn try_lock_in<K>(tx: &Transaction<'_>, key: K) -> Result<bool, Error>
where
    K: TryInto<AdvisoryKey>,
    Error: From<K::Error>,
{
    call(tx, "pg_try_advisory_xact_lock", key.try_into()?.slot()).await
}

/// The same, together with other readers.
///
/// # Cancel safety
/// As [`try_lock_in`].
///
/// # Errors
/// As [`try_lock_in`].
pub async fn try_lock_shared_in<K>(tx: &Transaction<'_>, key: K) -> Result<bool, Error>
where
    K: TryInto<AdvisoryKey>,
    Error: From<K::Error>,
{
    call(tx, "pg_try_advisory_xact_lock_shared", key.try_into()?.slot()).await
}

async fn call(tx: &Transaction<'_>, function: &str, slot: Slot) -> Result<bool, Error> {
    let text = |arguments: &str| select(function, arguments);
    let answer = match slot {
        Slot::One(key) => {
            let params: [Param<'_>; 1] = [(&key, Type::INT8)];
            tx.query_typed(&text("$1"), &params).await
        }
        Slot::Two(first, second) => {
            let params: [Param<'_>; 2] = [(&first, Type::INT4), (&second, Type::INT4)];
            tx.query_typed(&text("$1, $2"), &params).await
        }
    };
    let rows = answer.map_err(|failure| explain(&failure))?;
    let row = rows.first().ok_or_else(super::super::answers::unexpected)?;
    super::super::answers::column(row, 0)
}

/// The statement that calls one of the functions. One that waits answers nothing, and that as text is something.
pub(super) fn select(function: &str, arguments: &str) -> String {
    format!("SELECT {function}({arguments})::text <> 'false'")
}

fn explain(failure: &tokio_postgres::Error) -> Error {
    let said = failure.as_db_error();
    said.and_then(|said| not_given(said.code().code(), said.message()))
        .unwrap_or_else(|| error::translate(failure, Stage::Asked, "PostgreSQL"))
}

/// What the server's code means if it is about the lock itself.
pub(super) fn not_given(code: &str, said: &str) -> Option<Error> {
    let kind = match code {
        "40P01" => ErrorKind::Deadlock,
        "55P03" | "57014" => ErrorKind::Timeout,
        _ => return None,
    };
    let error = Error::new(kind, format!("the lock was not given: {said}"));
    Some(error.hint("nothing was changed: roll the transaction back and begin it again"))
}
