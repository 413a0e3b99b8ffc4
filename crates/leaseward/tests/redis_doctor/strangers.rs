//! Keys of others in the place of locks.

use leaseward::store::Severity;
use leaseward_testkit::{Fsync, RedisServer};

use crate::help::{connect, find, findings};

fn server() -> RedisServer {
    RedisServer::builder().appendonly(Fsync::Always).start()
}

#[tokio::test]
async fn locks_without_expiry_are_named_up_to_five() {
    let server = server();
    for number in 0..7 {
        server.cli(&["set", &format!("lock:py-{number}"), "token"]);
    }
    server.cli(&["set", "lock:sound", "token", "px", "60000"]);
    server.cli(&["set", "data", "none of our business"]);
    let found = findings(&server.url()).await;
    let warning = find(&found, "7 names are held without expiry");
    assert_eq!(warning.severity, Severity::Warning);
    // As `leaseward break NAME` wants them.
    assert_eq!(warning.what.matches("`py-").count(), 5, "{warning:?}");
    assert!(warning.what.ends_with("and 2 more"), "{warning:?}");
    assert!(!warning.what.contains("token"), "a token is a secret: {warning:?}");
}

#[tokio::test]
async fn keys_that_are_no_locks_are_named() {
    let server = server();
    server.cli(&["hset", "lock:redisson", "uuid:1", "1"]);
    server.cli(&["sadd", "lock:tags", "a"]);
    let found = findings(&server.url()).await;
    assert!(find(&found, "held by a hash").what.contains("`redisson`"));
    assert!(find(&found, "is in the place of a lock").what.contains("`lock:tags`"));
}

#[tokio::test]
async fn what_others_have_put_into_a_key_does_nothing_to_a_terminal() {
    let server = server();
    server.cli(&["set", "lock:a\x1b[2Jb\nc", "token"]);
    let found = findings(&server.url()).await;
    let warning = find(&found, "is held without expiry");
    assert!(warning.what.ends_with(r"`a\u{1b}[2Jb\nc`"), "{warning:?}");
}

#[tokio::test]
async fn our_own_locks_are_no_strangers() {
    let server = server();
    let locks = connect(&server.url()).await;
    let held = locks.lock("mine").acquire().await.expect("it is free");
    let read = locks.lock("read").shared().acquire().await.expect("it is free");
    let found = findings(&server.url()).await;
    assert_eq!(found.len(), 1, "the note of its version, not {found:#?}");
    held.release().await.expect("released");
    read.release().await.expect("released");
}

#[tokio::test]
async fn a_prefix_is_no_pattern_and_an_empty_one_is_told() {
    let server = server();
    server.cli(&["set", "lockx", "1"]);
    let found = findings(&format!("{}?prefix=lock%3F", server.url())).await;
    assert!(!found.iter().any(|finding| finding.what.contains("lockx")), "{found:#?}");
    let found = findings(&format!("{}?prefix=", server.url())).await;
    assert_eq!(find(&found, "prefix is empty").severity, Severity::Note);
}

#[tokio::test]
async fn a_large_database_is_not_gone_through_to_its_end() {
    let server = server();
    server.cli(&["debug", "populate", "300000", "data", "1"]);
    let found = findings(&server.url()).await;
    assert_eq!(find(&found, "only about 100000 keys").severity, Severity::Note);
}
