//! The tables and functions in the database, and how older, newer and missing ones are met.

use tokio_postgres::{Client, Row, error::SqlState, types::Type};

use super::{
    answers::column,
    config::Config,
    dial::Dialler,
    error::{self, Stage},
    lines::Lines,
};
use crate::{Error, ErrorKind, store::StoreUrl};

/// The newest schema this version knows, kept in the table `meta`. The tables have been the same since the first; the
/// second added a function for lone releases, the third one for lone asks.
const VERSION: i32 = 3;

/// Under this lock the schema is made, so that of many who come first one makes it.
pub(super) const MAKING: i64 = 0x006c_6561_7365_7764;

const TABLES: &str = include_str!("sql/tables.sql");

/// Made anew by each version, in the order in which they need each other.
const FUNCTIONS: [&str; 8] = [
    include_str!("sql/steps.sql"),
    include_str!("sql/operations.sql"),
    include_str!("sql/plain.sql"),
    include_str!("sql/submit.sql"),
    include_str!("sql/take.sql"),
    include_str!("sql/give_back.sql"),
    include_str!("sql/break.sql"),
    include_str!("sql/sweep.sql"),
];

/// What stands in for the settings that every function called from outside has.
const SETTINGS: &str = "@settings@";

/// Sees to it that everything is there.
pub(super) async fn ready(lines: &Lines, config: &Config, dialler: &Dialler) -> Result<(), Error> {
    let meta = format!("{}.meta", config.schema);
    let found = lines.query("SELECT to_regclass($1) IS NOT NULL", &[(&meta, Type::TEXT)]).await?;
    if !found.first().map_or(Ok(false), |row| column(row, 0))? {
        return make(config, dialler).await.map(drop);
    }
    let found = lines.query(&format!("SELECT version FROM {meta}"), &[]).await?;
    match version_in(found.first()) {
        Some(VERSION) => Ok(()),
        Some(version) if version > VERSION => Err(newer(version)),
        Some(_) => make(config, dialler).await.map(drop),
        None => Err(foreign(&config.schema)),
    }
}

/// Which version made the tables; `None` if they are not ours.
fn version_in(row: Option<&Row>) -> Option<i32> {
    row?.try_get(0).ok()
}

/// What [`migrate`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migrated {
    /// The schema was made.
    Made,
    /// An older one was brought up to date. Leases and who waits for them are as they were.
    Upgraded,
    /// It was there already, as it should be.
    NothingToDo,
}

/// Makes the schema that a store's URL names, or brings it up to date, as a user who may; for those whose programs may
/// not.
///
/// # Cancel safety
/// Cancel safe: either all of it is made or nothing.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] if the URL is none of PostgreSQL's; else what the server says.
pub async fn migrate(url: &str) -> Result<Migrated, Error> {
    let url = StoreUrl::parse(url)?;
    if super::advisory::SCHEME.names.contains(&url.scheme.as_str()) {
        return super::advisory::migrate(&url).await;
    }
    if !super::SCHEME.names.contains(&url.scheme.as_str()) {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!("a store of the scheme `{}` has no schema to make", url.scheme),
        ));
    }
    let config = Config::from_url(&url)?;
    let dialler = Dialler::new(&config, "migrate")?;
    make(&config, &dialler).await
}

/// Makes it in one transaction, unless somebody else does so first.
async fn make(config: &Config, dialler: &Dialler) -> Result<Migrated, Error> {
    let at = config.location();
    let (client, carrier) = dialler.dial(&config.server, &at).await?;
    let carrying = tokio::spawn(async move { drop(carrier.await) });
    let outcome = make_with(&client, &config.schema).await;
    drop(client);
    let _ = carrying.await;
    match outcome {
        Ok(migrated) => migrated,
        Err(failure) => {
            let is_forbidden = failure.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE);
            let translated = error::translate(&failure, Stage::Connecting, &at);
            Err(if is_forbidden { may_not(&config.schema, &translated) } else { translated })
        }
    }
}

type Sql<T> = Result<T, tokio_postgres::Error>;

async fn make_with(client: &Client, schema: &str) -> Sql<Result<Migrated, Error>> {
    // What others have made while we waited for the lock must be seen, whatever the database's default is.
    let begin = "BEGIN ISOLATION LEVEL READ COMMITTED";
    client.batch_execute(&format!("{begin}; SELECT pg_advisory_xact_lock({MAKING})")).await?;
    let outcome = make_locked(client, schema).await?;
    client.batch_execute(if outcome.is_ok() { "COMMIT" } else { "ROLLBACK" }).await?;
    Ok(outcome)
}

