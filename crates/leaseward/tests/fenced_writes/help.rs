//! What the tests share: one PostgreSQL server, and fences.

use std::sync::LazyLock;

use leaseward::{
    Fence,
    fenced::{FencedError, StaleFence},
};
use leaseward_testkit::Postgres;
use tokio_postgres::{Client, NoTls};

/// One server for all tests, a database for each.
pub(crate) static SERVER: LazyLock<Postgres> = LazyLock::new(Postgres::start);

pub(crate) fn fence(number: u64) -> Fence {
    Fence::new(number)
}

/// That a write was refused, and why.
pub(crate) fn assert_stale<E>(outcome: Result<(), FencedError<E>>, given: u64, seen: u64)
where
    E: std::fmt::Debug,
{
    let error = outcome.expect_err("a stale fence");
    let expected = StaleFence { given: fence(given), seen: fence(seen) };
    assert_eq!(error.stale(), Some(expected), "{error:?}");
}

/// A client of a server, whose connection ends with it.
pub(crate) async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a server");
    tokio::spawn(connection);
    client
}
