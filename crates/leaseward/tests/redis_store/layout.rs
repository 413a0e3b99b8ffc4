//! What stands in Redis: what others see of a lock, and that nothing is left behind.

use std::time::Duration;

use leaseward::{
    ErrorKind, LostReason, Mode, Value,
    store::{Ask, IfBusy, Operation, Query, Reply, Store},
};
use leaseward_testkit::{Cluster, RedisServer, Skew};

use crate::{
    beside::SIGN,
    help::{
        LONG, Monitor, ask, granted, keys, listen, one, open, owner, queueing, releasing, renewing,
        something_unusual, taking,
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
    let mark = Some(Value::new("the cellar\n").expect("a value"));
    let marked = Operation::Ask(Ask { value: mark, ..ask("a", 1, IfBusy::Tell, LONG) });
    let fence = granted(one(&*store, marked).await).fence();
    assert_eq!(server.cli(&["type", "lock:a"]), "string");
    let held = server.cli(&["--raw", "get", "lock:a"]);
    let lines: Vec<_> = held.lines().collect();
    let facts = format!("s{} {fence} 1 {fence}", LONG.as_millis());
    assert_eq!(lines[..3], [&token(1).reveal(), &facts, "=the cellar"]);
    let left: u128 = server.cli(&["pttl", "lock:a"]).parse().expect("it has an end");
    assert!(left <= LONG.as_millis() && left > LONG.as_millis() / 2, "{left}");
    assert_eq!(keys(&server), [FENCE, "lock:a"], "a lease is one key");
    let bare = open(&format!("{}?prefix=", server.url())).await;
    granted(one(&*bare, taking("b", 1)).await);
    assert_eq!(owner(&server, "b"), token(1).reveal(), "the prefix may be empty");
}

/// However a lease came to be, and however many came with it: what is shown of it is what was granted.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_says_what_was_granted() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let names: Vec<_> = (0..200).map(|number| format!("n{number:03}")).collect();
    let with_blocks =
        |what: &String| Operation::Ask(Ask { block: 3, ..ask(what, 1, IfBusy::Queue, LONG) });
    // One by one, a run of many, and by the script that does everything.
    let (first, rest) = names.split_at(2);
    let (many, last) = rest.split_at(195);
    let mut batches: Vec<Vec<_>> = first.iter().map(|what| vec![with_blocks(what)]).collect();
    batches.push(many.iter().map(with_blocks).collect());
    batches.push(last.iter().map(with_blocks).chain([something_unusual()]).collect());
    let mut fences = Vec::new();
    for batch in batches {
        let answers = store.carry_out(batch).await;
        let granted = answers.into_iter().filter_map(|answer| match answer {
            Ok(Reply::Granted(grant)) => Some(grant.fence()),
            _ => None,
        });
        fences.extend(granted);
    }
    let shown = store.inspect(Query::all()).await.expect("it answers");
    let shown: Vec<_> = shown.iter().map(|view| view.holders[0].fence).collect();
    assert_eq!((shown.len(), shown), (200, fences.clone()));
    // Who asks again is told the same, whichever way.
    for (what, fence) in names.iter().zip(fences) {
        assert_eq!(granted(one(&*store, with_blocks(what)).await).fence(), fence);
    }
    assert_eq!(keys(&server).len(), 1 + names.len(), "a lease is one key");
}

/// With no prefix a lock is a key among data: it is told from that, and data is not taken for locks.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_prefix_our_locks_are_listed_and_data_is_not() {
    let server = RedisServer::start();
    let store = open(&format!("{}?prefix=", server.url())).await;
    server.cli(&["set", "a", "data"]);
    server.cli(&["set", "b", &format!("{}\nmore data", token(1).reveal())]);
    server.cli(&["hset", "c", "field", "data"]);
    server.cli(&["rpush", "d", "data"]);
    for what in ["e", "f"] {
        granted(one(&*store, taking(what, 1)).await);
    }
    granted(one(&*store, shared("g", 1)).await);
    one(&*store, queueing("a", 2)).await.expect("it waits for whatever that is");
    let listed = store.inspect(Query::all()).await.expect("it answers");
    let names: Vec<_> = listed.iter().map(|view| view.name.as_str()).collect();
    assert_eq!(names, ["a", "e", "f", "g"], "and what somebody of ours waits for");
}

