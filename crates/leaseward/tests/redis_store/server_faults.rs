//! A server that crashes, stops, refuses and forgets.

use std::time::{Duration, Instant};

use leaseward::{
    Attempt, ErrorKind, Fence, LostReason,
    store::{Level, Operation, Reply, Store},
};
use leaseward_testkit::{Fsync, PATIENCE, Proxy, RedisServer, eventually};

use crate::{
    help::{
        Monitor, connect, granted, healed, is_full, one, open, owner, queueing, releasing,
        renewing, take, taking, try_open, until,
    },
    names::token,
};

/// Long enough for a restart, on a busy machine too.
const TTL: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_loses_nothing_that_was_on_disk() {
    let server = RedisServer::builder().appendonly(Fsync::Always).start();
    let (locks, other) = (connect(&server.url()).await, connect(&server.url()).await);
    assert_eq!(locks.guarantee().exclusion, Level::Holds);
    let held = take(locks.lock("a").ttl(TTL)).await;
    let watching = other.clone();
    let waiter = tokio::spawn(async move { other.lock("a").ttl(TTL).acquire().await });
    eventually("somebody waits", PATIENCE, || {
        (server.cli(&["exists", "leaseward:q:lock:a"]) == "1").then_some(())
    });
    server.kill();
    until("it is not taken for a wrong address", PATIENCE, || async {
        let failure = watching.health().await.round_trip.err()?;
        failure.hint_text()?.contains("it was reached ").then_some(())
    })
    .await;
    server.restart();
    until("it can be renewed", PATIENCE, || async { held.renew().await.ok() }).await;
    assert!(held.is_held());
    eventually("those who wait are listening again", PATIENCE, || {
        (!server.cli(&["pubsub", "channels"]).is_empty()).then_some(())
    });
    let fence = held.fence();
    held.release().await.expect("given back");
    let next = waiter.await.expect("no panic").expect("served");
    assert!(next.fence() > fence);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_without_persistence_forgets_leases_but_not_the_order_of_fences() {
    let server = RedisServer::start();
    let (locks, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let promised = locks.guarantee();
    assert_eq!(promised.exclusion, Level::WithinBounds);
    assert!(
        promised.breaks_when.iter().any(|when| when.contains("it keeps nothing")),
        "it says so"
    );
    let held = take(locks.lock("a").ttl(TTL)).await;
    server.kill();
    server.restart();
    let second = until("the other is back", PATIENCE, || async {
        match other.lock("a").ttl(TTL).try_acquire().await {
            Ok(Attempt::Granted(guard)) => Some(guard),
            Ok(Attempt::Busy(busy)) => panic!("the server kept {busy}"),
            Err(_) => None,
        }
    });
    let second = second.await;
    assert!(held.is_held(), "the first cannot know yet");
    assert!(second.fence() > held.fence(), "but the resource can tell them apart");
    until("the first hears of it", PATIENCE, || async { held.renew().await.err() }).await;
    assert_eq!(held.lost().await, LostReason::NotOurs);
    drop(held);
    second.renew().await.expect("its release must not touch the second");
}

/// How many leases are taken at full speed: the more, the nearer the counter comes to the clock.
fn many() -> usize {
    if is_full() { 1_000_000 } else { 100_000 }
}

#[tokio::test(flavor = "multi_thread")]
async fn fences_grow_even_if_everything_is_forgotten_after_full_speed() {
    const BATCH: usize = 128;
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let batch: Vec<Operation> = (0..BATCH as u128)
        .flat_map(|at| {
            let name = format!("n{at}");
            [taking(&name, 1 + at), releasing(&name, 1 + at)]
        })
        .collect();
    let mut newest = Fence::ZERO;
    for _ in 0..many() / BATCH {
        for answer in store.carry_out(batch.clone()).await {
            if let Reply::Granted(grant) = answer.expect("carried out") {
                assert!(grant.fence() > newest);
                newest = grant.fence();
            }
        }
    }
    server.cli(&["flushall"]);
    let next = granted(one(&*store, taking("n0", 1)).await);
    assert!(next.fence() > newest, "{} after {newest}", next.fence());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_server_makes_nobody_believe() {
    let server = RedisServer::start();
    let url = format!("{}?timeout=200ms", server.url());
    let (locks, other) = (connect(&url).await, connect(&url).await);
    let held = take(locks.lock("a").ttl(Duration::from_millis(800))).await;
    server.pause();
    let fence = held.fence();
    assert_eq!(held.lost().await, LostReason::Expired, "told while nobody answers");
    assert!(!held.is_held());
    let failure = other.lock("a").try_acquire().await.expect_err("nobody answers");
    assert!(matches!(failure.kind(), ErrorKind::Indeterminate | ErrorKind::Unavailable));
    server.resume();
    let next = until("somebody gets it", PATIENCE, || async {
        match other.lock("a").try_acquire().await {
            Ok(Attempt::Granted(guard)) => Some(guard),
            _ => None,
        }
    });
    assert!(next.await.fence() > fence);
}

/// Asks during an outage until the store has noticed it; answers how many asks were turned away at once.
async fn ask_during(store: &dyn Store) -> u32 {
    let begin = Instant::now();
    let mut refused = 0;
    while refused < 20 {
        let answer = one(store, taking(&format!("during-{refused}"), 7)).await;
        match answer.expect_err("there is an outage").kind() {
            ErrorKind::Unavailable => refused += 1,
            // What was under way when it was noticed; nothing is sent after that, so nothing is in doubt.
            ErrorKind::Indeterminate => assert_eq!(refused, 0, "it had been noticed"),
            other => panic!("an outage is not {other}"),
        }
        assert!(begin.elapsed() < PATIENCE, "it was never noticed");
    }
    refused
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_was_turned_away_is_carried_out_later() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server.address());
    let store = open(&format!("redis://{}", proxy.address())).await;
    let monitor = Monitor::start(&server);
    proxy.refuse();
    proxy.cut();
    ask_during(&*store).await;
    proxy.accept();
    healed(&*store).await;
    granted(one(&*store, taking("after", 1)).await);
    let heard = monitor.heard(&server);
    assert!(heard.iter().any(|line| line.contains("lock:after")));
    assert!(!heard.iter().any(|line| line.contains("lock:during")), "{heard:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_was_turned_away_reaches_a_server_that_wakes_up() {
    let server = RedisServer::start();
    let store = open(&format!("{}?timeout=200ms", server.url())).await;
    let monitor = Monitor::start(&server);
    server.pause();
    let unknown = one(&*store, taking("before-it-was-noticed", 7)).await;
    assert_eq!(unknown.expect_err("nobody answers").kind(), ErrorKind::Indeterminate);
    ask_during(&*store).await;
    server.resume();
    healed(&*store).await;
    granted(one(&*store, taking("after", 1)).await);
    let heard = monitor.heard(&server);
    assert!(!heard.iter().any(|line| line.contains("lock:during")), "{heard:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgot_the_script_gets_it_again() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let steps = [taking("a", 1), queueing("a", 2), renewing("a", 1), releasing("a", 1)];
    for step in steps.into_iter().chain([releasing("a", 2)]) {
        server.cli(&["script", "flush"]);
        one(&*store, step).await.expect("carried out");
    }
    // And while others are at work.
    let locks = connect(&server.url()).await;
    let work = (0..4).map(|task| {
        let locks = locks.clone();
        tokio::spawn(async move {
            for _ in 0..50 {
                let held = locks.lock(format!("b{task}")).acquire().await.expect("granted");
                held.release().await.expect("given back");
            }
        })
    });
    let work: Vec<_> = work.collect();
    while work.iter().any(|task| !task.is_finished()) {
        server.cli(&["script", "flush"]);
    }
    for task in work {
        task.await.expect("no panic");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_busy_with_a_script_says_so() {
    let server = RedisServer::builder().arg("busy-reply-threshold", "10").start();
    let store = open(&server.url()).await;
    granted(one(&*store, taking("a", 1)).await);
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| server.try_cli(&["eval", "while true do end", "0"]));
        eventually("it is busy", PATIENCE, || {
            server.try_cli(&["get", "a"]).is_err_and(|why| why.contains("BUSY")).then_some(())
        });
        let answer = tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(one(&*store, releasing("a", 1)))
        });
        let failure = answer.expect_err("it is busy");
        assert_eq!(failure.kind(), ErrorKind::Unavailable);
        assert!(failure.message().contains("busy"), "{failure}");
        server.cli(&["script", "kill"]);
        busy.join().expect("no panic").expect_err("it was ended");
    });
    let released = one(&*store, releasing("a", 1)).await;
    assert!(matches!(released, Ok(Reply::Released)), "nothing had happened: {released:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_loads_says_so() {
    let server = RedisServer::builder().arg("loading-process-events-interval-bytes", "1024");
    let server = server.start();
    let store = open(&server.url()).await;
    granted(one(&*store, taking("a", 1)).await);
    server.cli(&["debug", "populate", "200", "filler", "200"]);
    server.cli(&["config", "set", "key-load-delay", "3000"]);
    std::thread::scope(|scope| {
        let loads = scope.spawn(|| server.cli(&["debug", "reload"]));
        let failure = tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(until("it loads", PATIENCE, || async {
                one(&*store, renewing("a", 1)).await.err()
            }))
        });
        assert_eq!(failure.kind(), ErrorKind::Unavailable);
        assert!(failure.message().contains("loading"), "{failure}");
        server.try_cli(&["config", "set", "key-load-delay", "0"]).ok();
        loads.join().expect("no panic");
    });
    let renewed = one(&*store, renewing("a", 1)).await;
    assert!(matches!(renewed, Ok(Reply::Renewed(_))), "{renewed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_save_is_no_place_for_leases() {
    let server = RedisServer::builder().arg("save", "3600 1000000").start();
    let store = open(&server.url()).await;
    granted(one(&*store, taking("a", 1)).await);
    // Where its file should be there is a folder.
    let file = server.folder().join("dump.rdb");
    std::fs::create_dir(&file).expect("a folder");
    server.cli(&["bgsave"]);
    eventually("saving failed", PATIENCE, || {
        (server.info("persistence")["rdb_last_bgsave_status"] == "err").then_some(())
    });
    for refused in [taking("b", 3), renewing("a", 1), releasing("a", 1)] {
        let failure = one(&*store, refused).await.expect_err("it refuses writes");
        assert_eq!(failure.kind(), ErrorKind::Unavailable);
        assert!(failure.message().contains("disk"), "{failure}");
    }
    assert_eq!(owner(&server, "lock:a"), token(1).reveal(), "nothing happened");
    std::fs::remove_dir(&file).expect("it is empty");
    server.cli(&["bgsave"]);
    until("it heals", PATIENCE, || async { one(&*store, releasing("a", 1)).await.ok() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_turned_replica_is_left_and_found_again() {
    let server = RedisServer::start();
    let elsewhere = RedisServer::start();
    let store = open(&server.url()).await;
    let before = granted(one(&*store, taking("a", 1)).await);
    // Its own data is replaced once the link stands, so its primary is one that never answers.
    elsewhere.pause();
    server.cli(&["replicaof", "127.0.0.1", &elsewhere.port().to_string()]);
    let failure = one(&*store, taking("b", 2)).await.expect_err("it is a replica");
    assert_eq!(failure.kind(), ErrorKind::Unavailable);
    assert!(failure.message().contains("replica"), "{failure}");
    // The connection was given up, and another is not made for as long as it is a replica.
    let failure = until("it looks for a primary", PATIENCE, || async {
        store.ping().await.err().filter(|failure| failure.message().contains("127.0.0.1"))
    });
    assert!(failure.await.message().contains("is a replica"));
    server.cli(&["replicaof", "no", "one"]);
    healed(&*store).await;
    let again = granted(one(&*store, taking("a", 1)).await);
    assert_eq!(again.fence(), before.fence(), "the same token has the same lease");
    granted(one(&*store, taking("b", 2)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_or_database_is_refused_at_once() {
    let server = RedisServer::builder().requirepass("secret").acl("locker on >sesame ~* &* +@all");
    let server = server.start();
    let at = server.address();
    for (url, said) in [
        (format!("redis://{at}"), "password"),
        (format!("redis://:wrong@{at}"), "refused user and password"),
        (format!("redis://locker:wrong@{at}"), "refused user and password"),
        (format!("redis://nobody:sesame@{at}"), "refused user and password"),
        (format!("redis://:secret@{at}/99"), "no database 99"),
    ] {
        let failure = try_open(&url).await.expect_err(&url);
        assert_eq!(failure.kind(), ErrorKind::Refused, "{url}: {failure}");
        assert!(failure.to_string().contains(said), "{url}: {failure}");
        assert!(!format!("{failure:?}").contains("sesame"), "{failure:?}");
    }
    try_open(&format!("redis://locker:sesame@{at}/15")).await.expect("both are right");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_changes_never_makes_us_somebody_else() {
    // Whoever shows nothing is the default user, who may do everything.
    let server = RedisServer::builder().acl("locker on >sesame ~* &* +@all").start();
    let store = open(&format!("redis://locker:sesame@{}", server.address())).await;
    granted(one(&*store, taking("a", 1)).await);
    let monitor = Monitor::start(&server);
    server.cli(&["acl", "setuser", "locker", "resetpass", ">other"]);
    server.cli(&["client", "kill", "user", "locker"]);
    let failure = until("it is refused", PATIENCE, || async {
        let failure = one(&*store, releasing("a", 1)).await.expect_err("it is shut out");
        (failure.kind() == ErrorKind::Refused).then_some(failure)
    });
    assert!(failure.await.message().contains("refused user and password"));
    let heard = monitor.heard(&server);
    let set_up =
        |line: &&String| ["SETNAME", "LOAD", "SELECT"].iter().any(|word| line.contains(word));
    assert_eq!(heard.iter().find(set_up), None, "it went on as somebody else");
    server.cli(&["acl", "setuser", "locker", "resetpass", ">sesame"]);
    until("it is let in again", PATIENCE, || async { one(&*store, releasing("a", 1)).await.ok() })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_a_password_is_nobody_else() {
    let server = RedisServer::builder()
        .acl("locker on >sesame ~* &* +@all")
        .acl("open on nopass ~* &* +@all")
        .start();
    let failure = try_open(&format!("redis://locker@{}", server.address())).await;
    let failure = failure.expect_err("it has a password, and the default user was not meant");
    assert_eq!(failure.kind(), ErrorKind::Refused, "{failure}");
    let _store = open(&format!("redis://open@{}", server.address())).await;
    let clients = server.client_list();
    let ours: Vec<_> =
        clients.iter().filter(|client| client["name"] == "leaseward:test:1").collect();
    assert!(!ours.is_empty() && ours.iter().all(|client| client["user"] == "open"), "{ours:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_user_may_not_is_refused_and_not_in_doubt() {
    let server = RedisServer::builder()
        .acl("writes-nothing on >x ~* &* +@all -set")
        .acl("elsewhere on >x ~other:* ~leaseward:* &* +@all")
        .acl("no-scripts on >x ~* &* +@all -evalsha -eval")
        .start();
    for user in ["writes-nothing", "elsewhere", "no-scripts"] {
        let store = open(&format!("redis://{user}:x@{}", server.address())).await;
        let failure = one(&*store, taking("a", 1)).await.expect_err(user);
        assert_eq!(failure.kind(), ErrorKind::Refused, "{user}: {failure}");
        assert!(failure.hint_text().is_some_and(|hint| hint.contains("ACL")), "{failure:?}");
        assert_eq!(server.cli(&["exists", "lock:a"]), "0");
    }
}
