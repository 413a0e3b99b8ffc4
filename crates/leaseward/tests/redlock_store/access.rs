//! TLS, users and passwords, the same for all nodes.

use leaseward::{ErrorKind, store::Query};
use leaseward_testkit::{Fsync, RedisServer, certificates};

use crate::{
    nodes::Nodes,
    operations::{connect, take, try_open},
};

/// The least that a user needs, as for `ACL SETUSER`: what `docs/stores/redlock.md` says.
fn least() -> String {
    let page = include_str!("../../../../docs/stores/redlock.md");
    let line =
        page.lines().find_map(|line| line.strip_prefix("user locker ")).expect("it is there");
    format!("locker {line}")
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tls_a_user_with_the_least_rights_can_do_everything() {
    let (files, least) = (certificates(), least());
    let nodes = Nodes::start(5, |_| {
        RedisServer::builder().appendonly(Fsync::Always).tls(files.server()).acl(&least)
    });
    let settings = format!("ca={}", files.ca().display());
    let url = nodes.url(&settings).replace("redlock://", "redlocks://locker:secret@");
    let (locks, other) = (connect(&url).await, connect(&url).await);
    let held = take(locks.lock("a")).await;
    let waiting = other.lock("a");
    let waiting = tokio::spawn(async move { waiting.acquire().await });
    held.renew().await.expect("it is allowed");
    let reader = take(locks.lock("b").shared()).await;
    let both = locks.all(["c", "d"]).acquire().await.expect("it is allowed");
    assert_eq!(locks.inspect(Query::all()).await.expect("it is allowed").len(), 4);
    held.release().await.expect("it is allowed");
    drop(waiting.await.expect("no panic").expect("it is allowed"));
    reader.release().await.expect("it is allowed");
    locks.break_lease("c", true).await.expect("it is allowed");
    both.release().await.expect("it is allowed");
    let found = locks.diagnose().await.expect("it is allowed");
    assert!(found.iter().all(|one| !one.what.contains("does not")), "{found:?}");
    for forbidden in [vec!["flushall"], vec!["get", "other"], vec!["keys", "*"]] {
        let login = ["--user", "locker", "--pass", "secret", "--no-auth-warning"];
        let said = nodes[0].try_cli(&[&login[..], &forbidden].concat());
        assert!(said.as_ref().is_err_and(|why| why.contains("NOPERM")), "{forbidden:?}: {said:?}");
    }
    let plain = nodes.url("").replace("redlock://", "redlock://locker:secret@");
    let failure = try_open(&plain).await.expect_err("they speak TLS");
    assert_eq!(failure.kind(), ErrorKind::Unavailable, "{failure:?}");
    let failure = try_open(&url.replace("redlocks", "redlock")).await.expect_err("`ca` is for TLS");
    assert!(failure.hint_text().is_some_and(|hint| hint.contains("`redlocks:`")), "{failure:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_told_at_once_with_the_node_that_refused() {
    // The others take it: one is enough to know that something is set wrong.
    let nodes = Nodes::start(5, |at| {
        let password = if at == 3 { "other" } else { "sesame" };
        RedisServer::builder().appendonly(Fsync::Always).requirepass(password)
    });
    let url = nodes.url("").replace("redlock://", "redlock://:sesame@");
    let failure = try_open(&url).await.expect_err("one refuses");
    assert_eq!(failure.kind(), ErrorKind::Refused, "{failure:?}");
    assert!(failure.message().contains("refused user and password"), "{failure}");
    assert!(failure.message().contains(&nodes[3].address()), "{failure}");
    assert!(!format!("{failure:?}").contains("sesame"), "{failure:?}");
    let without = try_open(&nodes.url("")).await.expect_err("all ask for it");
    assert!(without.message().contains("asks for a password"), "{without}");
}
