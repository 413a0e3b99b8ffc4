//! How much is asked of the server, counted there.

use std::{collections::BTreeMap, future::Future as _, pin::pin, task::Poll};

use futures_util::future::join_all;
use leaseward::{Attempt, Guard, Locks, store::Push};
use leaseward_testkit::{PATIENCE, Proxy, RedisServer, eventually};
use tokio::task::JoinHandle;

use crate::{
    help::{LONG, Monitor, connect, granted, listen, one, open, queueing, releasing, take, taking},
    names::token,
};

/// What was carried out since, without what asking for it costs.
fn calls_since_reset(server: &RedisServer) -> BTreeMap<String, u64> {
    let own = ["config|resetstat", "info"];
    server.calls().into_iter().filter(|(command, _)| !own.contains(&&**command)).collect()
}

fn calls_of(server: &RedisServer, command: &str) -> u64 {
    server.calls().get(command).copied().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lone_acquire_and_a_lone_release_are_one_call_each() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server.address());
    let locks = connect(&format!("redis://{}", proxy.address())).await;
    // The first that may have to wait subscribes as well.
    locks.lock("first").acquire().await.expect("it is free").release().await.expect("given back");
    let sent = || (proxy.requests(), calls_of(&server, "evalsha"));
    let mut before = sent();
    let mut is_one_call = |what: &str| {
        let now = sent();
        assert_eq!((now.0 - before.0, now.1 - before.1), (1, 1), "{what}");
        before = now;
    };
    let tried = take(locks.lock("a").ttl(LONG)).await;
    is_one_call("an attempt");
    let waited = locks.lock("b").ttl(LONG).acquire().await.expect("it is free");
    is_one_call("an acquisition that would have waited");
    tried.release().await.expect("given back");
    is_one_call("a release");
    waited.release().await.expect("given back");
    is_one_call("a release of what would have waited");
}

