//! One suite of promises, run over both databases: each case is a test named `group::postgres::case` and `group::sqlite::case`.

mod basics;
mod cancelling;
mod documents;
mod failing;
#[allow(dead_code, reason = "the faults use the rest of it")]
#[path = "../support/help.rs"]
mod help;
mod limits;
mod lives;
mod looking;
mod periodic;
mod transactions;
mod unique;
