//! Advisory locks against real servers: keys that other programs share, sessions that end, poolers, locks in the
//! caller's own transaction.
//!
//! What holds for every store is in the conformance suite, processes that are killed and frozen among it (`crash`).

mod cancelled;
mod fences;
mod help;
mod keys;
mod refusals;
mod sessions;
mod tasks;
mod transactions;
