//! A client that is cut off from the cluster, for longer than its leases last.

use std::time::Duration;

use leaseward::{ErrorKind, LostReason};
use leaseward_testkit::{Etcd, Proxy};

use crate::help::{LONG, asking, connect, granted, queue_of, take};

const TTL: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_holder_knows_before_the_next_one_has_it() {
    let etcd = Etcd::start();
    let proxy = Proxy::start(&etcd.addresses()[0]);
    let cut = connect(&format!("etcd://{}?timeout=1s", proxy.address())).await;
    let other = connect(&etcd.url()).await;
    let held = take(cut.lock("x").ttl(TTL)).await;
    let waiting = asking(other.lock("x").ttl(LONG));
    queue_of(&other, "x", 1).await;
    proxy.hold_to_server();
    let next = granted(waiting).await;
    assert!(!held.is_held(), "two hold it");
    assert_eq!(held.lost().await, LostReason::Expired);
    assert!(next.fence() > held.fence());
    let error = cut.lock("y").try_acquire().await.expect_err("it is cut off");
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate), "{error}");
    proxy.pass();
    let fence = next.fence();
    next.release().await.expect("given back");
    // What was kept back arrives now, and frees nothing and takes nothing.
    let again = crate::help::until("it is back", || async { cut.lock("x").acquire().await.ok() });
    assert!(again.await.fence() > fence);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_was_cut_off_waits_again() {
    let etcd = Etcd::start();
    let proxy = Proxy::start(&etcd.addresses()[0]);
    let cut = connect(&format!("etcd://{}?timeout=1s", proxy.address())).await;
    let other = connect(&etcd.url()).await;
    let held = take(other.lock("x").ttl(LONG)).await;
    let waiting = asking(cut.lock("x").ttl(TTL * 4));
    queue_of(&other, "x", 1).await;
    // Shorter than its place lasts: the stream is new, the place is not.
    proxy.refuse();
    proxy.cut();
    tokio::time::sleep(Duration::from_millis(500)).await;
    proxy.pass();
    held.release().await.expect("given back");
    assert!(granted(waiting).await.is_held());
}
