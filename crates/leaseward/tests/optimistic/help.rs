//! What the tests share: one PostgreSQL server, a table, and versions.

use std::sync::LazyLock;

use leaseward::optimistic::{Version, VersionColumn};
use leaseward_testkit::Postgres;
use tokio_postgres::{Client, NoTls};

/// One server for all tests, a database for each.
pub(crate) static SERVER: LazyLock<Postgres> = LazyLock::new(Postgres::start);

pub(crate) const COUNTERS: VersionColumn = VersionColumn::new("counters");

/// Three rows. For PostgreSQL and SQLite.
pub(crate) const TABLE: &str = "
    CREATE TABLE counters (id bigint PRIMARY KEY, count bigint NOT NULL, version bigint NOT NULL DEFAULT 1);
    INSERT INTO counters (id, count) VALUES (1, 10), (2, 20), (3, 30)";

pub(crate) fn version(number: u64) -> Version {
    Version::new(number)
}

/// A client of a server, whose connection ends with it.
pub(crate) async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a server");
    tokio::spawn(connection);
    client
}

/// A database of one's own with the table in it.
pub(crate) async fn database(name: &str) -> (String, Client) {
    let url = SERVER.database(name);
    let client = connect(&url).await;
    client.batch_execute(TABLE).await.expect("a table");
    (url, client)
}

pub(crate) async fn count(client: &Client, id: i64) -> i64 {
    client.query_one("SELECT count FROM counters WHERE id = $1", &[&id]).await.expect("it").get(0)
}
