//! Set-ups that cannot work, and what is said about them.

use leaseward::{ErrorKind, Locks};
use leaseward_testkit::RedisServer;

use crate::help::{blocking, connect, is_held_at, primary_with, strong_url};

#[tokio::test(flavor = "multi_thread")]
async fn more_replicas_than_there_are_is_refused_with_their_number() {
    let (primary, _replicas) = blocking(|| primary_with(1));
    let locks = connect(&strong_url(&primary, 2)).await;
    let refusal = locks.lock("job").acquire().await.expect_err("there is only one");
    assert_eq!(refusal.kind(), ErrorKind::Unavailable);
    assert!(refusal.message().starts_with("only 1 of 2 replicas acknowledged"), "{refusal}");
    let hint = refusal.hint_text().expect("there is something to do");
    assert!(hint.starts_with("1 connected, 2 required"), "{hint}");
    assert!(!blocking(|| is_held_at(&primary, "job")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forbids_waiting_is_refused_at_once() {
    let server = RedisServer::builder().acl("locker on >secret ~* &* +@all -wait").start();
    let url = format!("redis://locker:secret@{}", server.address());
    let refusal =
        Locks::builder().connect(&format!("{url}?replicas=1")).await.expect_err("it cannot work");
    assert_eq!(refusal.kind(), ErrorKind::Refused);
    assert!(refusal.message().contains("`WAIT`"), "{refusal}");
    assert!(connect(&url).await.lock("job").acquire().await.is_ok(), "without it, it does");
}
