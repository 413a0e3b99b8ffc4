//! Three servers: the leader is killed, a follower is stopped, and the order of holders holds.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use leaseward_testkit::ZooKeeper;

use crate::help::{LONG, SHORT, client, queue_of, take, until, view};

fn three() -> ZooKeeper {
    ZooKeeper::builder().servers(3).tick(Duration::from_millis(100)).start()
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_and_places_outlive_their_leader() {
    let servers = three();
    let url = servers.url("killed");
    let (one, other) = (client(&url, "one").await, client(&url, "other").await);
    let guard = take(&one.lock("x").ttl(LONG)).await;
    let lock = other.lock("x").ttl(LONG);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    queue_of(&one, "x", 1).await;
    let leader = servers.leader();
    servers.kill(leader);
    until("another one leads", || async { guard.renew().await.ok() }).await;
    assert!(guard.is_held() && !waiting.is_finished());
    let fence = guard.fence();
    guard.release().await.expect("given back");
    let next = waiting.await.expect("no panic").expect("served");
    assert!(next.fence() > fence);
    servers.restart(leader);
    let last = next.fence();
    next.release().await.expect("given back");
    assert!(take(&one.lock("x").ttl(LONG)).await.fence() > last);
}

/// Clients take turns while the leader is killed and a follower stopped: never two at once, and fences grow.
#[tokio::test(flavor = "multi_thread")]
async fn never_two_holders_whatever_happens_to_the_servers() {
    let servers = three();
    let url = format!("{}?timeout=1s", servers.url("turns"));
    let (inside, last, is_done) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let mut tasks = Vec::new();
    for at in 0..4 {
        let locks = client(&url, &format!("client-{at}")).await;
        let (inside, last, is_done) = (inside.clone(), last.clone(), is_done.clone());
        tasks.push(tokio::spawn(async move {
            let mut turns = 0u64;
            while !is_done.load(Ordering::SeqCst) {
                // Away during an election: nothing is held, try again.
                let Ok(guard) = locks.lock("x").ttl(SHORT * 2).acquire().await else { continue };
                let lease = guard.lease();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold it");
                let before = last.swap(guard.fence().get(), Ordering::SeqCst);
                assert!(before < guard.fence().get(), "{before} before {}", guard.fence());
                tokio::task::yield_now().await;
                let is_held = lease.is_held();
                inside.fetch_sub(1, Ordering::SeqCst);
                assert!(is_held, "it ended within its TTL");
                // Not always known, never wrong.
                let _ = guard.release().await;
                turns += 1;
            }
            turns
        }));
    }
    let served = || last.load(Ordering::SeqCst);
    for fault in ["kill the leader", "stop a follower", "kill the leader"] {
        let before = served();
        until("turns are taken", || async { (served() > before).then_some(()) }).await;
        let at = if fault == "stop a follower" { servers.follower() } else { servers.leader() };
        if fault == "stop a follower" {
            servers.pause(at)
        } else {
            servers.kill(at)
        }
        let broken = served();
        until(&format!("turns are taken after: {fault}"), || async {
            (served() > broken).then_some(())
        })
        .await;
        if fault == "stop a follower" { servers.resume(at) } else { servers.restart(at) }
    }
    is_done.store(true, Ordering::SeqCst);
    for task in tasks {
        assert!(task.await.expect("never two, fences grow") > 0, "it was never served");
    }
}

/// Whoever is connected to a server that stops goes to another one in time.
#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_server_is_left_in_time() {
    let servers = three();
    let follower = servers.follower();
    let hosts = servers.hosts();
    let all: Vec<&str> = hosts.split(',').collect();
    let url = format!("zookeeper://{}/left?timeout=1s", all.join(","));
    // Some of them are connected to it.
    let mut guards = Vec::new();
    let mut clients = Vec::new();
    for at in 0..6 {
        let locks = client(&url, &format!("client-{at}")).await;
        guards.push(take(&locks.lock(format!("x{at}").as_str()).ttl(LONG)).await);
        clients.push(locks);
    }
    servers.pause(follower);
    for (at, guard) in guards.iter().enumerate() {
        until("it is renewed elsewhere", || async { guard.renew().await.ok() }).await;
        assert!(guard.is_held());
        let name = format!("x{at}");
        until("it is shown", || async {
            let seen = tokio::time::timeout(LONG, view(&clients[at], &name)).await.ok()?;
            (seen.holders.first()?.fence == guard.fence()).then_some(())
        })
        .await;
    }
    servers.resume(follower);
}
