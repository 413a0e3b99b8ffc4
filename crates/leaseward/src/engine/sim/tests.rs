use std::time::Duration;

use super::{
    check::Violation,
    dice::Dice,
    plan::Plan,
    world::{Outcome, World},
};
use crate::rules::{Rule, without};

/// Histories of the default run; about ten seconds on one core without optimisation.
const HISTORIES: u64 = 8_000;
/// Histories of a full run.
const HISTORIES_FULL: u64 = 200_000;

fn any(seed: u64, tells: bool) -> Outcome {
    let mut dice = Dice::new(seed);
    let plan = Plan::drawn(&mut dice);
    World::new(plan, dice, tells).run(|_| true)
}

/// A history of the trouble in which a rule shows.
fn against(rule: Rule, seed: u64, stops: fn(&Violation) -> bool) -> Outcome {
    let mut dice = Dice::new(seed);
    let plan = Plan::against(rule, &mut dice);
    World::new(plan, dice, false).run(stops)
}

fn fail(seed: u64, told: &Outcome) -> ! {
    let from = told.lines.len().saturating_sub(80);
    panic!(
        "{:?}\n{}\nseed {seed}: replay with LEASEWARD_SIM_SEED={seed}",
        told.violations,
        told.lines[from..].join("\n"),
    );
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

#[test]
fn any_history_keeps_every_promise() {
    if let Some(seed) = number("LEASEWARD_SIM_SEED") {
        let told = any(seed, true);
        println!("{}", told.lines.join("\n"));
        assert!(told.violations.is_empty(), "{:?}", told.violations);
        return;
    }
    let (mut steps, mut holds) = (0, 0);
    let began = std::time::Instant::now();
    let is_full = std::env::var_os("LEASEWARD_FULL").is_some();
    let usual = if is_full { HISTORIES_FULL } else { HISTORIES };
    let histories = number("LEASEWARD_SIM_HISTORIES").unwrap_or(usual);
    for seed in 0..histories {
        let outcome = any(seed, false);
        if !outcome.violations.is_empty() {
            fail(seed, &any(seed, true));
        }
        steps += u64::from(outcome.steps);
        holds += outcome.holds;
    }
    println!("{histories} histories, {steps} steps, {holds} holds in {:?}", began.elapsed());
    assert!(holds > histories * 5, "histories in which hardly anybody holds anything show nothing");
}

#[test]
fn a_seed_means_one_history() {
    for seed in 0..50 {
        assert_eq!(any(seed, false).hash, any(seed, true).hash, "seed {seed}");
    }
    assert_ne!(any(1, false).hash, any(2, false).hash);
}

/// Histories tried until a rule's absence shows.
const TRIES: u64 = 2_000;
/// Histories with a violation that are looked for.
const ENOUGH: u32 = 5;

/// Takes a rule out and finds histories in which it hurts as it is expected to; the same histories are clean with it.
fn shows(rule: Rule, hurts: fn(&Violation) -> bool) {
    let (mut hurt, mut tried, mut first) = (0, 0, None);
    while tried < TRIES && hurt < ENOUGH {
        let found = without(rule, || against(rule, tried, hurts));
        if found.violations.iter().any(hurts) {
            hurt += 1;
            first.get_or_insert(tried);
        }
        let clean = against(rule, tried, |_| true);
        assert!(clean.violations.is_empty(), "seed {tried}, no rule out: {:?}", clean.violations);
        tried += 1;
    }
    println!("{rule:?} taken out hurts in {hurt} of {tried} histories, first with seed {first:?}");
    assert!(hurt > 0, "{rule:?} was taken out and nobody was hurt in {tried} histories");
}

fn two_holders(violation: &Violation) -> bool {
    matches!(violation, Violation::TwoHolders { .. })
}

fn stale_write(violation: &Violation) -> bool {
    matches!(violation, Violation::StaleWrite { .. })
}

#[test]
fn without_r1_an_old_push_starts_a_second_holder() {
    shows(Rule::R1, two_holders);
}

#[test]
fn without_r2_a_push_before_any_answer_starts_a_second_holder() {
    shows(Rule::R2, two_holders);
}

#[test]
fn without_r3_nobody_is_hurt_but_callers_wait_longer() {
    let run = |seed| against(Rule::R3, seed, |_| true);
    let (mut with, mut lacking) = (Duration::ZERO, Duration::ZERO);
    for seed in 0..600 {
        let outcome = without(Rule::R3, || run(seed));
        assert!(outcome.violations.is_empty(), "seed {seed}: {:?}", outcome.violations);
        lacking += outcome.waited;
        with += run(seed).waited;
    }
    println!("callers waited {with:?} with R3, {lacking:?} without");
    assert!(lacking > with, "asking at once should be worth something");
}

#[test]
fn without_r4_a_retried_ask_outlives_its_lease() {
    shows(Rule::R4, two_holders);
}

#[test]
fn without_r5_a_late_reply_revives_a_hold() {
    shows(Rule::R5, |violation| matches!(violation, Violation::Revived { .. }));
}

#[test]
fn without_r6_a_token_given_back_is_held() {
    shows(Rule::R6, two_holders);
}

#[test]
fn without_r7_a_token_used_again_is_released_by_its_past() {
    shows(Rule::R7, two_holders);
}

#[test]
fn without_r8_a_repeated_release_frees_the_next_hold() {
    shows(Rule::R8, two_holders);
}

#[test]
fn without_r9_blocks_overlap_and_a_stale_write_is_taken() {
    shows(Rule::R9, stale_write);
}

#[test]
fn without_r10_a_cohort_outruns_its_block_and_a_stale_write_is_taken() {
    shows(Rule::R10, stale_write);
}

#[test]
fn without_r11_a_lease_passed_on_after_its_end_has_an_old_fence() {
    shows(Rule::R11, |violation| matches!(violation, Violation::FenceOrder { .. }));
}

fn ghost(violation: &Violation) -> bool {
    matches!(violation, Violation::Ghost { .. })
}

#[test]
fn without_r17_a_release_that_overtakes_its_ask_leaves_a_ghost() {
    shows(Rule::R17, ghost);
}

#[test]
fn without_r18_an_ask_withdrawn_after_an_earlier_one_leaves_a_ghost() {
    shows(Rule::R18, ghost);
}
