//! Passwords, rights, TLS, addresses.

use leaseward::ErrorKind;
use leaseward_testkit::{Etcd, certificates};

use crate::help::{LONG, connect, take, try_open};

#[tokio::test]
async fn users_are_let_in_by_password_and_kept_to_their_prefix() {
    let etcd = Etcd::builder().auth("hunter2").start();
    etcd.cli(&["user", "add", "app:secret"]);
    etcd.cli(&["role", "add", "locker"]);
    etcd.cli(&["role", "grant-permission", "--prefix=true", "locker", "readwrite", "leaseward/"]);
    etcd.cli(&["user", "grant-role", "app", "locker"]);
    let address = &etcd.addresses()[0];
    let locks = connect(&format!("etcd://app:secret@{address}")).await;
    let guard = take(locks.lock("x").ttl(LONG)).await;
    guard.renew().await.expect("it is ours");
    guard.release().await.expect("given back");
    locks.diagnose().await.expect("what it may not ask it leaves out");
    for (url, says) in [
        (format!("etcd://app:wrong-secret@{address}"), "does not let this user in"),
        (format!("etcd://{address}"), "wants to know who asks"),
        (format!("etcd://app:secret@{address}?prefix=elsewhere/"), "may not do that"),
    ] {
        let error = try_open(&url).await.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        assert!(error.message().contains(says), "{error}");
        assert!(
            error.hint_text().is_some() && !format!("{error:?}").contains("secret@"),
            "{error:?}"
        );
    }
}

/// Whoever was let in has to prove itself again when users change, or after a restart of the server.
#[tokio::test]
async fn an_old_token_is_renewed() {
    let etcd = Etcd::builder().auth("hunter2").start();
    let locks = connect(&etcd.url()).await;
    let guard = take(locks.lock("x").ttl(LONG)).await;
    etcd.cli(&["user", "add", "somebody:else"]);
    guard.renew().await.expect("it is ours");
    etcd.cli(&["user", "delete", "somebody"]);
    guard.release().await.expect("given back");
    assert!(take(locks.lock("x").ttl(LONG)).await.is_held());
}

#[tokio::test]
async fn a_password_nobody_asks_for_is_no_harm() {
    let etcd = Etcd::start();
    let locks = connect(&format!("etcd://app:secret@{}", etcd.addresses()[0])).await;
    assert!(take(locks.lock("x")).await.is_held());
}

#[tokio::test]
async fn tls_is_checked_both_ways() {
    let made = certificates();
    let mut files = made.server();
    files.ask_clients = true;
    let etcd = Etcd::builder().tls(files).start();
    let (ca, client) = (made.ca(), made.client());
    let url = |ca: &std::path::Path, with_client: bool| {
        let own = format!("&cert={}&key={}", client.cert.display(), client.key.display());
        let own = if with_client { own } else { String::new() };
        format!("{}?ca={}{own}", etcd.url(), ca.display())
    };
    let locks = connect(&url(&ca, true)).await;
    let guard = take(locks.lock("x").ttl(LONG)).await;
    guard.release().await.expect("given back");
    for bad in [url(&made.other_ca(), true), url(&ca, false)] {
        let error = try_open(&bad).await.expect_err("refused");
        assert!(
            matches!(error.kind(), ErrorKind::Refused | ErrorKind::Unavailable),
            "{error:?} for {bad}"
        );
        assert!(error.hint_text().is_some(), "{error:?}");
    }
    let plain = format!("etcd://{}?timeout=1s", etcd.addresses()[0]);
    try_open(&plain).await.expect_err("it speaks TLS");
}

#[tokio::test]
async fn dead_addresses_cost_nothing() {
    let etcd = Etcd::start();
    let url = format!("etcd://127.0.0.1:1,127.0.0.1:2,{}", etcd.addresses()[0]);
    for _ in 0..5 {
        assert!(take(connect(&url).await.lock("x")).await.is_held());
    }
    let error = try_open("etcd://127.0.0.1:1").await.expect_err("nobody is there");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.message().contains("127.0.0.1:1"), "{error}");
}
