//! Who may do what, what can be kept, and what is said when it cannot.

use std::time::Duration;

use leaseward::{ErrorKind, store::Severity};
use leaseward_testkit::ZooKeeper;

use crate::help::{LONG, client, is_busy, take};

#[tokio::test(flavor = "multi_thread")]
async fn a_login_keeps_others_out() {
    let server = ZooKeeper::start();
    let own = format!("zookeeper://me:hunter2@{}/mine", server.hosts());
    let locks = client(&own, "me").await;
    let guard = take(&locks.lock("x").ttl(LONG)).await;
    assert!(is_busy(&client(&own, "me too").await.lock("x").ttl(LONG)).await);
    let error = leaseward::connect(&server.url("mine")).await.expect_err("it may not");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.hint_text().is_some_and(|hint| hint.contains("login")), "{error:?}");
    let other = own.replace("hunter2", "hunter3");
    let error = leaseward::connect(&other).await.expect_err("another password is another user");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    for shown in [format!("{error:?}"), format!("{locks:?}"), locks.location()] {
        assert!(!shown.contains("hunter"), "{shown}");
    }
    guard.release().await.expect("given back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ttl_outside_the_servers_bounds_is_raised_or_refused() {
    let server = ZooKeeper::builder()
        .tick(Duration::from_millis(500))
        .longest_session(Duration::from_secs(40))
        .start();
    let locks = client(&server.url("ttl"), "one").await;
    let guard = take(&locks.lock("x").ttl(Duration::from_millis(200))).await;
    assert_eq!(guard.ttl(), Duration::from_secs(1), "two ticks");
    take(&locks.lock("y")).await.release().await.expect("the default TTL can be kept");
    let error = locks.lock("z").ttl(Duration::from_secs(40)).try_acquire().await;
    let error = error.expect_err("the session would have to last longer");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_reached_is_said() {
    let server = ZooKeeper::start();
    let url = format!("{}?timeout=500ms", server.url("away"));
    let locks = client(&url, "one").await;
    server.kill(0);
    let error = locks.lock("x").ttl(LONG).try_acquire().await.expect_err("it is away");
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate), "{error:?}");
    let error = leaseward::connect(&url).await.expect_err("it is away");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.hint_text().is_some(), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_sees_a_server_that_is_alone() {
    let server = ZooKeeper::start();
    let locks = client(&server.url("ill"), "one").await;
    let found = locks.diagnose().await.expect("answered");
    let alone = found.iter().find(|found| found.what.ends_with("is alone")).expect("it is");
    assert_eq!(alone.severity, Severity::Warning);
    assert!(found.iter().all(|found| found.severity < Severity::Danger));
    assert!(found.iter().any(|found| found.what.contains("ZooKeeper 3.")), "{found:?}");
}
