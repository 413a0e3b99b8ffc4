//! Redlock on five real servers: every fault that is likely, and what `docs/stores/redlock.md` says of it.
//!
//! What holds for every store is in the conformance suite.

mod access;
mod amnesia;
mod bare_majority;
#[path = "../support/basics.rs"]
mod basics;
mod client_clocks;
mod help;
mod killed;
mod late;
mod layout;
mod mending;
#[path = "../support/names.rs"]
mod names;
mod node_clocks;
#[path = "../support/nodes.rs"]
mod nodes;
mod opening;
#[path = "../support/operations.rs"]
mod operations;
mod partition;
mod replies;
mod settings;
mod uptime;
