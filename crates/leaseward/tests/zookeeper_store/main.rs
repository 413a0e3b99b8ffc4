//! ZooKeeper's servers broken on purpose, and its nodes shared with other libraries.
//!
//! What holds for every store is in the conformance suite.

mod answers;
mod ensemble;
mod help;
mod interop;
mod line;
mod logins;
mod sessions;
