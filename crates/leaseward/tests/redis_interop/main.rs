//! The Redis store beside the lock libraries that people already run, on one key.
#![cfg(feature = "redis")]

mod both_ways;
mod contention;
mod help;
mod operators;
mod theirs;
mod waiting;
