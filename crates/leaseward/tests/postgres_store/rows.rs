//! What stands in the tables, and transactions of users who hold a fence row.

use std::time::Duration;

use leaseward::store::Reply;
use leaseward_testkit::PATIENCE;

use crate::help::{
    connect, granted, holding_fence, one, open, queue_of, queueing, releasing, renewing, server,
    take, taking, until,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_holds_a_fence_delays_only_that_names_next_lease() {
    let server = server();
    let store = open(&server.url()).await;
    let first = granted(one(&*store, taking("a", 1)).await);
    let holding = holding_fence(&server.url(), "a").await;
    // The lease is renewed, in one batch with others.
    let batch = vec![renewing("a", 1), taking("b", 2), taking("c", 3)];
    let answers = store.carry_out(batch).await;
    assert!(matches!(answers[0], Ok(Reply::Renewed(_))), "{answers:?}");
    assert!(matches!(answers[1], Ok(Reply::Granted(_))), "{answers:?}");
    assert!(matches!(answers[2], Ok(Reply::Granted(_))), "{answers:?}");
    // Given back, it is not given to anybody yet; who asks is told why, and others are not held up.
    let batch = vec![
        releasing("a", 1),
        taking("a", 4),
        queueing("a", 5),
        taking("d", 4),
        releasing("b", 2),
    ];
    let answers = store.carry_out(batch).await;
    assert!(matches!(answers[0], Ok(Reply::Released)), "{answers:?}");
    let Ok(Reply::Busy(busy)) = &answers[1] else { panic!("{answers:?}") };
    let who = busy.holder.as_ref().expect("somebody is in the way");
    assert!(who.who.contains("commit is in flight"), "{who}");
    let Ok(Reply::Queued(place)) = &answers[2] else { panic!("{answers:?}") };
    assert!(
        place.standing.free_in.expect("soon") < Duration::from_secs(1),
        "it is asked for again"
    );
    assert!(matches!(answers[3], Ok(Reply::Granted(_))), "{answers:?}");
    assert!(matches!(answers[4], Ok(Reply::Released)), "{answers:?}");
    let again = one(&*store, queueing("a", 5)).await;
    assert!(matches!(again, Ok(Reply::Queued(_))), "{again:?}");
    holding.batch_execute("COMMIT").await.expect("ended");
    let next = granted(one(&*store, queueing("a", 5)).await);
    assert!(next.fence() > first.fence());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_is_served_when_the_transaction_ends() {
    let server = server();
    let (locks, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let held = take(locks.lock("a")).await;
    let fence = held.fence();
    let holding = holding_fence(&server.url(), "a").await;
    let watching = other.clone();
    let waiter = tokio::spawn(async move { other.lock("a").acquire().await });
    queue_of(&watching, "a", 1).await;
    held.release().await.expect("given back");
    // Meanwhile everybody else goes on.
    for at in 0..50 {
        let other = take(locks.lock(format!("other-{at}"))).await;
        other.release().await.expect("given back");
    }
    assert!(!waiter.is_finished(), "a commit was in flight");
    holding.batch_execute("COMMIT").await.expect("ended");
    let next = waiter.await.expect("no panic").expect("served");
    assert!(next.fence() > fence);
}

#[tokio::test(flavor = "multi_thread")]
async fn fence_rows_say_whose_turn_it_is() {
    let server = server();
    let store = open(&server.url()).await;
    let row = || server.sql("SELECT first, last FROM leaseward.fences WHERE name = 'a'");
    let first = granted(one(&*store, taking("a", 1)).await);
    assert_eq!(row(), format!("{0}|{0}", first.fence()));
    one(&*store, renewing("a", 1)).await.expect("renewed");
    one(&*store, releasing("a", 1)).await.expect("given back");
    assert_eq!(row(), format!("{0}|{0}", first.fence()), "nobody else has had it");
    let second = granted(one(&*store, taking("a", 2)).await);
    assert_eq!(row(), format!("{0}|{0}", second.fence()));
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_changed_in_place() {
    let server = server();
    let store = open(&server.url()).await;
    for round in 0..300 {
        granted(one(&*store, taking("a", round)).await);
        one(&*store, renewing("a", round)).await.expect("renewed");
        one(&*store, releasing("a", round)).await.expect("given back");
    }
    until("the server has counted", PATIENCE, || async {
        let counts = server.sql(
            "SELECT bool_and(n_tup_upd >= 300 AND n_tup_hot_upd * 10 >= n_tup_upd * 9) FROM pg_stat_user_tables \
             WHERE schemaname = 'leaseward' AND relname IN ('leases', 'fences')",
        );
        (counts == "t").then_some(())
    })
    .await;
    let pages = server.sql("SELECT pg_relation_size('leaseward.leases') / 8192");
    assert!(pages.parse::<u32>().expect("a number") <= 4, "{pages} pages for one name");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_asked_for_however_many_are_new() {
    let server = server();
    let store = open(&server.url()).await;
    let batch = (0..250).map(|at| taking(&format!("new-{at:03}"), 1 + at)).collect();
    for answer in store.carry_out(batch).await {
        granted(answer);
    }
    let batch = (0..250).map(|at| releasing(&format!("new-{at:03}"), 1 + at)).collect();
    for answer in store.carry_out(batch).await {
        answer.expect("given back");
    }
}
