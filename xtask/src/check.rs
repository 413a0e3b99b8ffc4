//! `cargo xtask check`: format and lints. Changes nothing.

use crate::command::{self, Failure, cargo};

pub(crate) fn run() -> Result<(), Failure> {
    format()?;
    lints()?;
    eprintln!("\nformat and lints are fine");
    Ok(())
}

pub(crate) fn format() -> Result<(), Failure> {
    command::run(&mut cargo(["fmt", "--all", "--check"]))
        .map_err(|failure| failure.hint("`cargo fmt --all` puts it right"))
}

pub(crate) fn lints() -> Result<(), Failure> {
    let what = ["clippy", "--workspace", "--all-targets", "--all-features"];
    command::run(cargo(what).args(["--", "-D", "warnings"]))
}
