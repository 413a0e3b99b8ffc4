//! Which keys leases have: the same again, unless somebody may come late to it.

use leaseward::{ErrorKind, Guard, etcd::ownership};
use leaseward_testkit::{Etcd, Proxy};

use crate::help::{LONG, asking, connect, granted, lone, queue_of, take, until};

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ask_that_arrives_after_its_release_leaves_nothing_behind() {
    let etcd = Etcd::start();
    let proxy = Proxy::start(&etcd.addresses()[0]);
    let locks = connect(&format!("etcd://{}?timeout=1s", proxy.address())).await;
    // It keeps the lease that carries both alive.
    let other = take(locks.lock("y").ttl(LONG)).await;
    let first = take(locks.lock("x").ttl(LONG)).await;
    let one = String::from_utf8(key(&first)).expect("a plain name");
    let seen = etcd.cli(&["get", &one, "--write-out=json"]);
    let digits = seen.split("\"lease\":").nth(1).expect("it has a lease");
    let lease = digits.split(|c: char| !c.is_ascii_digit()).next().expect("a number");
    let lease = format!("--lease={:x}", lease.parse::<i64>().expect("a number"));
    first.release().await.expect("given back");
    // An ask for the same key that is lost, and released.
    proxy.hold_to_server();
    locks.lock("x").ttl(LONG).try_acquire().await.expect_err("it is cut off");
    proxy.cut();
    proxy.pass();
    let again =
        until("it is free again", || async { locks.lock("x").ttl(LONG).acquire().await.ok() });
    again.await.release().await.expect("given back");
    // What it would have made; more than once, because its release may have been repeated meanwhile.
    for _ in 0..3 {
        etcd.cli(&["put", &one, "late", &lease]);
        let is_gone = || async { etcd.cli(&["get", &one]).trim().is_empty().then_some(()) };
        until("it is deleted", is_gone).await;
    }
    other.release().await.expect("not touched");
}
