//! Lock libraries of other languages, in processes of their own.

use std::{path::PathBuf, process::Command};

/// node-redlock, as `peers/bench.cjs` uses it.
pub(crate) fn node(args: &[&str]) -> Result<Command, String> {
    let mut node = Command::new("node");
    node.env("NODE_PATH", folder()?.join("node_modules")).arg(script("bench.cjs")).args(args);
    Ok(node)
}

/// redis-py, as `peers/bench.py` uses it.
pub(crate) fn python(args: &[&str]) -> Result<Command, String> {
    let mut python = Command::new("python3");
    python.env("PYTHONPATH", folder()?.join("python")).arg(script("bench.py")).args(args);
    Ok(python)
}

fn folder() -> Result<PathBuf, String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let target = this.ancestors().nth(2).ok_or("no target folder")?;
    Ok(target.join("peers"))
}

fn script(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "peers", name].iter().collect()
}
