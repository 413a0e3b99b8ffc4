//! Servers and databases that cannot be used, each said to be what it is.

use std::sync::Arc;

use leaseward::{
    Error, ErrorKind,
    store::Level,
    stores::postgres::{self, Migrated},
};
use leaseward_testkit::{PATIENCE, Postgres, eventually};

use crate::help::{connect, granted, one, server, take, taking, try_open};

async fn refused(url: &str) -> Error {
    let Err(error) = try_open(url).await else { panic!("it was opened") };
    assert!(!format!("{error:?}").contains("secret"), "{error:?} shows a password");
    error
}

fn assert_says(error: &Error, kind: ErrorKind, parts: &[&str]) {
    assert_eq!(error.kind(), kind, "{error:?}");
    assert!(error.hint_text().is_some(), "{error:?} has no hint");
    let text = format!("{error:?}");
    for part in parts {
        assert!(text.contains(part), "{text} does not say {part}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_passwords_users_and_databases() {
    let server = server();
    let wrong = server.url_of("app", "not-the-secret", "postgres");
    assert_says(&refused(&wrong).await, ErrorKind::Refused, &["password authentication failed"]);
    let without = server.url().replace(":app-secret", "");
    assert_says(&refused(&without).await, ErrorKind::Refused, &["asks for a password"]);
    let missing = server.url_of("app", "app-secret", "nowhere");
    assert_says(&refused(&missing).await, ErrorKind::Refused, &["nowhere", "createdb"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_there_and_somebody_else_there() {
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        free.local_addr().expect("an address").port()
    };
    let nobody = format!("postgres://u:secret@127.0.0.1:{port}/d");
    assert_says(&refused(&nobody).await, ErrorKind::Unavailable, &["is it running"]);
    let redis = leaseward_testkit::RedisServer::start();
    let other = format!("postgres://u:secret@{}/d?timeout=500ms", redis.address());
    assert_says(&refused(&other).await, ErrorKind::Unavailable, &[&redis.address()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_may_not_make_the_tables_uses_those_that_another_made() {
    let server = server();
    let poor = server.user("poor");
    assert_says(
        &refused(&poor).await,
        ErrorKind::Refused,
        &["may not make it", "leaseward migrate"],
    );
    assert_eq!(postgres::migrate(&server.url()).await.expect("made"), Migrated::Made);
    assert_eq!(postgres::migrate(&server.url()).await.expect("there"), Migrated::NothingToDo);
    assert_says(
        &refused(&poor).await,
        ErrorKind::Refused,
        &["permission denied", "docs/stores/postgres.md"],
    );
    // What docs/stores/postgres.md says, and no more.
    server.sql("GRANT USAGE ON SCHEMA leaseward TO poor");
    server.sql("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA leaseward TO poor");
    let locks = connect(&poor).await;
    let held = take(locks.lock("a")).await;
    held.renew().await.expect("renewed");
    held.release().await.expect("given back");
    drop(locks.all(["a", "b"]).try_acquire().await.expect("answered"));
    locks.break_lease("a", true).await.expect("answered");
    assert!(!locks.diagnose().await.expect("answered").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_takes_no_leases_and_the_primary_is_found_among_several() {
    let primary = server();
    drop(try_open(&primary.url()).await.expect("the tables are made"));
    let standby = Postgres::builder().in_memory().standby_of(&primary).start();
    assert_says(
        &refused(&standby.url()).await,
        ErrorKind::Refused,
        &["standby", "name the primary"],
    );
    eventually("it follows", PATIENCE, || {
        (primary.sql("SELECT count(*) FROM pg_stat_replication") == "1").then_some(())
    });
    let both = primary
        .url()
        .replace(&primary.address(), &format!("{},{}", standby.address(), primary.address()));
    let locks = connect(&both).await;
    take(locks.lock("a")).await.release().await.expect("given back");
    // And it is said what such a pair promises.
    let promised = locks.guarantee();
    assert_eq!(promised.exclusion, Level::MayBreak);
    assert!(
        promised.breaks_when.iter().any(|when| when.contains("asynchronous standby")),
        "{promised:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn newer_foreign_and_oddly_encoded_databases_are_left_alone() {
    let server = server();
    drop(try_open(&server.url()).await.expect("the tables are made"));
    server.sql("UPDATE leaseward.meta SET version = 99");
    assert_says(&refused(&server.url()).await, ErrorKind::Refused, &["newer version", "schema 99"]);
    let migration = postgres::migrate(&server.url()).await.expect_err("newer");
    assert_says(&migration, ErrorKind::Refused, &["newer version"]);
    let elsewhere =
        try_open(&format!("{}?schema=leaseward_2", server.url())).await.expect("another one");
    granted(one(&*elsewhere, taking("a", 1)).await);
    server.sql("CREATE SCHEMA theirs; CREATE TABLE theirs.meta AS SELECT 'one'::text AS version");
    let theirs = format!("{}?schema=theirs", server.url());
    assert_says(&refused(&theirs).await, ErrorKind::Refused, &["belongs to another program"]);
    let migration = postgres::migrate(&theirs).await.expect_err("not ours");
    assert_says(&migration, ErrorKind::Refused, &["belongs to another program"]);
    server.sql("CREATE DATABASE odd ENCODING 'LATIN1' TEMPLATE template0");
    let odd = server.url_of("app", "app-secret", "odd");
    assert_says(&refused(&odd).await, ErrorKind::Refused, &["LATIN1", "UTF8"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_who_come_first_make_the_tables_once() {
    let server = server();
    let url: Arc<str> = Arc::from(server.url());
    let opening: Vec<_> = (0..16)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(async move { try_open(&url).await.expect("opened") })
        })
        .collect();
    for store in opening {
        let store = store.await.expect("no panic");
        assert!(store.ping().await.is_ok());
    }
    assert_eq!(server.sql("SELECT count(*) FROM leaseward.meta"), "1");
    assert!(!server.log().contains("ERROR"), "{}", server.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn migrating_is_for_postgresql_only() {
    let error = postgres::migrate("memory:").await.expect_err("it has none");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}
