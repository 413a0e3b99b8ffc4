//! Sessions that are cut off, that end, and that go on elsewhere.

use std::time::Duration;

use leaseward::{ErrorKind, LostReason, Release};
use leaseward_testkit::{Proxy, ZooKeeper};

use crate::help::{LONG, SHORT, client, is_busy, queue_of, take, until, view};

fn behind(proxy: &Proxy, root: &str) -> String {
    format!("zookeeper://{}/{root}?timeout=500ms", proxy.address())
}

fn proxy(server: &ZooKeeper) -> Proxy {
    Proxy::start(&format!("127.0.0.1:{}", server.port(0)))
}

/// No lease as long as the shortest session would fit into the longest.
#[tokio::test(flavor = "multi_thread")]
async fn a_longest_session_near_the_shortest_leaves_room_for_shorter_leases() {
    let (tick, longest) = (Duration::from_millis(2_000), Duration::from_millis(6_000));
    let server = ZooKeeper::builder().tick(tick).longest_session(longest).start();
    let locks = client(&server.url("near"), "near").await;
    let guard = take(&locks.lock("x").ttl(SHORT)).await;
    assert_eq!(guard.ttl(), Duration::from_millis(3_250));
    assert!(is_busy(&client(&server.url("near"), "other").await.lock("x").ttl(SHORT)).await);
    let error = locks.lock("y").ttl(Duration::from_secs(4)).try_acquire().await;
    assert_eq!(error.expect_err("too long").kind(), ErrorKind::Unsupported);
    guard.release().await.expect("given back");
}

/// A connection that breaks is no loss.
#[tokio::test(flavor = "multi_thread")]
async fn a_broken_connection_loses_nothing() {
    let server = ZooKeeper::start();
    let proxy = proxy(&server);
    let (cut, other) =
        (client(&behind(&proxy, "cut"), "cut").await, client(&server.url("cut"), "other").await);
    let guard = take(&cut.lock("held").ttl(LONG)).await;
    let theirs = take(&other.lock("waited").ttl(LONG)).await;
    let lock = cut.lock("waited").ttl(LONG);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    queue_of(&other, "waited", 1).await;
    for _ in 0..3 {
        proxy.cut();
        until("it is back", || async { guard.renew().await.ok() }).await;
    }
    assert!(guard.is_held());
    if waiting.is_finished() {
        panic!("it did not wait: {:?}", waiting.await);
    }
    assert_eq!(view(&other, "held").await.holders[0].fence, guard.fence());
    let fence = theirs.fence();
    theirs.release().await.expect("given back");
    let next = waiting.await.expect("no panic").expect("the watch was set again");
    assert!(next.fence() > fence);
    assert_eq!(guard.release().await.expect("answered"), Release::Released);
}

/// It hears nothing from anybody; its own clock tells it before the server gives the name away.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_cut_off_stops_before_the_next_one_starts() {
    let server = ZooKeeper::start();
    let proxy = proxy(&server);
    let (gone, other) =
        (client(&behind(&proxy, "off"), "gone").await, client(&server.url("off"), "other").await);
    let guard = take(&gone.lock("x").ttl(SHORT)).await;
    let lock = other.lock("x").ttl(LONG);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    queue_of(&other, "x", 1).await;
    proxy.refuse();
    proxy.cut();
    let next = waiting.await.expect("no panic").expect("in the end");
    assert!(!guard.is_held(), "two hold it");
    assert!(next.fence() > guard.fence());
    assert_eq!(guard.lost().await, LostReason::Expired);
    proxy.accept();
    let again = until("it begins anew", || async { gone.lock("y").try_acquire().await.ok() });
    assert!(matches!(again.await, leaseward::Attempt::Granted(_)));
    assert!(next.is_held(), "what it still had to say harms nobody");
}

/// The flaw that others had: after its session ended a waiter was told that it has the lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_session_ended_is_not_served_by_its_old_place() {
    let server = ZooKeeper::start();
    let proxy = proxy(&server);
    let (late, other) =
        (client(&behind(&proxy, "late"), "late").await, client(&server.url("late"), "other").await);
    let held = take(&other.lock("x").ttl(LONG)).await;
    let lock = late.lock("x").ttl(SHORT);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    queue_of(&other, "x", 1).await;
    proxy.refuse();
    proxy.cut();
    queue_of(&other, "x", 0).await;
    let fence = held.fence();
    held.release().await.expect("given back");
    let held = take(&other.lock("x").ttl(LONG)).await;
    proxy.accept();
    // It is either told that the store is away, or stands in the line anew; never that it holds.
    let outcome = tokio::time::timeout(SHORT, waiting).await;
    assert!(!matches!(outcome, Ok(Ok(Ok(_)))), "two hold it: {outcome:?}");
    assert!(held.is_held() && held.fence() > fence);
}
