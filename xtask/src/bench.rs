//! `cargo xtask bench`: builds the benchmark and the tool as the tool is shipped, then measures.

use std::{
    ffi::{OsStr, OsString},
    fs,
    path::Path,
    process::Command,
};

use crate::{
    command::{self, Failure, cargo},
    packages, peers,
    workspace::Workspace,
};

/// Measures with the given arguments; the figures also go to `target/bench/latest.json`.
pub(crate) fn run(args: &[OsString]) -> Result<(), Failure> {
    let workspace = Workspace::load()?;
    let folder = workspace.target.join("bench");
    fs::create_dir_all(&folder)
        .map_err(|error| Failure::new(format!("`{}`: {error}", folder.display())))?;
    let out = folder.join("latest.json");
    measure(
        &workspace,
        args.iter().map(OsString::as_os_str).chain(["--out".as_ref(), out.as_os_str()]),
    )
}

/// Measures everything, also what takes minutes, into a file.
pub(crate) fn to_file(path: &Path) -> Result<(), Failure> {
    measure(&Workspace::load()?, ["--full".as_ref(), "--out".as_ref(), path.as_os_str()])
}

fn measure<'a>(
    workspace: &Workspace,
    args: impl IntoIterator<Item = &'a OsStr>,
) -> Result<(), Failure> {
    packages::ensure(false)?;
    peers::ensure(workspace)?;
    let what = ["build", "--profile", "dist", "--package", "leaseward-bench"];
    command::run(cargo(what).args(["--package", "leaseward-cli"]))?;
    command::run(Command::new(workspace.target.join("dist/leaseward-bench")).args(args))
}
