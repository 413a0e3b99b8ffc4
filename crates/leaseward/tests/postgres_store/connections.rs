//! How many connections there are, and what happens when there are no more.

use std::time::Duration;

use leaseward::ErrorKind;
use leaseward_testkit::{PATIENCE, Postgres};

use crate::help::{connect, is_full, queue_of, server, take, try_open, until};

/// The connections of all clients of this library.
fn connections(server: &Postgres) -> usize {
    let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'leaseward %'";
    server.sql(count).parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_begins_with_one_and_never_has_more_than_its_lanes() {
    let server = server();
    let locks = connect(&format!("{}?lanes=3", server.url())).await;
    assert_eq!(connections(&server), 1);
    let work: Vec<_> = (0..64)
        .map(|task| {
            let locks = locks.clone();
            tokio::spawn(async move {
                for _ in 0..20 {
                    let held = take(locks.lock(format!("n{task}"))).await;
                    held.release().await.expect("given back");
                }
            })
        })
        .collect();
    let mut most = 0;
    while work.iter().any(|task| !task.is_finished()) {
        most = most.max(connections(&server));
    }
    for task in work {
        task.await.expect("no panic");
    }
    assert!((2..=3).contains(&most), "{most} connections under load");
    if is_full() {
        // Idle for half a minute, and then at the next round of the housekeeping.
        until("those that are not needed are closed", PATIENCE * 9, || async {
            (connections(&server) == 1).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_waiters_need_one_connection_more() {
    let server = server();
    let locks =
        leaseward::Locks::builder().cohorts(false).connect(&server.url()).await.expect("good");
    let held = take(locks.lock("a")).await;
    let waiting: Vec<_> = (0..1_000)
        .map(|_| {
            let lock = locks.lock("a").ttl(Duration::from_secs(60));
            tokio::spawn(async move {
                let held = lock.acquire().await.expect("served");
                held.release().await.expect("given back");
            })
        })
        .collect();
    queue_of(&locks, "a", 1_000).await;
    // Those of its lanes, and the listener's.
    let most = 4 + 1;
    assert!(connections(&server) <= most, "{} connections", connections(&server));
    held.release().await.expect("given back");
    for task in waiting {
        task.await.expect("no panic");
    }
    assert!(connections(&server) <= most, "{} connections", connections(&server));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_connections_to_spare_is_said_to_be_that() {
    // Three are kept for superusers, which this user is not.
    let server = Postgres::builder().in_memory().max_connections(5).start();
    let app = server.user("poor");
    drop(try_open(&server.url()).await.expect("the tables are made"));
    server.sql("GRANT USAGE ON SCHEMA leaseward TO poor; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA leaseward TO poor");
    let locks = connect(&app).await;
    let second = try_open(&app).await.expect("there is one left");
    let refused = until("none is left", PATIENCE, || async { try_open(&app).await.err() }).await;
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(
        refused.hint_text().is_some_and(|hint| hint.contains("max_connections")),
        "{refused:?}"
    );
    // The first goes on with the connection it has, under load too.
    let work: Vec<_> = (0..32)
        .map(|task| {
            let locks = locks.clone();
            tokio::spawn(async move {
                for _ in 0..5 {
                    let held = take(locks.lock(format!("n{task}"))).await;
                    held.release().await.expect("given back");
                }
            })
        })
        .collect();
    for task in work {
        task.await.expect("no panic");
    }
    second.close().await;
}
