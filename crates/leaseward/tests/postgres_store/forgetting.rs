//! Names that nobody uses are forgotten, and their fences are not given out again.

use leaseward::store::Query;

use crate::help::{granted, holding_fence, one, open, releasing, server, taking};

/// What the housekeeping calls, for names that have been free for an hour; here for those that are free at all.
const SWEEP: &str = "SELECT forgotten FROM leaseward.sweep(400, 0)";

const COUNT: &str = "SELECT (SELECT count(*) FROM leaseward.leases), (SELECT count(*) FROM leaseward.fences), \
     (SELECT count(*) FROM leaseward.shares), (SELECT count(*) FROM leaseward.places), \
     (SELECT count(*) FROM leaseward.meta)";

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_names_used_once_leave_nothing_but_the_floor() {
    let server = server();
    let store = open(&server.url()).await;
    let mut newest = 0;
    for part in 0..4 {
        let names: Vec<_> = (0..250).map(|at| format!("n{:04}", part * 250 + at)).collect();
        for answer in store.carry_out(names.iter().map(|name| taking(name, 1)).collect()).await {
            newest = newest.max(granted(answer).fence().get());
        }
        for answer in store.carry_out(names.iter().map(|name| releasing(name, 1)).collect()).await {
            answer.expect("given back");
        }
    }
    granted(one(&*store, taking("kept", 1)).await);
    let holding = holding_fence(&server.url(), "n0007").await;
    let sweep = || (0..4).map(|_| server.sql(SWEEP).parse::<u32>().expect("a number")).sum::<u32>();
    assert!(sweep() >= 999);
    assert_eq!(server.sql(COUNT), "2|2|0|0|1", "one is held, one has its fence held");
    holding.batch_execute("COMMIT").await.expect("ended");
    sweep();
    assert_eq!(server.sql(COUNT), "1|1|0|0|1");
    one(&*store, releasing("kept", 1)).await.expect("given back");
    sweep();
    assert_eq!(server.sql(COUNT), "0|0|0|0|1");
    let floor: u64 = server.sql("SELECT floor FROM leaseward.meta").parse().expect("a number");
    assert!(floor >= newest);
    // Even if the clock stood still, the next one is above it.
    server.sql("UPDATE leaseward.meta SET floor = floor + 1000000000000");
    let next = granted(one(&*store, taking("n0000", 2)).await);
    assert!(next.fence().get() > newest + 1_000_000_000_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_was_used_within_the_hour_is_remembered() {
    let server = server();
    let store = open(&server.url()).await;
    granted(one(&*store, taking("a", 1)).await);
    one(&*store, releasing("a", 1)).await.expect("given back");
    let hour = "SELECT forgotten FROM leaseward.sweep(400, 3600000000)";
    assert_eq!(server.sql(hour), "0");
    assert!(store.inspect(Query::all()).await.expect("answered").is_empty(), "nobody holds it");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_expired_is_found() {
    let server = server();
    let store = open(&server.url()).await;
    granted(one(&*store, taking("a", 1)).await);
    granted(one(&*store, taking("b", 1)).await);
    server.sql("UPDATE leaseward.leases SET expires_us = 1 WHERE name = 'a'");
    assert_eq!(server.sql("SELECT expired FROM leaseward.sweep(400, 3600000000)"), "{a}");
}
