//! `cargo xtask test`: everything that must hold before a change is shared.

use crate::{
    budget::{Budget, Phase},
    check,
    command::{self, Failure, cargo},
    full, packages, peers,
    suites::{self, Count, Suite},
    workspace::Workspace,
};

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    pub(crate) install: bool,
    pub(crate) full: bool,
}

pub(crate) fn run(options: Options) -> Result<(), Failure> {
    packages::ensure(options.install)?;
    let workspace = Workspace::load()?;
    peers::ensure(&workspace)?;
    let (mut budget, mut count) = (Budget::default(), Count::default());
    let mut done = all(&workspace, &mut budget, &mut count);
    if let (Ok(suites), true) = (&done, options.full) {
        done = full::run(&workspace, suites, &mut count).and(done);
    }
    // Last of all, whatever happened: the times, then the counts.
    println!("\n{}", budget.table());
    let verdict = if done.is_ok() { "all steps passed" } else { "FAILED" };
    let Count { passed, failed, ignored } = count;
    println!("{verdict}: {passed} tests passed, {failed} failed, {ignored} ignored");
    done.map(drop)
}

/// Lints look at all features together; users of the library begin with none, and take one store.
const ALONE: [&str; 6] = ["", "etcd", "postgres", "redis", "sqlite", "zookeeper"];

fn all(
    workspace: &Workspace,
    budget: &mut Budget,
    count: &mut Count,
) -> Result<Vec<Suite>, Failure> {
    budget.spend(Phase::Rest, || workspace.check_one_binary().and_then(|()| check::format()))?;
    let suites = budget.spend(Phase::Build, || {
        check::lints()?;
        for feature in ALONE {
            command::run(&mut cargo(["check", "--package", "leaseward", "--features", feature]))?;
        }
        suites::build()
    })?;
    for phase in [Phase::Cases, Phase::Faults, Phase::Rest] {
        for suite in suites.iter().filter(|suite| suite.phase == phase) {
            budget.spend(phase, || suite.run(false, count))?;
        }
    }
    budget.spend(Phase::Rest, || suites::doc_tests(count))?;
    budget.spend(Phase::Rest, docs)?;
    Ok(suites)
}

/// Libraries only: the tool's page would be written over the library's, whose name it shares.
fn docs() -> Result<(), Failure> {
    let mut doc = cargo(["doc", "--workspace", "--lib", "--all-features", "--no-deps"]);
    command::run(doc.env("RUSTDOCFLAGS", "-D warnings"))
}
