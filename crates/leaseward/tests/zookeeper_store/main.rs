//! ZooKeeper's servers broken on purpose, and its nodes shared with other libraries.
//!
//! What holds for every store is in the conformance suite.

#[path = "../support/alike.rs"]
mod alike;
mod answers;
mod batches;
mod ensemble;
mod help;
mod interop;
mod line;
mod logins;
#[path = "../support/names.rs"]
mod names;
mod reference;
mod sessions;
#[path = "../support/steps.rs"]
mod steps;
