//! Whatever is asked of it, PostgreSQL answers as the memory store does.

use std::cell::RefCell;

use leaseward_testkit::{Postgres, Skew};
use proptest::prelude::*;

use crate::compare::{MOVED, Pair, STEPS_MAX, cases, sensible};
use crate::steps::a_step;

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
    let outcome = cases(24).run(&steps, |steps| {
        if !std::mem::take(*is_first.borrow_mut()) {
            server.sql(
                "TRUNCATE leaseward.leases, leaseward.fences, leaseward.shares, leaseward.places",
            );
        }
        pair.borrow_mut().check(&sensible(steps, true))
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}
