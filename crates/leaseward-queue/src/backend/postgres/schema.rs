//! The tables and functions in the database, and how older, newer and missing ones are met.

use leaseward::{Error, ErrorKind, stores::postgres::Link};
use tokio_postgres::types::Type;

use super::params::{get, only};

/// What each version added, in their order. Never changed once released: forward only.
const STEPS: [&str; 5] = [
    include_str!("sql/v1.sql"),
    include_str!("sql/v2.sql"),
    include_str!("sql/v3.sql"),
    include_str!("sql/v4.sql"),
    include_str!("sql/v5.sql"),
];

/// Made anew by each version.
const FUNCTIONS: [&str; 5] = [
    include_str!("sql/push.sql"),
    include_str!("sql/claim.sql"),
    include_str!("sql/settle.sql"),
    include_str!("sql/keep.sql"),
    include_str!("sql/manage.sql"),
];

/// The newest version of the schema.
pub(super) const VERSION: usize = STEPS.len();

/// Under this lock the schema is made, so that of many who come first one makes it.
const MAKING: i64 = 0x006c_7764_7175_6575;

/// Sees to it that everything is there; answers whether something was missing.
pub(super) async fn ready(link: &Link, schema: &str) -> Result<bool, Error> {
    match version(link, schema).await? {
        Some(VERSION) => Ok(false),
        Some(newer) if newer > VERSION => Err(Error::new(
            ErrorKind::Refused,
            format!("the tables for jobs were made by a newer version (schema {newer}, this one knows {VERSION})"),
        )
        .hint("upgrade this program, or name another schema: `?schema=NAME`")),
        _ => make(link, schema, VERSION).await.map(|()| true),
    }
}

/// The version that is there.
async fn version(link: &Link, schema: &str) -> Result<Option<usize>, Error> {
    let meta = format!("{schema}.meta");
    let there = link.query("SELECT to_regclass($1) IS NOT NULL", &[(&meta, Type::TEXT)]).await?;
    if !get::<bool>(only(&there)?, 0)? {
        return Ok(None);
    }
    let rows = link.query(&format!("SELECT version FROM {meta}"), &[]).await?;
    let version: i32 = get(only(&rows)?, 0)?;
    Ok(usize::try_from(version).ok())
}

/// Brings the schema to a version, from whichever was there.
pub(super) async fn make(link: &Link, schema: &str, wanted: usize) -> Result<(), Error> {
    let mut script = format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock({MAKING});
         CREATE SCHEMA IF NOT EXISTS {schema}; SET LOCAL search_path = {schema}, pg_catalog;
         CREATE TABLE IF NOT EXISTS meta (version int NOT NULL);
         INSERT INTO meta SELECT 0 WHERE NOT EXISTS (SELECT FROM meta);"
    );
    for (at, step) in STEPS.iter().enumerate().take(wanted) {
        // Whoever came first has made it.
        script += &format!(
            "DO $step$ BEGIN IF (SELECT version FROM meta) = {at} THEN {step} UPDATE meta SET version = {}; END IF; END $step$;",
            at + 1
        );
    }
    if wanted == VERSION {
        script += &functions(schema);
    }
    script += "COMMIT";
    link.script(&script).await
}

fn functions(schema: &str) -> String {
    // Whatever the caller's settings are. Small tables too are read by their index: a plan made while they were small is
    // kept for as long as the connection. Compiling plans takes longer than carrying them out.
    let settings = format!(
        "SET search_path = {schema}, pg_catalog, pg_temp SET enable_seqscan = off SET jit = off \
         SET plan_cache_mode = force_generic_plan"
    );
    FUNCTIONS.concat().replace("@settings@", &settings).replace("@schema@", schema)
}
