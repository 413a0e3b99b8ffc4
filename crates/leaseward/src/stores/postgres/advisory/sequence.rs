//! The sequence that fences come from: all that this store has in the database.

use tokio_postgres::{Client, error::SqlState, types::Type};

use super::{
    super::{
        dial::Dialler,
        error::{self, Stage},
        schema::{self, MAKING, Migrated},
    },
    config::Settings,
    statement,
};
use crate::{Error, ErrorKind, store::StoreUrl};

type Sql<T> = Result<T, tokio_postgres::Error>;

/// Makes it as a user who may, for those whose programs may not.
pub(in super::super) async fn migrate(url: &StoreUrl) -> Result<Migrated, Error> {
    let config = &Settings::from_url(url)?.config;
    let at = config.location();
    let (client, carrier) = Dialler::new(config, "migrate")?.dial(&config.server, &at).await?;
    let carrying = tokio::spawn(async move { drop(carrier.await) });
    let outcome = make(&client, &config.schema).await;
    drop(client);
    let _ = carrying.await;
    outcome.map_err(|failure| explain(&failure, &config.schema, &at))
}

/// Sees to it that it is there.
pub(super) async fn ready(client: &Client, schema: &str, at: &str) -> Result<(), Error> {
    make(client, schema).await.map(drop).map_err(|failure| explain(&failure, schema, at))
}

async fn make(client: &Client, schema: &str) -> Sql<Migrated> {
    let sequence = statement::sequence(schema);
    if is_there(client, &sequence).await? {
        return Ok(Migrated::NothingToDo);
    }
    // Of many who come first one makes it. One string is one transaction, so nothing is left half done.
    client
        .batch_execute(&format!(
            "SET LOCAL client_min_messages = error; SELECT pg_advisory_xact_lock({MAKING}); \
             CREATE SCHEMA IF NOT EXISTS {schema}; \
             CREATE SEQUENCE IF NOT EXISTS {sequence} AS bigint; \
             COMMENT ON SEQUENCE {sequence} IS 'fences of advisory locks'"
        ))
        .await?;
    Ok(Migrated::Made)
}

async fn is_there(client: &Client, sequence: &str) -> Sql<bool> {
    let sql = "SELECT to_regclass($1) IS NOT NULL";
    client.query_typed_one(sql, &[(&sequence, Type::TEXT)]).await?.try_get(0)
}

/// Raises it to the server's clock, unless it is beyond.
///
/// Whoever comes after a crash, a promotion or a restore does this before its first lock: what the sequence has
/// forgotten lies below the clock, as long as fewer than a million locks a second were taken and the clock was not set
/// back.
pub(super) async fn raise(client: &Client, schema: &str) -> Sql<()> {
    let (gate, sequence) = (statement::gate(schema), statement::sequence(schema));
    let sql = format!(
        "SELECT CASE WHEN pg_advisory_xact_lock({gate})::text IS NOT NULL THEN setval('{sequence}', \
         greatest(nextval('{sequence}'), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)) END"
    );
    client.query_typed(&sql, &[]).await.map(drop)
}

pub(super) fn explain(failure: &tokio_postgres::Error, schema: &str, at: &str) -> Error {
    match failure.code() {
        Some(&SqlState::READ_ONLY_SQL_TRANSACTION) => schema::standby(),
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            let message = format!(
                "the sequence `{}` is not there, or this user may not use it",
                statement::sequence(schema)
            );
            Error::new(ErrorKind::Refused, message).hint(
                "a user who may makes it with `leaseward migrate --store URL`, and grants the rights that \
                 docs/stores/postgres-advisory.md lists",
            )
        }
        _ => error::translate(failure, Stage::Connecting, at),
    }
}
