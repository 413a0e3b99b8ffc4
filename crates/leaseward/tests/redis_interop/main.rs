//! The Redis store beside the lock libraries that people already run, on one key.
#![cfg(feature = "redis")]

mod beside_a_queue;
mod both_ways;
mod contention;
mod fairness;
mod help;
mod operators;
mod theirs;
mod waiting;
