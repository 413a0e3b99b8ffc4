//! Lock libraries of other languages, in processes of their own.

use std::{path::PathBuf, process::Command};

use leaseward_testkit::peers;

/// node-redlock 5, as `peers/bench.cjs` uses it.
pub(crate) fn node(args: &[&str]) -> Command {
    let mut node = peers::node(&script("bench.cjs"));
    node.args(args);
    node
}

/// redis-py, as `peers/bench.py` uses it.
pub(crate) fn python(args: &[&str]) -> Command {
    let mut python = peers::python(&script("bench.py"));
    python.args(args);
    python
}

fn script(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "peers", name].iter().collect()
}
