//! Random operations, for comparing a store with the memory store. Shared by the tests of the stores.

use std::time::Duration;

use leaseward::{
    Mode, Value,
    store::{Ask, Break, IfBusy, Operation, Release, Renew},
};
use proptest::prelude::*;

use crate::names::{name, token};

pub(crate) const NAMES: [&str; 3] = ["a", "ab", "b"];
const TOKENS: u128 = 6;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Submit { client: usize, batch: Vec<Operation> },
    Break(Break),
    Advance(Duration),
    SetWallBack(Duration),
}

/// Which times occur, in milliseconds. A clock that cannot be moved, or not exactly, needs others.
#[derive(Debug)]
pub(crate) struct Times {
    pub(crate) ttls: &'static [u64],
    pub(crate) renewals: &'static [u64],
    pub(crate) keeps: &'static [u64],
    pub(crate) advances: &'static [u64],
    pub(crate) set_backs: &'static [u64],
}

fn a_mode() -> impl Strategy<Value = Mode> {
    prop_oneof![
        4 => Just(Mode::Exclusive),
        3 => Just(Mode::Shared),
        3 => (1_u32..4).prop_map(|capacity| Mode::Permit { capacity }),
    ]
}

fn millis(choices: &'static [u64]) -> impl Strategy<Value = Duration> {
    prop::sample::select(choices).prop_map(Duration::from_millis)
}

fn an_ask(times: &'static Times) -> impl Strategy<Value = Operation> {
    let value = prop::option::of(Just(Value::new("label").expect("short")));
    let ttl = millis(times.ttls);
    (0..NAMES.len(), 0..TOKENS, a_mode(), ttl, any::<bool>(), 1_u32..5, value).prop_map(
        |(at, who, mode, ttl, queue, block, value)| {
            let if_busy = if queue { IfBusy::Queue } else { IfBusy::Tell };
            let (name, token) = (name(NAMES[at]), token(who + 1));
            Operation::Ask(Ask { name, token, mode, ttl, if_busy, block, value })
        },
    )
}

fn an_operation(times: &'static Times) -> impl Strategy<Value = Operation> {
    let whose = (0..NAMES.len(), 0..TOKENS);
    let renewal = (whose.clone(), millis(times.renewals)).prop_map(|((at, who), ttl)| {
        Operation::Renew(Renew { name: name(NAMES[at]), token: token(who + 1), ttl })
    });
    let release = (whose, millis(times.keeps)).prop_map(|((at, who), keep)| {
        Operation::Release(Release { name: name(NAMES[at]), token: token(who + 1), keep })
    });
    prop_oneof![5 => an_ask(times), 2 => renewal, 4 => release]
}

/// A step; with no times to advance by, or to set the wall clock back by, none that does.
pub(crate) fn a_step(times: &'static Times) -> impl Strategy<Value = Step> {
    let batch = prop::collection::vec(an_operation(times), 1..4);
    let submit = (0_usize..2, batch).prop_map(|(client, batch)| Step::Submit { client, batch });
    let order = (0..NAMES.len(), any::<bool>());
    let order = order.prop_map(|(at, now)| Step::Break(Break { name: name(NAMES[at]), now }));
    let mut steps = vec![(12, submit.boxed()), (1, order.boxed())];
    if !times.advances.is_empty() {
        steps.push((3, millis(times.advances).prop_map(Step::Advance).boxed()));
    }
    if !times.set_backs.is_empty() {
        steps.push((1, millis(times.set_backs).prop_map(Step::SetWallBack).boxed()));
    }
    prop::strategy::Union::new_weighted(steps)
}
