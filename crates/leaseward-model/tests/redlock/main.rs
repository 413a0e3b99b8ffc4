//! Redlock's model, explored: with all checks nothing is found, without any one of them something is.
//!
//! `-- --nocapture` shows how many states there were, and the counter-examples.

mod bounds;
mod explore;
mod holds;
mod large;
mod without;
