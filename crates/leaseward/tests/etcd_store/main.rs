//! The etcd store against real servers: what stands in its keys, `etcdctl lock` beside it, and every fault that is likely.
//!
//! What holds for every store is in the conformance suite, processes that are killed and frozen among it (`crash`).

mod access;
mod commands;
mod cut_off;
mod fences;
mod help;
mod interop;
mod keys;
mod leader;
mod leases;
