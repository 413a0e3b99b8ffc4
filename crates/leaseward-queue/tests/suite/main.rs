//! One suite of promises, run over both databases: each case is a test named `group::postgres::case` and `group::sqlite::case`.

mod basics;
mod help;
mod lives;
