//! Whatever is asked of it, Redis answers as the memory store does.

use std::time::Duration;

use leaseward::{
    Mode,
    store::{Ask, IfBusy, Operation, Release, Renew},
};
use leaseward_testkit::{Cluster, RedisServer, Skew};
use proptest::{prelude::*, sample::subsequence};

use crate::{
    compare::{MOVED, Pair, cases, sensible},
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
        pair.borrow_mut().check(&sensible(steps, true))
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
        pair.borrow_mut().check(&sensible(steps, false))
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
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
                let (names, mode, lock_delay) =
                    ([name].into_iter().collect(), Mode::Exclusive, Duration::ZERO);
                Operation::Ask(Ask {
                    names,
                    token,
                    mode,
                    ttl,
                    if_busy,
                    block,
                    lock_delay,
                    value: None,
                })
            } else if at < asks + renewals {
                Operation::Renew(Renew { name, token, ttl, block: 0 })
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
        pair.borrow_mut().check(&sensible(steps, true))
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}
