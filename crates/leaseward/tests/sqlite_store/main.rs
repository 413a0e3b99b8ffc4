//! The SQLite store against real files: the reference semantics, bad files, several processes.
#![cfg(feature = "sqlite")]

mod bad_files;
mod beside;
mod file;
#[path = "../support/hand_clock.rs"]
mod hand_clock;
mod help;
#[path = "../support/names.rs"]
mod names;
mod processes;
mod reference;
mod replaced;
#[path = "../support/steps.rs"]
mod steps;
mod waking;
