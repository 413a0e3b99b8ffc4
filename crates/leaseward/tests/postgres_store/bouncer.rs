//! Behind PgBouncer in transaction mode: any statement may go out over any connection.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use leaseward::{Locks, store::Severity};
use leaseward_testkit::{PATIENCE, PgBouncer, Postgres};

use crate::help::{connect, hearing, queue_of, server, take, try_open, until};

fn encoded(url: &str) -> String {
    url.replace(':', "%3A").replace('/', "%2F").replace('@', "%40")
}

/// Clients that take turns at one name: never two at once.
async fn take_turns(server: &Postgres, url: &str) {
    let (inside, rounds) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let locks = Locks::builder().cohorts(false).connect(url).await.expect("it can be reached");
        let (inside, rounds) = (inside.clone(), rounds.clone());
        tasks.push(tokio::spawn(async move {
            for round in 0..5 {
                let held = locks.lock("shared").ttl(Duration::from_secs(30)).acquire().await;
                let held = held.expect("granted");
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                let other = take(locks.lock(format!("own-{round}-{}", held.fence()))).await;
                other.release().await.expect("given back");
                inside.fetch_sub(1, Ordering::SeqCst);
                rounds.fetch_add(1, Ordering::SeqCst);
                held.release().await.expect("given back");
            }
        }));
    }
    for task in tasks {
        task.await.expect("no panic");
    }
    assert_eq!(rounds.load(Ordering::SeqCst), 15);
    assert!(!server.log().contains("ERROR"), "{}", server.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_pass_between_clients_without_notifications() {
    let server = server();
    let bouncer = PgBouncer::before(&server, 2);
    take_turns(&server, &bouncer.url()).await;
    // It says why it is slow.
    let locks = connect(&bouncer.url()).await;
    let held = take(locks.lock("a")).await;
    let other = connect(&bouncer.url()).await;
    let waiting = other.clone();
    let waiter = tokio::spawn(async move { waiting.lock("a").acquire().await });
    queue_of(&locks, "a", 1).await;
    until("it is noticed", PATIENCE, || async {
        let findings = other.diagnose().await.expect("answered");
        findings
            .iter()
            .any(|finding| {
                finding.severity == Severity::Warning && finding.advice.contains("listen=")
            })
            .then_some(())
    })
    .await;
    held.release().await.expect("given back");
    assert!(waiter.await.expect("no panic").expect("served").is_held());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_direct_connection_hears_notifications() {
    let server = server();
    let bouncer = PgBouncer::before(&server, 2);
    let url = format!("{}?listen={}", bouncer.url(), encoded(&server.url()));
    take_turns(&server, &url).await;
    hearing(&*try_open(&url).await.expect("it can be reached")).await;
}
