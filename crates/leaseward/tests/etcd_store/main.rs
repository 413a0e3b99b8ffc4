//! The etcd store against real servers: what stands in its keys, `etcdctl lock` beside it, and every fault that is likely.
//!
//! What holds for every store is in the conformance suite, processes that are killed and frozen among it (`crash`).

mod access;
#[path = "../support/alike.rs"]
mod alike;
#[path = "../support/basics.rs"]
mod basics;
mod commands;
mod cut_off;
mod fences;
mod help;
mod interop;
mod keys;
mod leader;
mod leases;
#[path = "../support/names.rs"]
mod names;
mod reference;
#[path = "../support/steps.rs"]
mod steps;
