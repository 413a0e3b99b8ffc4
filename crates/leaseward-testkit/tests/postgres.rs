//! A PostgreSQL server: its options, its end, its return, its standby; PgBouncer before it.

use std::path::Path;

use leaseward_testkit::{PATIENCE, PgBouncer, Postgres, certificates, eventually};

#[test]
fn a_restart_keeps_what_was_committed_and_a_pause_everything() {
    let server = Postgres::builder().conf("work_mem", "5MB").start();
    assert_eq!(server.sql("SHOW work_mem"), "5MB");
    assert_eq!(server.sql("SHOW fsync"), "on");
    server.sql("CREATE TABLE t AS SELECT 1 AS a");
    let (port, pid) = (server.port(), server.pid());
    server.pause();
    server.resume();
    assert_eq!(server.sql("SELECT a FROM t"), "1");
    server.kill();
    assert!(server.try_sql(&server.url(), "SELECT 1").is_err());
    server.restart();
    assert_eq!(server.sql("SELECT a FROM t"), "1");
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
    server.stop();
    server.restart();
    assert_eq!(server.sql("SELECT a FROM t"), "1");
}

#[test]
fn nothing_is_left_behind() {
    let server = Postgres::start();
    let (folder, pid) = (server.folder().to_owned(), server.pid());
    server.pause();
    drop(server);
    assert!(!folder.exists());
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn databases_and_users_are_apart() {
    let server = Postgres::start();
    let other = server.database("other");
    server.sql_in("other", "CREATE TABLE t ()");
    assert!(server.try_sql(&other, "SELECT FROM t").is_ok());
    assert!(server.try_sql(&server.url(), "SELECT FROM t").is_err());
    let poor = server.user("poor");
    let refused = server.try_sql(&poor, "CREATE TABLE t ()").expect_err("no right");
    assert!(refused.contains("permission denied"), "{refused}");
    let wrong = server.url_of("app", "wrong", "postgres");
    let refused = server.try_sql(&wrong, "SELECT 1").expect_err("a wrong password");
    assert!(refused.contains("password authentication failed"), "{refused}");
}

#[test]
fn a_standby_follows_and_takes_no_writes() {
    let primary = Postgres::start();
    let standby = Postgres::builder().standby_of(&primary).start();
    primary.sql("CREATE TABLE t AS SELECT 1 AS a");
    eventually("the standby has it", PATIENCE, || {
        (standby.try_sql(&standby.url(), "SELECT a FROM t").ok()? == "1").then_some(())
    });
    let refused =
        standby.try_sql(&standby.url(), "INSERT INTO t VALUES (2)").expect_err("no writes");
    assert!(refused.contains("read-only"), "{refused}");
}

#[test]
fn a_bouncer_gives_transactions_any_connection() {
    let server = Postgres::start();
    let bouncer = PgBouncer::before(&server, 1);
    let pid = || server.try_sql(&bouncer.url(), "SELECT pg_backend_pid()").expect("an answer");
    assert_eq!(pid(), pid(), "two clients, one connection");
}

#[test]
fn tls_is_asked_for() {
    let certificates = certificates();
    let server = Postgres::builder().tls(certificates.server()).start();
    let with = |mode: &str| server.try_sql(&format!("{}?sslmode={mode}", server.url()), "SELECT 1");
    assert_eq!(with("require"), Ok("1".into()));
    assert!(with("disable").is_err());
}
