//! The PostgreSQL store against real servers: the reference semantics, what stands in the tables, and every fault that is
//! likely.
//!
//! What holds for every store is in the conformance suite, processes that are killed and frozen among it (`crash`).

#[path = "../support/basics.rs"]
mod basics;
mod bouncer;
#[path = "../support/compare.rs"]
mod compare;
mod connections;
mod doctor;
mod faults;
mod forgetting;
#[path = "../support/hand_clock.rs"]
mod hand_clock;
mod help;
mod lasting;
mod lone;
mod lone_ask;
mod named;
#[path = "../support/names.rs"]
mod names;
mod reference;
mod refusals;
mod rows;
#[path = "../support/steps.rs"]
mod steps;
mod tls;
mod upgrades;
