//! The test programs: built once, then run one by one, so that each phase is timed and counted by itself.

use std::{path::PathBuf, process::Command};

use serde_json::Value;

use crate::{
    budget::Phase,
    command::{Failure, announce, cargo, run_seeing},
};

/// A built test program.
pub(crate) struct Suite {
    /// `package/target`.
    pub(crate) id: String,
    pub(crate) phase: Phase,
    program: PathBuf,
    /// Where cargo would run it.
    folder: PathBuf,
}

/// How many tests did what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
}

impl Count {
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }

    /// Reads the last line of a test program: `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    pub(crate) fn read(line: &str) -> Option<Self> {
        let (_, counts) = line.split_once("test result: ")?.1.split_once(". ")?;
        let number = |of: &str| {
            let part = counts.split(';').find(|part| part.trim_end().ends_with(of))?;
            part.split_whitespace().next()?.parse().ok()
        };
        Some(Self {
            passed: number("passed")?,
            failed: number("failed")?,
            ignored: number("ignored")?,
        })
    }
}

/// How the names of the library's test programs begin that start servers.
const WITH_SERVERS: [&str; 7] =
    ["etcd", "fenced", "optimistic", "postgres", "redis", "redlock", "zookeeper"];

/// Which phase a test program belongs to. The suite of all stores has one to itself; the tests of the tool, of the queue, of the test
/// kit and of stores with servers are those that start processes and kill them.
fn phase_of(package: &str, kind: &str, target: &str) -> Phase {
    match (package, kind) {
        ("leaseward-conformance", "test") => Phase::Cases,
        ("leaseward-cli" | "leaseward-queue" | "leaseward-testkit", "test") => Phase::Faults,
        ("leaseward", "test") if WITH_SERVERS.iter().any(|start| target.starts_with(start)) => {
            Phase::Faults
        }
        _ => Phase::Rest,
    }
}

/// What random inputs of tests are made from.
const SEED: &str = "PROPTEST_RNG_SEED";

const ALL: [&str; 2] = ["--workspace", "--all-features"];

/// Builds all test programs and lists them.
pub(crate) fn build() -> Result<Vec<Suite>, Failure> {
    let mut command = cargo(["test", "--no-run", "--message-format=json-render-diagnostics"]);
    command.args(ALL);
    announce(&command);
    let text = crate::command::output_of(&mut command)?;
    let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut suites: Vec<_> = messages.filter_map(|message| Suite::from_message(&message)).collect();
    suites.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(suites)
}

impl Suite {
    fn from_message(message: &Value) -> Option<Self> {
        let is_test = message["profile"]["test"].as_bool()?;
        let program = message["executable"].as_str().filter(|_| is_test)?;
        let folder = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_path_buf();
        let package = folder.file_name()?.to_string_lossy().into_owned();
        let target = message["target"]["name"].as_str()?;
        let kind = message["target"]["kind"][0].as_str()?;
        Some(Self {
            id: format!("{package}/{target}"),
            phase: phase_of(&package, kind, target),
            program: program.into(),
            folder,
        })
    }

    /// Runs it. With `full`, also what is kept for long runs: ignored tests, and larger sizes by `LEASEWARD_FULL`.
    pub(crate) fn run(&self, full: bool, count: &mut Count) -> Result<(), Failure> {
        // Whoever started this under `nohup` has the signal ignored by all its children, and some tests send it.
        let mut command = Command::new("env");
        command.arg("--default-signal=HUP").arg(&self.program);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        if full {
            command.env("LEASEWARD_FULL", "1").arg("--include-ignored");
        } else if std::env::var_os(SEED).is_none() {
            // Random inputs are the same each time: what passes, passes again. Others are for the long runs.
            command.env(SEED, "20");
        }
        eprintln!("\n# {}", self.id);
        run_seeing(&mut command, |line| {
            if let Some(seen) = Count::read(line) {
                count.add(seen);
            }
        })
        .map_err(|failure| Failure { what: format!("`{}`: {}", self.id, failure.what), ..failure })
    }
}

pub(crate) fn doc_tests(count: &mut Count) -> Result<(), Failure> {
    run_seeing(cargo(["test", "--doc"]).args(ALL), |line| {
        if let Some(seen) = Count::read(line) {
            count.add(seen);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_test_programs_say() {
        let line = "test result: FAILED. 3 passed; 1 failed; 2 ignored; 0 measured; 7 filtered out; finished in 0.1s\n";
        assert_eq!(Count::read(line), Some(Count { passed: 3, failed: 1, ignored: 2 }));
        assert_eq!(Count::read("test it ... ok"), None);
    }

    #[test]
    fn what_starts_servers_counts_as_faults() {
        for target in ["redis_store", "redis_interop", "redlock_store", "redlock_interop"] {
            assert_eq!(phase_of("leaseward", "test", target), Phase::Faults, "{target}");
        }
        assert_eq!(phase_of("leaseward", "test", "sqlite_store"), Phase::Rest);
    }
}
