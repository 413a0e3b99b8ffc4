//! Schemas that older versions of this library made.

use leaseward::{
    ErrorKind,
    store::Reply,
    stores::postgres::{self, Migrated},
};
use leaseward_testkit::Postgres;

use crate::help::{granted, one, queueing, releasing, server, taking, try_open};

/// Version 1 had the same tables, and of the functions all but two. What they did must not matter any more.
fn make_version_1(server: &Postgres) {
    server.sql("DROP FUNCTION leaseward.give_back, leaseward.take");
    server.sql(
        "CREATE OR REPLACE FUNCTION leaseward.submit(
            me bigint, late_us bigint, waits boolean, simple int,
            kinds smallint[], names text[], tokens bytea[], whos text[], modes int[], spans bigint[], blocks int[],
            delays bigint[], contents bytea[]
        ) RETURNS SETOF leaseward.answer
        LANGUAGE plpgsql AS $$ BEGIN RAISE 'the function of an older version'; END $$",
    );
    server.sql("UPDATE leaseward.meta SET version = 1");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_schema_is_brought_up_to_date_and_keeps_what_is_in_it() {
    let server = server();
    let before = try_open(&server.url()).await.expect("made");
    let first = granted(one(&*before, taking("a", 1)).await);
    let place = one(&*before, queueing("a", 2)).await;
    assert!(matches!(place, Ok(Reply::Queued(_))), "{place:?}");
    make_version_1(&server);
    assert!(one(&*before, taking("b", 1)).await.is_err(), "that is what a version is for");
    let store = try_open(&server.url()).await.expect("brought up to date");
    assert_eq!(server.sql("SELECT version FROM leaseward.meta"), "3");
    let again = one(&*store, taking("a", 3)).await;
    assert!(matches!(again, Ok(Reply::Busy(_))), "{again:?}");
    let released = one(&*store, releasing("a", 1)).await;
    assert!(matches!(released, Ok(Reply::Released)), "{released:?}");
    let next = granted(one(&*store, queueing("a", 2)).await);
    assert!(next.fence() > first.fence());
    // Whoever was there before goes on.
    granted(one(&*before, taking("b", 1)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_bring_it_up_to_date_is_told_who_can() {
    let server = server();
    assert_eq!(postgres::migrate(&server.url()).await.expect("made"), Migrated::Made);
    let poor = server.user("poor");
    server.sql("GRANT USAGE ON SCHEMA leaseward TO poor");
    server.sql("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA leaseward TO poor");
    make_version_1(&server);
    let error = try_open(&poor).await.expect_err("it is too old");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    assert!(error.hint_text().is_some_and(|hint| hint.contains("leaseward migrate")), "{error:?}");
    assert!(error.message().contains("older than this program"), "{error:?}");
    assert_eq!(postgres::migrate(&server.url()).await.expect("rights"), Migrated::Upgraded);
    assert_eq!(postgres::migrate(&server.url()).await.expect("rights"), Migrated::NothingToDo);
    let store = try_open(&poor).await.expect("it may use it");
    granted(one(&*store, taking("a", 1)).await);
}
