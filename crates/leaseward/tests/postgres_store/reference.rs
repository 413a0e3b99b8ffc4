//! Whatever is asked of it, PostgreSQL answers as the memory store does.

use std::{cell::RefCell, time::Duration};

use leaseward::{
    Mode,
    store::{Ask, IfBusy, Operation, Release},
};
use leaseward_testkit::{Postgres, Skew};
use proptest::prelude::*;

use crate::{
    compare::{MOVED, Pair, cases, sensible},
    names::{name, token},
    steps::{Step, a_step},
};

/// Few: all of a case has to happen within the two seconds that its times are told apart by, on a busy machine too.
const STEPS_MAX: usize = 24;

/// Names have an order of fences each: what is compared is how many are reserved.
#[test]
fn answers_as_the_memory_store_does() {
    let skew = Skew::new();
    let server = Postgres::builder().skew(&skew).in_memory().start();
    let mut pair = Pair::new(&server.url(), Some(skew), false);
    let pair = RefCell::new(&mut pair);
    let steps = prop::collection::vec(a_step(&MOVED), 1..STEPS_MAX);
    let mut is_first = true;
    let is_first = RefCell::new(&mut is_first);
    let outcome = cases(48).run(&steps, |steps| {
        if !std::mem::take(*is_first.borrow_mut()) {
            server.sql(
                "TRUNCATE leaseward.leases, leaseward.fences, leaseward.shares, leaseward.places",
            );
        }
        pair.borrow_mut().check(&sensible(steps))
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

/// Found by the above, once in many runs: several operations at once have a statement of their own.
#[test]
fn what_expired_is_nobodys_in_a_batch_too() {
    let skew = Skew::new();
    let server = Postgres::builder().skew(&skew).in_memory().start();
    let mut pair = Pair::new(&server.url(), Some(skew), false);
    let asks = |text: &str| {
        Operation::Ask(Ask {
            name: name(text),
            token: token(2),
            mode: Mode::Exclusive,
            ttl: Duration::from_secs(10),
            if_busy: IfBusy::Tell,
            block: 1,
            value: None,
        })
    };
    let gives_back = |text: &str| {
        let keep = Duration::ZERO;
        Operation::Release(Release { name: name(text), token: token(2), keep })
    };
    let steps = [
        Step::Submit { client: 0, batch: vec![asks("a"), asks("b")] },
        Step::Advance(Duration::from_secs(12)),
        // It tells the client of the time that has passed. What it asks before comes late, and is asked again by itself.
        Step::Submit { client: 0, batch: vec![gives_back("ab")] },
        Step::Submit { client: 0, batch: vec![gives_back("a"), gives_back("b"), asks("ab")] },
    ];
    pair.check(&steps).unwrap_or_else(|failure| panic!("{failure}"));
}