/// How many names each call of the script was about.
fn sizes_of_calls(heard: &[String]) -> Vec<usize> {
    let keys = |line: &String| {
        let mut words = line.split(" \"").skip_while(|word| *word != "EVALSHA\"");
        words.nth(2).and_then(|count| count.trim_end_matches('"').parse::<usize>().ok())
    };
    // The first key is the counter's.
    heard.iter().filter_map(keys).map(|keys| keys - 1).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_gathered_goes_out_in_calls_of_256_at_most() {
    // So many that a call would have more.
    const ALL: usize = 1_000;
    let server = RedisServer::start();
    let proxy = Proxy::start(&server.address());
    let locks = connect(&format!("redis://{}?timeout=10s", proxy.address())).await;
    let monitor = Monitor::start(&server);
    proxy.hold_to_server();
    let asking: Vec<_> = (0..ALL).map(|at| locks.lock(format!("n{at}")).ttl(LONG)).collect();
    let mut all = pin!(join_all(asking.iter().map(|lock| lock.try_acquire())));
    // All ask before any can be answered.
    let asked = std::future::poll_fn(|cx| Poll::Ready(all.as_mut().poll(cx).is_pending()));
    assert!(asked.await);
    proxy.pass();
    let held = all.await;
    assert!(held.iter().all(|attempt| matches!(attempt, Ok(Attempt::Granted(_)))));
    let sizes = sizes_of_calls(&monitor.heard(&server));
    assert_eq!(sizes.iter().sum::<usize>(), ALL, "{sizes:?}");
    assert_eq!(sizes.iter().max(), Some(&256), "{sizes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_shutdown_gives_back_goes_out_together() {
    const ALL: usize = 60;
    let server = RedisServer::start();
    let proxy = Proxy::start(&server.address());
    let locks = connect(&format!("redis://{}?timeout=10s", proxy.address())).await;
    let mut guards = Vec::new();
    for at in 0..ALL {
        guards.push(take(locks.lock(format!("m{at}")).ttl(LONG)).await);
    }
    let monitor = Monitor::start(&server);
    proxy.hold_to_client();
    let ending = tokio::spawn(async move { locks.shutdown().await });
    let held = || server.cli(&["--scan", "--pattern", "lock:m*"]).lines().count();
    eventually("all are given back, and no answer was heard", PATIENCE, || {
        (held() == 0).then_some(())
    });
    let sizes = sizes_of_calls(&monitor.heard(&server));
    assert_eq!(sizes, [ALL]);
    proxy.pass();
    ending.await.expect("no panic");
}

/// Somebody who waits for a name, with a place in the queue.
fn wait_for(locks: &Locks, server: &RedisServer, what: &str) -> JoinHandle<Guard> {
    let lock = locks.lock(what).ttl(LONG);
    let waiting = tokio::spawn(async move { lock.acquire().await.expect("it is its turn") });
    let queue = format!("leaseward:q:lock:{what}");
    eventually("it waits", PATIENCE, || (server.cli(&["exists", &queue]) == "1").then_some(()));
    waiting
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_subscribed_before_somebody_waits_and_then_once() {
    let server = RedisServer::start();
    let (holder, locks) = (connect(&server.url()).await, connect(&server.url()).await);
    let hears = || (calls_of(&server, "subscribe"), calls_of(&server, "client|tracking"));
    let names = ["a", "b", "c", "d"];
    for what in names {
        take(locks.lock(what)).await.release().await.expect("given back");
    }
    let mut held = Vec::new();
    for what in names {
        held.push(take(holder.lock(what).ttl(LONG)).await);
        assert!(matches!(locks.lock(what).try_acquire().await, Ok(Attempt::Busy(_))));
    }
    assert_eq!(hears(), (0, 0), "nobody waits");
    let waiting: Vec<_> = names.map(|what| wait_for(&locks, &server, what)).into();
    assert_eq!(hears(), (1, 0), "all of a process hear through one");
    for (held, waiting) in held.into_iter().zip(waiting) {
        held.release().await.expect("given back");
        let next = tokio::time::timeout(PATIENCE, waiting).await.expect("served soon");
        next.expect("no panic").release().await.expect("given back");
    }
    assert_eq!(hears(), (1, 0), "and it stays");

    // Only a holder of another library is watched, and all of them in one mode of the connection.
    for (what, watched) in names.into_iter().zip(1..) {
        server.cli(&["set", &format!("lock:{what}"), "stranger", "px", "600000"]);
        drop(wait_for(&locks, &server, what));
        eventually("it is watched", PATIENCE, || {
            (server.info("stats")["tracking_total_keys"] == watched.to_string()).then_some(())
        });
    }
    assert_eq!(hears(), (1, 1));
}

/// What the server carries out when one client hands a lease to another while so many wait, by command.
async fn hand_over(waiting: u128, comes_again: bool) -> BTreeMap<String, u64> {
    let server = RedisServer::start();
    let clients = [open(&server.url()).await, open(&server.url()).await];
    let pushes = [listen(&*clients[0]), listen(&*clients[1])];
    let last = waiting + 1;
    granted(one(&*clients[0], taking("a", 1)).await);
    // Of both in turn: the next is the other's.
    for (who, client) in (2..=last).zip(clients.iter().rev().cycle()) {
        one(&**client, queueing("a", who)).await.expect("it has a place");
    }
    server.cli(&["config", "resetstat"]);
    let mut batch = vec![releasing("a", 1)];
    batch.extend(comes_again.then(|| queueing("a", last + 1)));
    let answers = clients[0].carry_out(batch).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    match pushes[1].recv_timeout(PATIENCE).expect("the next is told") {
        Push::Granted { token: to, .. } => assert_eq!(to, token(2)),
        other => panic!("{other:?}"),
    }
    let calls = calls_since_reset(&server);
    assert_eq!((calls["evalsha"], calls["publish"]), (1, 1), "{calls:?}");
    calls
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hand_over_costs_the_same_however_many_wait() {
    for comes_again in [false, true] {
        let [mut few, mut many] =
            [hand_over(2, comes_again).await, hand_over(50, comes_again).await];
        if comes_again {
            // Who joins a queue has it last longer, one time in eight.
            few.remove("pexpire");
            many.remove("pexpire");
        }
        assert_eq!(few, many);
    }
}
