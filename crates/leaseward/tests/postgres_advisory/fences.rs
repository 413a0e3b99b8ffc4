//! Fences from a sequence: larger every time, whoever asks, and nothing waits for the disk.

use std::sync::Arc;

use largest::Seen;

use crate::help::{LONG, connect, server, take};

/// The largest fence of each name.
mod largest {
    use std::{collections::HashMap, sync::Mutex};

    use leaseward::Fence;

    #[derive(Default)]
    pub(crate) struct Seen(Mutex<HashMap<String, Fence>>);

    impl Seen {
        /// Checks that a fence of a name is larger than all before.
        pub(crate) fn see(&self, name: &str, fence: Fence) {
            let mut seen = self.0.lock().expect("no panic before");
            let before = seen.insert(name.to_owned(), fence);
            assert!(
                before.is_none_or(|before| before < fence),
                "{fence} of {name} after {before:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fences_of_a_name_grow_whoever_takes_it_and_while_the_sequence_is_raised() {
    let server = server();
    let seen = Arc::new(Seen::default());
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let locks = connect(&server).await;
        for _ in 0..4 {
            let (locks, seen) = (locks.clone(), seen.clone());
            tasks.push(tokio::spawn(async move {
                for round in 0..40 {
                    let name = format!("name-{}", round % 3);
                    let held = locks.lock(&name).ttl(LONG).acquire().await.expect("granted");
                    seen.see(&name, held.fence());
                    held.release().await.expect("given back");
                }
            }));
        }
    }
    // Each new session raises it to the clock.
    for _ in 0..20 {
        drop(connect(&server).await);
    }
    for task in tasks {
        task.await.expect("fences grow");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fences_are_on_the_scale_of_the_clock_and_stay_in_order_when_it_is_set_back() {
    let server = server();
    let (locks, other) = (connect(&server).await, connect(&server).await);
    let first = take(&locks.lock("a").ttl(LONG)).await;
    let now: u64 = server
        .sql("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
        .parse()
        .expect("a number");
    let apart = now.abs_diff(first.fence().get());
    assert!(apart < 600_000_000, "{apart} µs from the clock");
    let fence = first.fence();
    first.release().await.expect("given back");
    // As if the clock had been an hour ahead and were right again.
    server.sql("SELECT setval('leaseward.advisory_fences', nextval('leaseward.advisory_fences') + 3600000000)");
    let ahead = take(&other.lock("a").ttl(LONG)).await;
    assert!(ahead.fence().get() > fence.get() + 3_000_000_000);
    let fence = ahead.fence();
    ahead.release().await.expect("given back");
    let late = connect(&server).await;
    assert!(take(&late.lock("a").ttl(LONG)).await.fence() > fence, "raising never lowers");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_waits_for_no_disk() {
    let server = server();
    let locks = connect(&server).await;
    take(&locks.lock("warm").ttl(LONG)).await.release().await.expect("given back");
    let synced =
        || -> u64 { server.sql("SELECT wal_sync FROM pg_stat_wal").parse().expect("a number") };
    let written =
        || -> u64 { server.sql("SELECT wal_records FROM pg_stat_wal").parse().expect("a number") };
    let (syncs, records) = (synced(), written());
    for _ in 0..1_000 {
        take(&locks.lock("a").ttl(LONG)).await.release().await.expect("given back");
    }
    // A flush or a record for each would be a thousand; the server itself has some of its own.
    assert!(synced() - syncs < 100, "{} flushes", synced() - syncs);
    assert!(written() - records < 500, "{} records", written() - records);
}