async fn make_locked(client: &Client, schema: &str) -> Sql<Result<Migrated, Error>> {
    let sql = "SELECT to_regnamespace($1) IS NOT NULL, to_regclass($1 || '.meta') IS NOT NULL, \
               pg_is_in_recovery(), current_setting('server_encoding')";
    let found = client.query_typed_one(sql, &[(&schema, Type::TEXT)]).await?;
    let (has_schema, has_meta): (bool, bool) = (found.try_get(0)?, found.try_get(1)?);
    if has_meta {
        let sql = format!("SELECT version FROM {schema}.meta");
        let found = client.query_typed_opt(&sql, &[]).await?;
        return Ok(match version_in(found.as_ref()) {
            Some(VERSION) => Ok(Migrated::NothingToDo),
            Some(version) if version > VERSION => Err(newer(version)),
            Some(_) => {
                client.batch_execute(&upgrade(schema)).await?;
                Ok(Migrated::Upgraded)
            }
            None => Err(foreign(schema)),
        });
    }
    if found.try_get(2)? {
        return Ok(Err(standby()));
    }
    let encoding: &str = found.try_get(3)?;
    if encoding != "UTF8" {
        return Ok(Err(other_encoding(encoding)));
    }
    if !has_schema {
        client.batch_execute(&format!("CREATE SCHEMA {schema}")).await?;
    }
    client.batch_execute(&text(schema)).await?;
    Ok(Ok(Migrated::Made))
}

/// All statements that make the schema.
fn text(schema: &str) -> String {
    let (path, functions) = (path(schema), functions(schema));
    format!("{path}; {TABLES}; {functions}; INSERT INTO meta (version) VALUES ({VERSION})")
}

/// All statements that bring an older schema up to date.
fn upgrade(schema: &str) -> String {
    let (path, functions) = (path(schema), functions(schema));
    format!("{path}; {functions}; UPDATE meta SET version = {VERSION}")
}

fn path(schema: &str) -> String {
    format!("SET LOCAL search_path = {schema}, pg_catalog")
}

fn functions(schema: &str) -> String {
    // Whatever the caller's settings are. Small tables too are read by their index: a plan made while they were small
    // is kept for as long as the connection. Compiling plans takes longer than carrying them out.
    let settings = format!(
        "SET search_path = {schema}, pg_catalog, pg_temp SET enable_seqscan = off SET jit = off \
         SET plan_cache_mode = force_generic_plan"
    );
    FUNCTIONS.concat().replace(SETTINGS, &settings)
}

fn newer(version: i32) -> Error {
    let message = format!(
        "the tables for leases were made by a newer version (schema {version}, this one knows {VERSION})"
    );
    Error::new(ErrorKind::Refused, message)
        .hint("upgrade this program, or name another schema: `?schema=NAME`")
}

fn foreign(schema: &str) -> Error {
    let message = format!("the schema `{schema}` belongs to another program");
    Error::new(ErrorKind::Refused, message).hint("name another one: `?schema=NAME`")
}

fn may_not(schema: &str, why: &Error) -> Error {
    let message = format!(
        "the schema `{schema}` is not there, or older than this program, and this user may not make it: {}",
        why.message()
    );
    Error::new(ErrorKind::Refused, message)
        .hint("a user who may makes it, or brings it up to date, with `leaseward migrate --store URL`, and grants the rights that docs/stores/postgres.md lists")
}

/// A server that only follows another.
pub(super) fn standby() -> Error {
    let message = "this PostgreSQL is a standby: it takes no writes";
    Error::new(ErrorKind::Refused, message)
        .hint("name the primary, or all servers: `postgres://h1,h2/db`")
}

/// A database that cannot hold every name.
pub(super) fn other_encoding(encoding: &str) -> Error {
    let message = format!("this database is encoded in {encoding}, and names are UTF-8");
    Error::new(ErrorKind::Refused, message).hint(
        "make a database for the leases: `createdb --encoding=UTF8 --template=template0 NAME`",
    )
}

#[cfg(test)]
mod tests {
    use super::{super::error::Class, *};

    #[test]
    fn functions_called_from_outside_have_their_settings() {
        let text = text("other");
        assert!(!text.contains(SETTINGS));
        for function in ["submit", "take", "give_back", "break_lease", "sweep"] {
            let begin =
                text.find(&format!("CREATE OR REPLACE FUNCTION {function}(")).expect(function);
            let body = text[begin..].find("AS $$").expect(function);
            assert!(text[begin..begin + body].contains("search_path = other,"), "{function}");
        }
        assert_eq!(Class::of(&SqlState::INSUFFICIENT_PRIVILEGE), Class::NoPermission);
    }
}
