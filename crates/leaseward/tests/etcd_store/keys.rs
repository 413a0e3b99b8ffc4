//! Which keys leases have: the same again, unless somebody may come late to it.

use std::{ops::Not, time::Duration};

use leaseward::{
    ErrorKind, Guard,
    etcd::ownership,
    store::{IfBusy, Operation, Release, Reply},
};
use leaseward_testkit::{Etcd, Proxy};

use crate::{
    basics::{self, ask, one},
    help::{LONG, asking, connect, granted, lone, queue_of, take, try_open, until},
    names::{name, token},
};

fn key(guard: &Guard) -> Vec<u8> {
    ownership(guard).expect("held in etcd").key
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_used_often_has_one_key() {
    let etcd = Etcd::start();
    let locks = connect(&etcd.url()).await;
    let first = take(locks.lock("x").ttl(LONG)).await;
    let (one, mut fence) = (key(&first), first.fence());
    first.release().await.expect("given back");
    for _ in 0..5 {
        let held = locks.lock("x").ttl(LONG).acquire().await.expect("free");
        assert_eq!(key(&held), one);
        assert!(held.fence() > fence, "it is another lease all the same");
        fence = held.fence();
        held.release().await.expect("given back");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_take_turns_with_a_few_keys() {
    let etcd = Etcd::start();
    let locks = lone(&etcd.url()).await;
    let mut held = take(locks.lock("x").ttl(LONG)).await;
    let mut used = std::collections::HashSet::from([key(&held)]);
    for _ in 0..10 {
        let fence = held.fence();
        let waiting = asking(locks.lock("x").ttl(LONG));
        queue_of(&locks, "x", 1).await;
        held.release().await.expect("given back");
        held = granted(waiting).await;
        assert!(held.fence() > fence);
        used.insert(key(&held));
    }
    assert_eq!(used.len(), 2, "one for the holder, one for the waiter");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_whose_ask_was_lost_is_not_used_again() {
    let etcd = Etcd::start();
    let proxy = Proxy::start(&etcd.addresses()[0]);
    let locks = connect(&format!("etcd://{}?timeout=1s", proxy.address())).await;
    let first = take(locks.lock("x").ttl(LONG)).await;
    let one = key(&first);
    first.release().await.expect("given back");
    proxy.hold_to_server();
    let error = locks.lock("x").ttl(LONG).try_acquire().await.expect_err("it is cut off");
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate), "{error}");
    proxy.pass();
    let again =
        until("it is free again", || async { locks.lock("x").ttl(LONG).acquire().await.ok() });
    assert_ne!(key(&again.await), one);
}

/// Both an ask that was never answered, and one of two for the same token that was not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ask_that_arrives_after_its_release_leaves_nothing_behind() {
    let etcd = Etcd::start();
    let proxy = Proxy::start(&etcd.addresses()[0]);
    let url = format!("etcd://{}?timeout=1s", proxy.address());
    let store = try_open(&url).await.expect("the server can be reached");
    let asks = |what, who| {
        one(&*store, Operation::Ask(ask(what, who, IfBusy::Queue, Duration::from_secs(60))))
    };
    let releases = |who| {
        let keep = Duration::ZERO;
        one(&*store, Operation::Release(Release { name: name("x"), token: token(who), keep }))
    };
    // It keeps the lease that carries all of them alive.
    basics::granted(asks("y", 9).await);
    for (who, is_asked_again) in [(1, false), (3, true)] {
        basics::granted(asks("x", who).await);
        let (key, lease) = key_and_lease(&etcd, "leaseward/x/");
        assert!(matches!(releases(who).await, Ok(Reply::Released)));
        // For the same key, and lost.
        proxy.hold_to_server();
        asks("x", who + 1).await.expect_err("it is cut off");
        proxy.cut();
        proxy.pass();
        if is_asked_again {
            let again = || async { asks("x", who + 1).await.ok() };
            assert!(matches!(until("it is back", again).await, Reply::Granted(_)));
        }
        let gives_back = || async { releases(who + 1).await.ok() };
        let is_there = matches!(until("it is back", gives_back).await, Reply::Released);
        assert_eq!(is_there, is_asked_again);
        // What the lost one would have made.
        etcd.cli(&["put", &key, "late", &format!("--lease={lease:x}")]);
        let is_gone = || async { etcd.cli(&["get", &key]).trim().is_empty().then_some(()) };
        until("it is deleted", is_gone).await;
    }
    // Not touched.
    basics::granted(asks("y", 9).await);
}

/// A try was asked again and told that the name is busy: its first ask, which was lost, may arrive after that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_that_arrives_after_its_refusal_leaves_nothing_behind() {
    let etcd = Etcd::start();
    let proxy = Proxy::start(&etcd.addresses()[0]);
    let url = format!("etcd://{}?timeout=1s", proxy.address());
    let store = try_open(&url).await.expect("the server can be reached");
    let asks =
        |what| one(&*store, Operation::Ask(ask(what, 1, IfBusy::Tell, Duration::from_secs(60))));
    basics::granted(asks("y").await);
    let (other, lease) = key_and_lease(&etcd, "leaseward/y/");
    let others = connect(&etcd.url()).await;
    let held = take(others.lock("x").ttl(LONG)).await;
    proxy.hold_to_server();
    asks("x").await.expect_err("it is cut off");
    proxy.cut();
    proxy.pass();
    let again = until("it is back", || async { asks("x").await.ok() });
    assert!(matches!(again.await, Reply::Busy(_)));
    held.release().await.expect("given back");
    // What the lost one would have made: the second key of this client.
    let client = other.trim_start_matches("leaseward/y/").trim_end_matches('1');
    etcd.cli(&["put", &format!("leaseward/x/{client}2"), "late", &format!("--lease={lease:x}")]);
    let is_gone = || async { has_keys(&etcd, "leaseward/x/").not().then_some(()) };
    until("it is deleted", is_gone).await;
}

