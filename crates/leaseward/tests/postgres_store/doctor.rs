//! What `diagnose` finds.

use leaseward::store::{Finding, Severity};
use leaseward_testkit::{PATIENCE, Postgres, eventually};

use crate::help::{connect, holding_fence, server, take, until};

fn has(findings: &[Finding], severity: Severity, part: &str) -> bool {
    findings.iter().any(|finding| finding.severity == severity && finding.what.contains(part))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_may_forget_is_dangerous() {
    let server = Postgres::builder().in_memory().conf("fsync", "off").start();
    let findings = connect(&server.url()).await.diagnose().await.expect("answered");
    assert!(has(&findings, Severity::Danger, "fsync"), "{findings:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn standbys_that_no_commit_waits_for_are_dangerous() {
    let primary = Postgres::builder().in_memory().start();
    let standby = Postgres::builder().in_memory().standby_of(&primary).start();
    eventually("it follows", PATIENCE, || {
        (primary.sql("SELECT count(*) FROM pg_stat_replication") == "1").then_some(())
    });
    let locks = connect(&primary.url()).await;
    let findings = locks.diagnose().await.expect("answered");
    assert!(has(&findings, Severity::Danger, "standby"), "{findings:?}");
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
    primary.sql("SELECT pg_reload_conf()");
    until("commits wait for it", PATIENCE, || async {
        let findings = locks.diagnose().await.expect("answered");
        (!has(&findings, Severity::Danger, "standby")).then_some(())
    })
    .await;
    drop(standby);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forgotten_transaction_is_named() {
    let server = server();
    let locks = connect(&server.url()).await;
    take(locks.lock("a")).await.release().await.expect("given back");
    let _holding = holding_fence(&server.url(), "a").await;
    until("it is old enough to be named", PATIENCE * 2, || async {
        let findings = locks.diagnose().await.expect("answered");
        has(&findings, Severity::Warning, "`fences` in a transaction").then_some(())
    })
    .await;
}
