//! Whatever is asked of it, Redis answers as the memory store does.

use std::time::Duration;

use leaseward::{
    Mode, Value,
    store::{Ask, IfBusy, Operation, Release, Renew},
};
use leaseward_testkit::{Cluster, RedisServer, Skew};
use proptest::{prelude::*, sample::subsequence};

use crate::{
    beside::assert_announced,
    compare::{MOVED, Pair, cases, sensible},
    help::{queueing, releasing},
    names::{name, token},
    steps::{Step, Times, a_step},
};

const STEPS_MAX: usize = 56;

/// Without steps in time.
static STILL: Times = Times { advances: &[], ..MOVED };

#[test]
fn answers_as_the_memory_store_does() {
    let skew = Skew::new();
    let server = RedisServer::builder().skew(&skew).start();
    let mut pair = Pair::new(&server.url(), Some(skew), true);
    let pair = std::cell::RefCell::new(&mut pair);
    let steps = prop::collection::vec(a_step(&MOVED), 1..STEPS_MAX);
    let outcome = cases(64).run(&steps, |steps| {
        server.cli(&["flushall"]);
        let outcome = pair.borrow_mut().check(&sensible(steps));
        assert_announced(&server);
        outcome
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn a_cluster_answers_as_the_memory_store_does() {
    let cluster = Cluster::start_without_replicas();
    let mut pair = Pair::new(&format!("redis+cluster://{}", cluster.addresses()[0]), None, false);
    let pair = std::cell::RefCell::new(&mut pair);
    let steps = prop::collection::vec(a_step(&STILL), 1..STEPS_MAX);
    let outcome = cases(32).run(&steps, |steps| {
        cluster.nodes().iter().for_each(|node| drop(node.cli(&["flushall"])));
        pair.borrow_mut().check(&sensible(steps))
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

/// A release, an ask that queues, or one behind the other, which the small script does in one go if the lease is handed over
/// and nothing is unusual about that.
fn a_turn() -> impl Strategy<Value = Step> {
    let ttl = prop::sample::select(MOVED.ttls).prop_map(Duration::from_millis);
    let value = prop::option::of(Just(Value::new("label").expect("short")));
    let block = prop_oneof![3 => Just(1), 1 => 2_u32..4];
    let mode = prop_oneof![6 => Just(Mode::Exclusive), 1 => Just(Mode::Shared)];
    let ask = (any::<bool>(), 0_u128..3, ttl, value, block, mode);
    let turn = (0_usize..2, prop::option::of(1_u128..7), ask);
    turn.prop_map(|(client, leaving, (asks, who, ttl, value, block, mode))| {
        let release = leaving.map(|who| {
            let (name, token) = (name("a"), token(who));
            Operation::Release(Release { name, token, keep: Duration::ZERO })
        });
        let ask = Operation::Ask(Ask {
            name: name("a"),
            token: token(2 * who + 2 - client as u128),
            mode,
            ttl,
            if_busy: IfBusy::Queue,
            block,
            value,
        });
        let is_asked = asks || release.is_none();
        Step::Submit { client, batch: release.into_iter().chain(is_asked.then_some(ask)).collect() }
    })
}

#[test]
fn hand_overs_are_as_in_the_memory_store() {
    let skew = Skew::new();
    let server = RedisServer::builder().skew(&skew).start();
    let mut pair = Pair::new(&server.url(), Some(skew), true);
    let pair = std::cell::RefCell::new(&mut pair);
    let time = prop::sample::select(MOVED.advances).prop_map(Duration::from_millis);
    let step = prop_oneof![12 => a_turn(), 1 => time.prop_map(Step::Advance)];
    let outcome = cases(96).run(&prop::collection::vec(step, 1..STEPS_MAX), |steps| {
        server.cli(&["flushall"]);
        let outcome = pair.borrow_mut().check(&sensible(steps));
        assert_announced(&server);
        outcome
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

/// Random steps come to this too seldom: the holder lives, and who waits has died when it is given back.
#[test]
fn those_who_died_are_passed_over() {
    let skew = Skew::new();
    let server = RedisServer::builder().skew(&skew).start();
    let mut pair = Pair::new(&server.url(), Some(skew), true);
    let submit = |client, batch: &[Operation]| Step::Submit { client, batch: batch.to_vec() };
    let (holding, waiting) = (queueing("a", 1), [queueing("a", 2), queueing("a", 4)]);
    for waiting in [&waiting[..1], &waiting] {
        for leaving in [vec![releasing("a", 1)], vec![releasing("a", 1), queueing("a", 3)]] {
            server.cli(&["flushall"]);
            let steps = [
                submit(1, std::slice::from_ref(&holding)),
                submit(0, waiting),
                Step::Advance(Duration::from_secs(12)),
                submit(1, &leaving),
                submit(0, &[queueing("a", 6)]),
            ];
            pair.check(&steps).unwrap_or_else(|failure| panic!("{leaving:?}: {failure}"));
        }
    }
}

const MANY: [&str; 9] = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];

/// A batch of the usual on different names, which the small script takes in runs: asks, renewals, releases. In the order in
/// which it does so, because the fences of all are compared.
fn a_usual_step() -> impl Strategy<Value = Step> {
    let names = subsequence((0..MANY.len()).collect::<Vec<_>>(), 1..=MANY.len());
    let ttl = prop::sample::select(&[100_000_u64, 1_000_000][..]).prop_map(Duration::from_millis);
    let parts = (0..=MANY.len(), 0..=MANY.len());
    let step = (0_usize..2, names, parts, ttl, any::<bool>(), 1_u32..3);
    step.prop_map(|(client, names, (asks, renewals), ttl, queues, block)| {
        let if_busy = if queues { IfBusy::Queue } else { IfBusy::Tell };
        let operation = |(at, which): (usize, usize)| {
            // One for each client and name, so that they meet again.
            let token = token((2 * which + 2 - client) as u128);
            let name = name(MANY[which]);
            if at < asks {
                Operation::Ask(Ask {
                    name,
                    token,
                    mode: Mode::Exclusive,
                    ttl,
                    if_busy,
                    block,
                    value: None,
                })
            } else if at < asks + renewals {
                Operation::Renew(Renew { name, token, ttl })
            } else {
                Operation::Release(Release { name, token, keep: Duration::ZERO })
            }
        };
        Step::Submit { client, batch: (0..).zip(names).map(operation).collect() }
    })
}

#[test]
fn runs_of_the_usual_are_answered_as_the_memory_store_does() {
    let server = RedisServer::start();
    let mut pair = Pair::new(&server.url(), None, true);
    let pair = std::cell::RefCell::new(&mut pair);
    let outcome = cases(128).run(&prop::collection::vec(a_usual_step(), 1..12), |steps| {
        server.cli(&["flushall"]);
        let outcome = pair.borrow_mut().check(&sensible(steps));
        assert_announced(&server);
        outcome
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}
