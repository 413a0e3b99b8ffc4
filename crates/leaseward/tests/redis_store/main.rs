//! The Redis store against real servers: the reference semantics, what stands in Redis, and every fault that is likely.
//!
//! What holds for every store is in the conformance suite, processes that are killed and frozen among it (`crash`).

#[path = "../support/basics.rs"]
mod basics;
mod beside;
mod by_hand;
mod changing_cluster;
mod chaos;
mod cluster;
#[path = "../support/compare.rs"]
mod compare;
mod fences;
mod full_server;
#[path = "../support/hand_clock.rs"]
mod hand_clock;
mod help;
mod layout;
#[path = "../support/names.rs"]
mod names;
#[path = "../support/operations.rs"]
mod operations;
mod own_keys;
mod reference;
mod replies;
mod requests;
mod sentinel;
mod server_faults;
#[path = "../support/steps.rs"]
mod steps;
mod tls;
mod work;
