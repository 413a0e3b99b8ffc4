//! Without any one of the checks, something is.

use leaseward_model::redlock::Without;

use crate::{bounds::*, explore::violates};

const TWICE: &str = "no fence is given twice";
const ORDER: &str = "a later acquisition has the larger fence";
const EXCLUSION: &str = "one holder at a time";

#[test]
fn a_ballot_must_be_larger_not_equal() {
    violates(Without::Larger, TWICE, fences_of_one_moment());
}

#[test]
fn the_end_of_the_block_is_recorded() {
    violates(Without::EndOfBlock, TWICE, fences());
}

#[test]
fn the_record_outlives_the_lock() {
    violates(Without::Memory, TWICE, fences());
    violates(Without::Memory, ORDER, further_behind(fences()));
}

#[test]
fn a_node_without_a_record_refuses_what_is_old() {
    violates(Without::ClockFloor, TWICE, fences_forgotten());
    violates(Without::ClockFloor, ORDER, further_behind(fences_forgotten()));
}

#[test]
fn a_node_that_lost_its_memory_refuses_what_it_may_have_granted() {
    violates(Without::Floor, TWICE, fences_lost());
    violates(Without::Floor, ORDER, further_behind(fences_lost()));
}

#[test]
fn a_node_that_lost_its_memory_does_not_trust_an_old_snapshot() {
    violates(Without::OldSnapshot, TWICE, fences_of_an_old_snapshot());
}

#[test]
fn a_lease_that_is_put_back_lowers_nothing() {
    violates(Without::Highest, ORDER, fences_put_back());
}

#[test]
fn a_node_that_lost_its_memory_waits() {
    violates(Without::Wait, EXCLUSION, holders_and_a_forgetful_node());
}

#[test]
fn grants_count_by_ballot() {
    violates(Without::ByBallot, TWICE, fences_asked_again());
}

#[test]
fn a_majority_must_agree() {
    violates(Without::Majority, EXCLUSION, holders());
    violates(Without::Majority, TWICE, fences());
    violates(Without::Majority, ORDER, further_behind(fences()));
}

#[test]
fn a_lease_counts_from_the_first_sending() {
    violates(Without::FirstSending, EXCLUSION, holders());
}

#[test]
fn an_attempt_is_taken_back_by_its_ballot() {
    violates(Without::UndoByBallot, EXCLUSION, holders_that_ask());
}

#[test]
fn requests_keep_their_order() {
    violates(Without::InOrder, EXCLUSION, holders_of_one_moment());
}
