//! The same locks in a transaction of `sqlx`: `leaseward::postgres::sqlx::lock_in(&mut tx, "orders")`.
//!
//! Give them the transaction, or the connection inside of one; outside of one they are refused, because the lock would be
//! gone with the statement that took it.

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use super::{
    in_transaction::{not_given, select},
    key::{AdvisoryKey, Slot},
};
use crate::{Error, ErrorKind};

/// Takes a lock until the end of the transaction, waiting for it in the server's queue. See
/// [`lock_in`](super::lock_in).
///
/// # Cancel safety
/// As for [`lock_in`](super::lock_in): the lock never outlives the transaction.
///
/// # Errors
/// As for [`lock_in`](super::lock_in); [`ErrorKind::InvalidInput`] outside of a transaction.
pub async fn lock_in<K>(tx: &mut PgConnection, key: K) -> Result<(), Error>
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
pub async fn lock_shared_in<K>(tx: &mut PgConnection, key: K) -> Result<(), Error>
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
/// As [`lock_in`].
pub async fn try_lock_in<K>(tx: &mut PgConnection, key: K) -> Result<bool, Error>
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
/// As [`lock_in`].
pub async fn try_lock_shared_in<K>(tx: &mut PgConnection, key: K) -> Result<bool, Error>
where
    K: TryInto<AdvisoryKey>,
    Error: From<K::Error>,
{
    call(tx, "pg_try_advisory_xact_lock_shared", key.try_into()?.slot()).await
}

async fn call(tx: &mut PgConnection, function: &str, slot: Slot) -> Result<bool, Error> {
    if !tx.is_in_transaction() {
        let message = "a lock for the length of a transaction needs one";
        return Err(Error::new(ErrorKind::InvalidInput, message).hint("call `begin` first"));
    }
    let answer = match slot {
        Slot::One(key) => {
            sqlx::query_scalar(AssertSqlSafe(select(function, "$1"))).bind(key).fetch_one(tx).await
        }
        Slot::Two(first, second) => {
            let text = AssertSqlSafe(select(function, "$1, $2"));
            sqlx::query_scalar(text).bind(first).bind(second).fetch_one(tx).await
        }
    };
    answer.map_err(|failure| explain(&failure))
}

fn explain(failure: &sqlx::Error) -> Error {
    let Some(said) = failure.as_database_error() else {
        let message = "the connection of the transaction broke";
        return Error::new(ErrorKind::Unavailable, message)
            .hint("the server rolls it back: begin it again")
            .caused_by(failure.to_string());
    };
    let code = said.code().unwrap_or_default();
    not_given(&code, said.message()).unwrap_or_else(|| {
        Error::new(ErrorKind::Refused, format!("PostgreSQL refused: {}", said.message()))
    })
}
