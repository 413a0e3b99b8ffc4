//! Whatever is asked of it, Redis answers as the memory store does.

use leaseward_testkit::{Cluster, RedisServer, Skew};
use proptest::prelude::*;

use crate::{
    compare::{MOVED, Pair, cases, sensible},
    steps::{Times, a_step},
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
