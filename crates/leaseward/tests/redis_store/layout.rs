//! What stands in Redis: what others see of a lock, and that nothing is left behind.

use std::time::Duration;

use leaseward::{
    ErrorKind, LostReason, Mode,
    store::{Ask, IfBusy, Operation, Query, Reply, Store},
};
use leaseward_testkit::{Cluster, RedisServer, Skew};

use crate::{
    help::{
        LONG, Monitor, ask, granted, keys, listen, one, open, queueing, releasing, renewing, taking,
    },
    names::{name, token},
};

const FENCE: &str = "leaseward:fence";

fn shared(what: &str, who: u128) -> Operation {
    Operation::Ask(Ask { mode: Mode::Shared, ..ask(what, who, IfBusy::Tell, LONG) })
}

fn permit(what: &str, who: u128) -> Operation {
    let mode = Mode::Permit { capacity: 2 };
    Operation::Ask(Ask { mode, ..ask(what, who, IfBusy::Queue, LONG) })
}

async fn all(store: &dyn Store, operations: impl IntoIterator<Item = Operation>) {
    for operation in operations {
        one(store, operation).await.expect("it is carried out");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exclusive_lock_is_a_string_with_an_expiry() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    granted(one(&*store, taking("a", 1)).await);
    assert_eq!(server.cli(&["type", "lock:a"]), "string");
    assert_eq!(server.cli(&["get", "lock:a"]), token(1).reveal());
    let left: u128 = server.cli(&["pttl", "lock:a"]).parse().expect("it has an end");
    assert!(left <= LONG.as_millis() && left > LONG.as_millis() / 2, "{left}");
    assert_eq!(keys(&server), [FENCE, "leaseward:h:lock:a", "lock:a"]);
    let bare = open(&format!("{}?prefix=", server.url())).await;
    granted(one(&*bare, taking("b", 1)).await);
    assert_eq!(server.cli(&["get", "b"]), token(1).reveal(), "the prefix may be empty");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_never_rewrites_the_value() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    granted(one(&*store, taking("a", 1)).await);
    server.cli(&["pexpire", "lock:a", "10000"]);
    let monitor = Monitor::start(&server);
    all(&*store, [renewing("a", 1)]).await;
    // With another TTL its record is written anew, and with a waiter it takes the long way.
    all(&*store, [taking("a", 1), queueing("a", 2), renewing("a", 1)]).await;
    let heard = monitor.heard(&server);
    let on_the_lock: Vec<_> = heard.iter().filter(|line| line.contains("\"lock:a\"")).collect();
    assert!(on_the_lock.iter().any(|line| line.contains("\"PEXPIRE\"")), "{heard:#?}");
    assert!(!on_the_lock.iter().any(|line| line.contains("\"SET\"")), "{on_the_lock:#?}");
    assert_eq!(server.cli(&["get", "lock:a"]), token(1).reveal());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_free_name_leaves_no_key() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let _pushes = listen(&*store);
    let rounds: [&[Operation]; 6] = [
        &[taking("a", 1), releasing("a", 1)],
        // A waiter that came and went.
        &[taking("a", 1), queueing("a", 2), releasing("a", 2), releasing("a", 1)],
        // One that was served.
        &[taking("a", 1), queueing("a", 2), releasing("a", 1), releasing("a", 2)],
        &[shared("a", 1), shared("a", 2), releasing("a", 1), releasing("a", 2)],
        &[shared("a", 1), queueing("a", 2), releasing("a", 1), releasing("a", 2)],
        &[permit("a", 1), permit("a", 2), permit("a", 3), releasing("a", 1), releasing("a", 2)],
    ];
    for round in rounds {
        all(&*store, round.iter().cloned()).await;
        all(&*store, [releasing("a", 3)]).await;
        assert_eq!(keys(&server), [FENCE], "after {round:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_key_but_the_fence_counter_ends_by_itself() {
    let skew = Skew::new();
    let server = RedisServer::builder().skew(&skew).start();
    let store = open(&server.url()).await;
    let delayed = Ask { lock_delay: LONG, ..ask("d", 1, IfBusy::Tell, LONG) };
    all(&*store, [taking("a", 1), queueing("a", 2), queueing("a", 3)]).await;
    all(&*store, [shared("b", 1), shared("b", 2), queueing("b", 3)]).await;
    all(&*store, [permit("c", 1), permit("c", 2), permit("c", 3)]).await;
    all(&*store, [Operation::Ask(delayed), queueing("d", 2)]).await;
    let kept = Duration::from_secs(60);
    let Operation::Release(release) = releasing("e", 1) else { unreachable!() };
    let keeping = Operation::Release(leaseward::store::Release { keep: kept, ..release });
    all(&*store, [taking("e", 1), keeping]).await;
    // Behind a client of another library.
    server.cli(&["set", "lock:f", "stranger", "px", "3600000"]);
    all(&*store, [queueing("f", 1)]).await;
    let stand = keys(&server);
    let kinds = ["lock:", "leaseward:h:", "leaseward:q:", "leaseward:p:"];
    let count = |kind: &&str| stand.iter().filter(|key| key.starts_with(*kind)).count();
    assert_eq!(kinds.iter().map(count).collect::<Vec<_>>(), [6, 5, 5, 1], "{stand:?}");
    for key in stand {
        let left: i64 = server.cli(&["pttl", &key]).parse().expect("a number");
        assert_eq!(left == -1, key == FENCE, "{key} lasts {left} ms");
    }
    // Everybody has vanished. A day later nothing is left, without anybody having looked.
    skew.set_ms(86_400_000);
    assert_eq!(keys(&server), [FENCE]);
}

/// One step of those who come and go, as batches: the one with this number leaves, another joins behind those who wait.
type Turn = fn(u128) -> Vec<Vec<Operation>>;

/// Everybody is served, or has left, before it asks a second time, and there is always somebody: nothing but that keeps the
/// queue, and it must outlast whoever is in it.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_lasts_for_as_long_as_somebody_waits_in_it() {
    const AHEAD: u128 = 3;
    const NAMES: [&str; 4] = ["a", "b", "c", "d"];
    let unusual = |batch: Vec<Operation>| {
        let Operation::Release(release) = releasing("z", 1) else { unreachable!() };
        let keep = Duration::from_secs(1);
        let more = Operation::Release(leaseward::store::Release { keep, ..release });
        batch.into_iter().chain([more]).collect::<Vec<_>>()
    };
    let turns: [(&str, Turn); 4] = [
        ("one by one", |n| vec![vec![queueing("a", n + AHEAD)], vec![releasing("a", n)]]),
        ("back to back", |n| vec![vec![releasing("a", n), queueing("a", n + AHEAD)]]),
        ("in runs", |n| {
            let (joins, leaves) = (|what| queueing(what, n + AHEAD), |what| releasing(what, n));
            vec![NAMES.map(joins).to_vec(), NAMES.map(leaves).to_vec()]
        }),
        ("they give up", |n| vec![vec![queueing("a", n + AHEAD)], vec![releasing("a", n + 1)]]),
    ];
    let skew = Skew::new();
    let server = RedisServer::builder().skew(&skew).start();
    let store = open(&server.url()).await;
    let mut moment_ms = 0;
    for (how, turn) in turns {
        for is_usual in [true, false] {
            server.cli(&["flushall"]);
            for what in NAMES {
                all(&*store, (1..=AHEAD).map(|who| queueing(what, who))).await;
            }
            for n in 1..60 {
                // So they wait for less than a third of the time that a place lasts, after which they would ask again.
                moment_ms += 1_000;
                skew.set_ms(moment_ms);
                for batch in turn(n) {
                    let batch = if is_usual { batch } else { unusual(batch) };
                    for answer in store.submit(batch).await {
                        answer.expect("it is carried out");
                    }
                }
                let left: i64 =
                    server.cli(&["pttl", "leaseward:q:lock:a"]).parse().expect("a number");
                assert!(left >= 10_000, "{how}, turn {n}, {is_usual}: it ends in {left} ms");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_release_frees_nobody_elses_lock() {
    let skew = Skew::new();
    let server = RedisServer::builder().skew(&skew).start();
    let store = open(&server.url()).await;
    let before = granted(one(&*store, taking("a", 1)).await);
    skew.set_ms(7_200_000);
    let after = granted(one(&*store, taking("a", 2)).await);
    assert!(after.fence() > before.fence());
    let late = one(&*store, releasing("a", 1)).await;
    assert!(matches!(late, Ok(Reply::NotYours(LostReason::NotOurs))), "{late:?}");
    let late = one(&*store, renewing("a", 1)).await;
    assert!(matches!(late, Ok(Reply::NotYours(LostReason::NotOurs))), "{late:?}");
    assert_eq!(server.cli(&["get", "lock:a"]), token(2).reveal());
}

/// Where one of our keys should be is something else: that name is refused and named, and no other is in its way.
#[tokio::test(flavor = "multi_thread")]
async fn a_side_key_of_another_type_is_named_and_left_alone() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    server.cli(&["zadd", "leaseward:q:lock:b", "1", "x"]);
    for unreadable in [taking("b", 1), queueing("b", 2)] {
        let answers = store.submit(vec![taking("a", 1), unreadable, taking("c", 1)]).await;
        let [Ok(Reply::Granted(_)), Err(error), Ok(Reply::Granted(_))] = &answers[..] else {
            panic!("nobody can know whether it is free: {answers:?}")
        };
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    }
    // The same of a record, and of one behind which the lock is held.
    server.cli(&["sadd", "leaseward:h:lock:d", "x"]);
    one(&*store, taking("d", 1)).await.expect_err("nobody can know whether it is free");
    one(&*store, taking("e", 1)).await.expect("it is free");
    server.cli(&["set", "leaseward:q:lock:e", "x"]);
    let views = store.inspect(Query::all()).await.expect("the others can be read");
    let shown: Vec<_> =
        views.iter().map(|view| (view.name.as_str(), view.holders[0].who.as_ref())).collect();
    let odd = "unreadable: one of its `leaseward:` keys holds something else";
    let ours = "host:1";
    assert_eq!(shown, [("a", ours), ("b", odd), ("c", ours), ("d", odd), ("e", odd)]);
    for unreadable in ["b", "d", "e"] {
        let lone = store.inspect(Query::Name(name(unreadable))).await;
        let error = lone.expect_err("it cannot be read");
        assert!(error.message().contains("cannot be read"), "{error}");
    }
    let lone = store.inspect(Query::Name(name("a"))).await.expect("it can be read");
    assert_eq!(lone[0].holders.len(), 1);
    assert_eq!(server.cli(&["zcard", "leaseward:q:lock:b"]), "1", "it is not ours");
    assert_eq!(server.cli(&["exists", "lock:b"]), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_cluster_there_is_one_counter_for_each_slot_at_most() {
    let cluster = Cluster::start_without_replicas();
    let store = open(&format!("redis+cluster://{}", cluster.addresses()[0])).await;
    let names = ["plain", "{tag}:x", "{tag}:y", "a}b", "a{}b", "{", "x{y", "}{", "{{}}"];
    for what in names {
        all(&*store, [taking(what, 1), queueing(what, 2)]).await;
        let (first, second) = (releasing(what, 1), releasing(what, 2));
        all(&*store, [renewing(what, 1), first, renewing(what, 2), second]).await;
    }
    let mut slots: Vec<_> =
        names.iter().map(|name| cluster.slot_of(&format!("lock:{name}"))).collect();
    slots.sort_unstable();
    slots.dedup();
    let left: Vec<_> = cluster.nodes().iter().flat_map(keys).collect();
    assert!(left.iter().all(|key| key.ends_with(":fence")), "{left:?}");
    assert_eq!(left.len(), slots.len(), "{left:?}");
}
