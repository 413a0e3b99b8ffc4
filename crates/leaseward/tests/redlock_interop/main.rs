//! Redlock beside node-redlock, over the same five servers: its key is ours, with an empty prefix.

mod contention;
mod exclusion;
mod help;
#[path = "../support/nodes.rs"]
mod nodes;
mod waiting;