/// A renewal with another TTL, a waiter, a break: what has become of a lease stands beside it, and goes when it is over.
#[tokio::test(flavor = "multi_thread")]
async fn what_has_become_of_a_lease_stands_beside_it() {
    const BESIDE: &str = "leaseward:h:lock:a";
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let _pushes = listen(&*store);
    let renewing_for = |ttl| {
        let Operation::Renew(renew) = renewing("a", 1) else { unreachable!() };
        Operation::Renew(leaseward::store::Renew { ttl, ..renew })
    };
    granted(one(&*store, taking("a", 1)).await);
    all(&*store, [renewing_for(LONG)]).await;
    assert_eq!(server.cli(&["exists", BESIDE]), "0", "there is nothing to be said of it");
    all(&*store, [renewing_for(2 * LONG)]).await;
    let shown = store.inspect(Query::Name(name("a"))).await.expect("it answers");
    assert_eq!(shown[0].holders[0].ttl, 2 * LONG);
    let left = |key| server.cli(&["pttl", key]).parse::<i64>().expect("a number");
    assert!((left("lock:a") - left(BESIDE)).abs() < 1_000, "they end together");
    let letter =
        || server.cli(&["--raw", "get", "lock:a"]).lines().nth(1).map(|line| line[..1].to_owned());
    assert_eq!(letter().as_deref(), Some("d"));
    // Waited for, then not, and again.
    all(&*store, [queueing("a", 2), releasing("a", 2), renewing_for(2 * LONG)]).await;
    all(&*store, [renewing_for(2 * LONG), queueing("a", 2), releasing("a", 1)]).await;
    assert_eq!(server.cli(&["exists", BESIDE]), "0", "it was the lease before's");
    assert_eq!(owner(&server, "lock:a"), token(2).reveal());
    assert_eq!(letter().as_deref(), Some("s"), "nobody waits");
    for is_usual in [true, false] {
        let rest = (!is_usual).then(something_unusual);
        let batch = [queueing("a", 3)].into_iter().chain(rest).collect();
        assert!(matches!(store.carry_out(batch).await[0], Ok(Reply::Queued(_))));
        assert_eq!((letter().as_deref(), keys(&server).len()), (Some("w"), 3), "{is_usual}");
        all(&*store, [releasing("a", 3), renewing("a", 2)]).await;
        assert_eq!((letter().as_deref(), keys(&server).len()), (Some("s"), 2), "nobody waits");
    }
    all(&*store, [queueing("a", 3), releasing("a", 2), releasing("a", 3)]).await;
    assert_eq!(keys(&server), [FENCE]);
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
    assert_eq!(owner(&server, "lock:a"), token(1).reveal());
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
    all(&*store, [taking("a", 1), queueing("a", 2), queueing("a", 3)]).await;
    all(&*store, [shared("b", 1), shared("b", 2), queueing("b", 3)]).await;
    all(&*store, [permit("c", 1), permit("c", 2), permit("c", 3)]).await;
    all(&*store, [taking("d", 1), queueing("d", 2)]).await;
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
    assert_eq!(kinds.iter().map(count).collect::<Vec<_>>(), [6, 3, 5, 1], "{stand:?}");
    for key in stand {
        let left: i64 = server.cli(&["pttl", &key]).parse().expect("a number");
        assert_eq!(left == -1, key == FENCE, "{key} lasts {left} ms");
    }
    assert_eq!(server.cli(&["exists", SIGN]), "1", "it says that there are such keys");
    // Everybody has vanished. A day later nothing is left, without anybody having looked.
    skew.set_ms(86_400_000);
    assert_eq!(keys(&server), [FENCE]);
    assert_eq!(server.cli(&["exists", SIGN]), "0", "it ends with them");
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
                    for answer in store.carry_out(batch).await {
                        answer.expect("it is carried out");
                    }
                }
                let left = |key| server.cli(&["pttl", key]).parse::<i64>().expect("a number");
                let (said, left) = (left(SIGN), left("leaseward:q:lock:a"));
                assert!(left >= 10_000, "{how}, turn {n}, {is_usual}: it ends in {left} ms");
                assert!(said >= left, "{how}, turn {n}, {is_usual}: {left} ms, said for {said}");
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
    assert_eq!(owner(&server, "lock:a"), token(2).reveal());
}

/// Where one of our keys should be is something else: that name is refused and named, and no other is in its way.
#[tokio::test(flavor = "multi_thread")]
async fn a_side_key_of_another_type_is_named_and_left_alone() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    server.cli(&["zadd", "leaseward:q:lock:b", "1", "x"]);
    for unreadable in [taking("b", 1), queueing("b", 2)] {
        let answers = store.carry_out(vec![taking("a", 1), unreadable, taking("c", 1)]).await;
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
