//! What goes wrong: processes killed at every step, servers that restart, answers that are lost, clocks that go back, tables of
//! earlier versions.

mod answers;
mod child;
mod clocks;
#[allow(dead_code, reason = "the suite uses all of it")]
#[path = "../support/help.rs"]
mod help;
mod killed;
mod migrations;
mod named;
mod quiet;
mod restarts;
