//! Sessions that are ended, servers that crash, stop and stay silent, clocks that are wrong.

use std::{cell::Cell, sync::Arc, time::Duration};

use leaseward::{
    Attempt, ErrorKind, Locks, LostReason,
    clock::{BoxFuture, Clock, Moment, SystemClock},
    store::{Level, Reply},
};
use leaseward_testkit::{PATIENCE, Postgres, Proxy, eventually};

use crate::help::{
    connect, granted, hearing, one, open, queue_of, queueing, releasing, renewing, server, session,
    take, taking, until,
};

/// Long enough for a restart, on a busy machine too.
const TTL: Duration = Duration::from_secs(20);

/// Ends every session but the one that asks; answers how many there were.
fn end_sessions(server: &Postgres) -> usize {
    let ended = server.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
    );
    ended.lines().count()
}

/// Waits until every statement has ended.
fn nobody_is_at_work(server: &Postgres) {
    eventually("nobody is at work", PATIENCE, || {
        let busy = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND backend_type = 'client backend' \
                    AND pid <> pg_backend_pid()";
        (server.sql(busy) == "0").then_some(())
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_sessions_end_no_lease_and_nobodys_wait() {
    let server = server();
    let (locks, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let held = take(locks.lock("a").ttl(TTL)).await;
    let waiting = other.clone();
    let waiter = tokio::spawn(async move { waiting.lock("a").ttl(TTL).acquire().await });
    queue_of(&locks, "a", 1).await;
    for _ in 0..5 {
        assert!(end_sessions(&server) > 0, "nobody was connected");
        until("it can be renewed", PATIENCE, || async { held.renew().await.ok() }).await;
        assert!(held.is_held());
        until("the other is back", PATIENCE, || async { other.inspect(all()).await.ok() }).await;
    }
    let fence = held.fence();
    held.release().await.expect("given back");
    let next = waiter.await.expect("no panic").expect("served");
    assert!(next.fence() > fence);
}

fn all() -> leaseward::store::Query {
    leaseward::store::Query::all()
}

#[tokio::test(flavor = "multi_thread")]
async fn renewals_go_on_while_sessions_are_ended() {
    let server = server();
    let locks = connect(&server.url()).await;
    let held = take(locks.lock("a").ttl(Duration::from_secs(2))).await;
    let begun = held.deadline();
    let ended = Cell::new(0);
    // Several lifetimes of the lease.
    until("it was renewed beyond its first lifetimes", PATIENCE * 2, || async {
        ended.set(ended.get() + end_sessions(&server));
        (held.deadline().since(begun) > Duration::from_secs(4)).then_some(())
    })
    .await;
    assert!(held.is_held() && ended.get() > 3, "{} sessions were ended", ended.get());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_loses_nothing_that_was_committed() {
    let server = Postgres::start();
    let (locks, other) = (connect(&server.url()).await, connect(&server.url()).await);
    assert_eq!(locks.guarantee().exclusion, Level::Holds);
    let held = take(locks.lock("a").ttl(TTL)).await;
    let watching = other.clone();
    let waiter = tokio::spawn(async move { other.lock("a").ttl(TTL).acquire().await });
    queue_of(&locks, "a", 1).await;
    server.kill();
    until("it is not taken for a wrong address", PATIENCE, || async {
        let failure = watching.health().await.round_trip.err()?;
        failure.hint_text()?.contains("it was reached ").then_some(())
    })
    .await;
    server.restart();
    until("it can be renewed", PATIENCE, || async { held.renew().await.ok() }).await;
    assert!(held.is_held());
    let Attempt::Busy(_) = until("the other is back", PATIENCE, || async {
        watching.lock("a").try_acquire().await.ok()
    })
    .await
    else {
        panic!("two holders")
    };
    let fence = held.fence();
    held.release().await.expect("given back");
    let next = waiter.await.expect("no panic").expect("served");
    assert!(next.fence() > fence);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_server_makes_nobody_believe() {
    let server = server();
    let url = format!("{}?timeout=300ms", server.url());
    let (locks, other) = (connect(&url).await, connect(&url).await);
    let held = take(locks.lock("a").ttl(Duration::from_millis(900))).await;
    server.pause();
    let fence = held.fence();
    assert_eq!(held.lost().await, LostReason::Expired, "told while nobody answers");
    assert!(!held.is_held());
    let failure = other.lock("a").try_acquire().await.expect_err("nobody answers");
    assert!(
        matches!(failure.kind(), ErrorKind::Indeterminate | ErrorKind::Unavailable),
        "{failure:?}"
    );
    server.resume();
    let next = until("somebody gets it", PATIENCE, || async {
        match other.lock("a").try_acquire().await {
            Ok(Attempt::Granted(guard)) => Some(guard),
            _ => None,
        }
    });
    assert!(next.await.fence() > fence);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_given_up_is_not_carried_out_by_a_server_that_wakes_up() {
    let server = server();
    let store = open(&format!("{}?timeout=300ms", server.url())).await;
    granted(one(&*store, taking("before", 1)).await);
    server.pause();
    let unknown = one(&*store, taking("given-up", 7)).await;
    assert_eq!(unknown.expect_err("nobody answers").kind(), ErrorKind::Indeterminate);
    server.resume();
    until("the store works again", PATIENCE, || async { store.ping().await.ok() }).await;
    granted(one(&*store, taking("after", 1)).await);
    // The statement lay in the old session's socket all the time: that session has to end first.
    nobody_is_at_work(&server);
    assert_eq!(server.sql("SELECT count(*) FROM leaseward.leases WHERE token IS NOT NULL"), "2");
    assert_eq!(server.sql("SELECT count(*) FROM leaseward.leases WHERE name = 'given-up'"), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_given_up_is_not_carried_out_once_its_row_is_free() {
    let server = server();
    let store = open(&format!("{}?timeout=300ms", server.url())).await;
    granted(one(&*store, taking("a", 1)).await);
    assert!(matches!(one(&*store, releasing("a", 1)).await, Ok(Reply::Released)));
    let other = session(&server.url()).await;
    let hold = "BEGIN; SELECT FROM leaseward.leases WHERE name = 'a' FOR NO KEY UPDATE";
    other.batch_execute(hold).await.expect("the row is free");
    let unknown = one(&*store, taking("a", 7)).await;
    assert_eq!(unknown.expect_err("nobody answers").kind(), ErrorKind::Indeterminate);
    other.batch_execute("COMMIT").await.expect("ended");
    nobody_is_at_work(&server);
    let held = "SELECT count(*) FROM leaseward.leases WHERE token IS NOT NULL";
    assert_eq!(server.sql(held), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_was_given_up_is_not_carried_out_once_its_row_is_free() {
    let server = server();
    let store = open(&format!("{}?timeout=300ms", server.url())).await;
    granted(one(&*store, taking("a", 1)).await);
    let other = session(&server.url()).await;
    let hold = "BEGIN; SELECT FROM leaseward.leases WHERE name = 'a' FOR NO KEY UPDATE";
    other.batch_execute(hold).await.expect("the row is free");
    let unknown = one(&*store, releasing("a", 1)).await;
    assert_eq!(unknown.expect_err("nobody answers").kind(), ErrorKind::Indeterminate);
    other.batch_execute("COMMIT").await.expect("ended");
    nobody_is_at_work(&server);
    assert_eq!(server.sql("SELECT count(*) FROM leaseward.leases WHERE token IS NOT NULL"), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_lost_leaves_it_open() {
    let server = server();
    let proxy = Proxy::start(&server.address());
    let url = server.url().replace(&server.address(), &proxy.address());
    let store = open(&url).await;
    proxy.hold_to_client();
    let asking = tokio::spawn({
        let store = store.clone();
        async move { one(&*store, taking("a", 7)).await }
    });
    eventually("it was carried out", PATIENCE, || {
        (server.sql("SELECT count(*) FROM leaseward.leases WHERE name = 'a'") == "1").then_some(())
    });
    proxy.cut();
    proxy.pass();
    let answer = asking.await.expect("no panic");
    assert_eq!(answer.expect_err("the answer was lost").kind(), ErrorKind::Indeterminate);
    // The same token finds that it has the lease.
    until("it is granted again", PATIENCE, || async { one(&*store, taking("a", 7)).await.ok() })
        .await;
    let renewed = one(&*store, renewing("a", 7)).await.expect("answered");
    assert!(matches!(renewed, Reply::Renewed(_)), "{renewed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_is_an_error_at_once_with_its_reason() {
    let server = server();
    let store = open(&server.url()).await;
    server.stop();
    until("it was noticed", PATIENCE, || async {
        let failure = one(&*store, taking("a", 1)).await.expect_err("there is an outage");
        match failure.kind() {
            ErrorKind::Unavailable => Some(()),
            ErrorKind::Indeterminate => None,
            other => panic!("an outage is not {other}"),
        }
    })
    .await;
    server.restart();
    until("it works again", PATIENCE, || async { one(&*store, taking("a", 1)).await.ok() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_notification_costs_only_time() {
    let server = server();
    let proxy = Proxy::start(&server.address());
    let deaf = server.url().replace(&server.address(), &proxy.address());
    let listen = deaf.replace(':', "%3A").replace('/', "%2F").replace('@', "%40");
    let url = format!("{}?listen={listen}", server.url());
    let (holder, waiter) =
        (open(&server.url()).await, leaseward::connect(&url).await.expect("good"));
    granted(one(&*holder, taking("a", 1)).await);
    let waiting = waiter.clone();
    let waiting =
        tokio::spawn(async move { waiting.lock("a").ttl(Duration::from_secs(3)).acquire().await });
    queue_of(&waiter, "a", 1).await;
    eventually("it listens", PATIENCE, || {
        let listens =
            "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND state = 'idle'";
        (server.sql(listens) == "2").then_some(())
    });
    // From now on it is told nothing, and does not know it.
    proxy.hold_to_client();
    one(&*holder, releasing("a", 1)).await.expect("given back");
    let guard = waiting.await.expect("no panic").expect("served all the same");
    assert!(guard.is_held());
}

/// A machine whose wall clock is wrong.
#[derive(Debug)]
struct Wrong {
    hours: i64,
}

impl Clock for Wrong {
    fn now(&self) -> Moment {
        SystemClock.now()
    }
    fn wall_us(&self) -> u64 {
        SystemClock.wall_us().saturating_add_signed(self.hours * 3_600_000_000)
    }
    fn sleep_until(&self, at: Moment) -> BoxFuture<'static, ()> {
        SystemClock.sleep_until(at)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_whose_clocks_are_hours_off_take_turns() {
    let server = server();
    let mut clients = Vec::new();
    for hours in [-5, 0, 7] {
        let clock = Arc::new(Wrong { hours });
        clients.push(Locks::builder().clock(clock).connect(&server.url()).await.expect("good"));
    }
    let mut last = leaseward::Fence::ZERO;
    for round in 0..9 {
        let (locks, others) =
            (&clients[round % 3], [&clients[(round + 1) % 3], &clients[(round + 2) % 3]]);
        let held = take(locks.lock("a").ttl(Duration::from_secs(5))).await;
        assert!(held.fence() > last, "{} after {last}", held.fence());
        last = held.fence();
        for other in others {
            let attempt = other.lock("a").try_acquire().await.expect("answered");
            let Attempt::Busy(_) = attempt else { panic!("two holders") };
        }
        held.release().await.expect("given back");
    }
}

/// The server's own clock is what leases go by: one that is set forward ends them, and statements under way are not taken
/// for forgotten ones.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_clock_is_set_goes_on() {
    let skew = leaseward_testkit::Skew::new();
    let server = Postgres::builder().in_memory().skew(&skew).start();
    let store = open(&server.url()).await;
    let first = granted(one(&*store, taking("a", 1)).await);
    skew.set_ms(7_200_000);
    let second = granted(one(&*store, taking("a", 2)).await);
    assert!(second.fence() > first.fence());
    skew.set_ms(0);
    // Back again: the fence is not.
    one(&*store, releasing("a", 2)).await.expect("given back");
    let third = granted(one(&*store, taking("a", 3)).await);
    assert!(third.fence() > second.fence());
    assert!(store.fence_lead().is_some_and(|lead| lead > Duration::from_secs(3_600)));
}

/// Rows that change all the time under many clients: nobody gets a serialization failure or a deadlock.
#[tokio::test(flavor = "multi_thread")]
async fn many_clients_in_each_others_way_fail_nobody() {
    let server = server();
    let mut tasks = Vec::new();
    for client in 0..6 {
        let url = server.url();
        tasks.push(tokio::spawn(async move {
            let store = open(&url).await;
            for round in 0..40_u128 {
                // In an order of its own, some twice.
                let names: Vec<_> =
                    (0..8).map(|at| format!("n{}", (at * (client + 1) + round) % 5)).collect();
                let who = 1_000 + client * 1_000 + round;
                let batch = names.iter().map(|name| taking(name, who));
                let batch = batch.chain(names.iter().map(|name| queueing(name, who + 500)));
                let batch = batch.chain(names.iter().map(|name| releasing(name, who)));
                let batch = batch.chain(names.iter().map(|name| releasing(name, who + 500)));
                for answer in store.carry_out(batch.collect()).await {
                    answer.expect("carried out");
                }
            }
        }));
    }
    for task in tasks {
        task.await.expect("no panic");
    }
    let log = server.log();
    assert!(!log.contains("deadlock") && !log.contains("ERROR"), "{log}");
    let held = "SELECT count(*) FROM leaseward.leases WHERE token IS NOT NULL OR waiters > 0";
    assert_eq!(server.sql(held), "0");
}

/// Where transactions see only what was there when they began, leases work all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_serializable_by_default_will_do() {
    let server = Postgres::builder()
        .in_memory()
        .conf("default_transaction_isolation", "serializable")
        .start();
    let mut tasks = Vec::new();
    let counter = session(&server.url()).await;
    counter.batch_execute("CREATE TABLE counter AS SELECT 0 AS n").await.expect("made");
    for _ in 0..3 {
        let url = server.url();
        tasks.push(tokio::spawn(async move {
            let (locks, own) = (connect(&url).await, session(&url).await);
            for _ in 0..15 {
                let held = locks.lock("counter").acquire().await.expect("granted");
                let n: i32 =
                    own.query_one("SELECT n FROM counter", &[]).await.expect("read").get(0);
                own.execute("UPDATE counter SET n = $1", &[&(n + 1)]).await.expect("written");
                held.release().await.expect("given back");
            }
        }));
    }
    for task in tasks {
        task.await.expect("no panic");
    }
    assert_eq!(server.sql("SELECT n FROM counter"), "45");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_was_deaf_hears_again() {
    let server = server();
    let store = open(&server.url()).await;
    assert!(end_sessions(&server) > 0);
    until("the store works again", PATIENCE, || async { store.ping().await.ok() }).await;
    hearing(&*store).await;
}