/// A lease of etcd's ends while an ask for what it carried waits for its confirmation: nothing is put with the next one
/// that nobody knows of.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ask_whose_lease_dies_meanwhile_leaves_nothing_behind() {
    let etcd = Etcd::start();
    let proxy = Proxy::start(&etcd.addresses()[0]);
    let url = format!("etcd://{}?timeout=60s", proxy.address());
    let store = try_open(&url).await.expect("the server can be reached");
    let asks = || {
        store.carry_out(vec![Operation::Ask(ask("x", 1, IfBusy::Queue, Duration::from_secs(60)))])
    };
    basics::granted(asks().await.remove(0));
    let (_, lease) = key_and_lease(&etcd, "leaseward/x/");
    proxy.refuse();
    proxy.cut();
    etcd.cli(&["lease", "revoke", &format!("{lease:x}")]);
    // Once the connection is known to be gone, it waits for the lease to be confirmed.
    let waits = until("it waits", || async {
        let mut asked = asks();
        tokio::time::timeout(Duration::from_millis(200), &mut asked).await.is_err().then_some(asked)
    });
    let asked = waits.await;
    proxy.accept();
    assert!(matches!(asked.await.remove(0), Ok(Reply::Gone(_))));
    let (name, token, keep) = (name("x"), token(1), Duration::ZERO);
    let release = Operation::Release(Release { name, token, keep });
    assert!(matches!(one(&*store, release).await, Ok(Reply::NotYours(_))));
    let is_gone = || async { has_keys(&etcd, "leaseward/x/").not().then_some(()) };
    until("nothing is there", is_gone).await;
}

fn has_keys(etcd: &Etcd, prefix: &str) -> bool {
    !etcd.cli(&["get", "--prefix", prefix, "--keys-only"]).trim().is_empty()
}

/// The only key that begins so, and the lease that carries it.
fn key_and_lease(etcd: &Etcd, prefix: &str) -> (String, i64) {
    let key = etcd.cli(&["get", "--prefix", prefix, "--keys-only"]).trim().to_owned();
    let seen = etcd.cli(&["get", &key, "--write-out=json"]);
    let digits = seen.split("\"lease\":").nth(1).expect("it has a lease");
    let lease = digits.split(|c: char| !c.is_ascii_digit()).next().expect("a number");
    (key, lease.parse().expect("a number"))
}
