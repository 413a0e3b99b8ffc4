//! The tool on a PostgreSQL server: what it does there, and what it says when it cannot.

use leaseward_testkit::Postgres;

use crate::support::{Place, Ran};

fn server() -> Postgres {
    Postgres::builder().in_memory().start()
}

/// Runs the tool on a store.
fn on(url: &str, arguments: &[&str]) -> Ran {
    Place::new().run([&["--store", url], arguments].concat())
}

#[test]
fn migrate_makes_the_tables_once() {
    let server = server();
    let ran = on(&server.url(), &["migrate"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    assert!(ran.out.starts_with("made the tables in postgres://app@127.0.0.1"), "{}", ran.out);
    assert!(!ran.out.contains("secret"), "{}", ran.out);
    let newest = server.sql("SELECT version FROM leaseward.meta");
    let ran = on(&server.url(), &["migrate"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "nothing to do\n"), "{}", ran.err);
    server.sql("DROP SCHEMA leaseward_queue CASCADE");
    let ran = on(&server.url(), &["migrate"]);
    assert!(ran.out.starts_with("made the tables for jobs in postgres://app@"), "{}", ran.out);
    server.sql("UPDATE leaseward.meta SET version = 1");
    let ran = on(&server.url(), &["migrate"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    assert!(ran.out.starts_with("brought the tables in postgres://app@127.0.0.1"), "{}", ran.out);
    assert_eq!(server.sql("SELECT version FROM leaseward.meta"), newest);
    let advisory = server.url().replacen("postgres:", "postgres+advisory:", 1);
    for expected in ["made the tables in postgres+advisory://app@", "nothing to do"] {
        let ran = on(&format!("{advisory}?schema=other"), &["migrate"]);
        assert!(ran.code == 0 && ran.out.starts_with(expected), "{}{}", ran.out, ran.err);
    }
    assert_eq!(on("sqlite:x.db", &["migrate"]).code, 2);
}

/// What docs/stores/postgres.md says, and no more.
#[test]
fn a_user_who_may_not_make_tables_has_locks_and_jobs_after_a_migration() {
    let server = server();
    let poor = server.user("poor");
    for command in [&["ls"][..], &["queue", "add", "1"]] {
        let ran = on(&poor, command);
        assert_eq!(ran.code, 69, "{}", ran.err);
        assert!(ran.err.contains("leaseward migrate"), "{}", ran.err);
    }
    assert_eq!(on(&server.url(), &["migrate"]).code, 0);
    server.sql(
        "GRANT USAGE ON SCHEMA leaseward, leaseward_queue TO poor;
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA leaseward, leaseward_queue TO poor;
         GRANT USAGE ON ALL SEQUENCES IN SCHEMA leaseward_queue TO poor",
    );
    for command in [
        &["run", "x", "--", "true"][..],
        &["queue", "add", "1", "2", "--key", "k"],
        &["queue", "add", "3", "--unique", "u", "--in", "1h"],
        &["queue", "ls"],
        &["queue", "pause"],
        &["queue", "resume"],
        &["queue", "work", "--until-empty", "--max-attempts", "1", "--", "false"],
        &["queue", "retry", "--all", "--queue", "default"],
        &["queue", "work", "--until-empty", "--", "true"],
        &["queue", "cancel", "--all", "--queue", "default"],
        &["queue", "stats"],
        &["migrate"],
    ] {
        let ran = on(&poor, command);
        assert_eq!(ran.code, 0, "{command:?}: {}{}", ran.out, ran.err);
    }
    // Of a newer version nothing is taken back.
    server.sql("UPDATE leaseward_queue.meta SET version = 99");
    let ran = on(&server.url(), &["migrate"]);
    assert!(ran.code == 69 && ran.err.contains("newer version"), "{}", ran.err);
}

#[test]
fn processes_that_come_first_together_make_the_tables_once() {
    let server = server();
    let fences: Vec<u64> = std::thread::scope(|scope| {
        let first = || on(&server.url(), &["run", "x", "--", "sh", "-c", "echo $LEASEWARD_FENCE"]);
        let processes: Vec<_> = (0..8).map(|_| scope.spawn(first)).collect();
        let fence = |ran: Ran| {
            assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
            ran.out.trim().parse().expect("a fence")
        };
        processes.into_iter().map(|process| fence(process.join().expect("no panic"))).collect()
    });
    let each: std::collections::HashSet<_> = fences.iter().collect();
    assert_eq!(each.len(), 8, "one had it at a time: {fences:?}");
    assert_eq!(server.sql("SELECT count(*) FROM leaseward.meta"), "1");
}

#[test]
fn run_and_ls_work_as_on_every_store() {
    let server = server();
    let ran = on(&server.url(), &["run", "deploy", "--", "sh", "-c", "echo $LEASEWARD_FENCE"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    assert!(ran.out.trim().parse::<u64>().is_ok_and(|fence| fence > 0), "{}", ran.out);
    assert_eq!(on(&server.url(), &["acquire", "kept", "--ttl", "1m"]).code, 0);
    let ran = on(&server.url(), &["ls"]);
    assert!(ran.out.contains("kept") && !ran.out.contains("deploy"), "{}", ran.out);
    let ran = on(&server.url(), &["run", "--no-wait", "kept", "--", "true"]);
    assert_eq!(ran.code, 75, "{}", ran.err);
    assert_eq!(on(&server.url(), &["break", "kept", "--now", "--yes"]).code, 0);
    assert_eq!(on(&server.url(), &["run", "--no-wait", "kept", "--", "true"]).code, 0);
}

#[test]
fn doctor_ends_with_0_on_a_server_made_for_locks_and_with_1_elsewhere() {
    let good = server();
    let ran = on(&good.url(), &["doctor"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    assert!(ran.out.contains("exclusion    holds"), "{}", ran.out);
    let bad = Postgres::builder().in_memory().conf("fsync", "off").start();
    let ran = on(&bad.url(), &["doctor"]);
    assert_eq!(ran.code, 1, "{}", ran.out);
    assert!(ran.out.contains("danger: `fsync`"), "{}", ran.out);
}

#[test]
fn what_cannot_be_used_is_said_to_be_that() {
    let server = server();
    let ran = on(&server.url_of("app", "wrong-secret", "postgres"), &["ls"]);
    assert_eq!(ran.code, 69, "{}", ran.err);
    assert!(ran.err.contains("password authentication failed"), "{}", ran.err);
    assert!(ran.err.contains("hint: ") && !ran.err.contains("secret"), "{}", ran.err);
    let ran = on(&server.user("poor"), &["ls"]);
    assert_eq!(ran.code, 69, "{}", ran.err);
    assert!(ran.err.contains("leaseward migrate"), "{}", ran.err);
}
