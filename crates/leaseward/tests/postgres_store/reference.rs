//! Whatever is asked of it, PostgreSQL answers as the memory store does.

use std::cell::RefCell;

use leaseward_testkit::{Postgres, Skew};
use proptest::prelude::*;

use crate::{
    compare::{MOVED, Pair, cases, sensible},
    steps::a_step,
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
        pair.borrow_mut().check(&sensible(steps, true))
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}
