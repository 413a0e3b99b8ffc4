//! The lock libraries that ours is tested and measured with, from npm and PyPI, in `<target>/peers/`.
//!
//! What is wanted stands in `crates/leaseward-testkit/peers/`; a copy of that, written last, marks a complete installation,
//! and the test kit looks for it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    command::{Failure, run},
    workspace::Workspace,
};

/// Installs them unless they are there already.
pub(crate) fn ensure(workspace: &Workspace) -> Result<(), Failure> {
    let wanted = workspace.root.join("crates/leaseward-testkit/peers");
    let folder = workspace.target.join("peers");
    let mark = folder.join("installed");
    let text = read(&wanted.join("package-lock.json"))? + &read(&wanted.join("requirements.txt"))?;
    if fs::read_to_string(&mark).is_ok_and(|mark| mark == text) {
        return Ok(());
    }
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|error| unusable(&folder, &error))?;
    }
    node(&wanted, &folder.join("node"))?;
    python(&wanted, &folder.join("python"))?;
    fs::write(&mark, text).map_err(|error| unusable(&mark, &error))
}

fn node(wanted: &Path, folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(|error| unusable(folder, &error))?;
    for name in ["package.json", "package-lock.json"] {
        fs::copy(wanted.join(name), folder.join(name)).map_err(|error| unusable(folder, &error))?;
    }
    let options = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier"];
    run(Command::new("npm").arg("ci").args(options).arg("--prefix").arg(folder))
}

fn python(wanted: &Path, folder: &Path) -> Result<(), Failure> {
    run(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
    let mut pip = Command::new(folder.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check", "--requirement"]);
    run(pip.arg(wanted.join("requirements.txt")))
}

fn read(path: &PathBuf) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| unusable(path, &error))
}

fn unusable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("`{}`: {error}", path.display()))
}
