//! `cargo xtask test --full`: what takes longer than a change should wait for.
//!
//! Each step that succeeds is written down at once, with the state of the sources; an interrupted run goes on behind the
//! last one, and a change of the sources begins anew. Figures are kept beside it, in `target/full/`.

use std::{
    collections::hash_map::DefaultHasher,
    fs,
    hash::{Hash, Hasher},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    bench,
    budget::{Phase, shown},
    command::{Failure, output_of},
    suites::{Count, Suite},
    workspace::Workspace,
};

/// Something that takes long.
struct Step {
    id: &'static str,
    run: fn(&mut Context<'_>) -> Result<(), Failure>,
}

/// The long steps, one line each.
const STEPS: &[Step] = &[
    Step { id: "cases", run: |context| context.suites(Phase::Cases) },
    Step { id: "faults", run: |context| context.suites(Phase::Faults) },
    Step { id: "rest", run: |context| context.suites(Phase::Rest) },
    Step { id: "bench", run: |context| bench::to_file(&context.folder.join("bench.json")) },
];

struct Context<'a> {
    folder: PathBuf,
    suites: &'a [Suite],
    count: &'a mut Count,
}

impl Context<'_> {
    fn suites(&mut self, phase: Phase) -> Result<(), Failure> {
        let mut suites = self.suites.iter().filter(|suite| suite.phase == phase);
        suites.try_for_each(|suite| suite.run(true, self.count))
    }
}

pub(crate) fn run(
    workspace: &Workspace,
    suites: &[Suite],
    count: &mut Count,
) -> Result<(), Failure> {
    let folder = workspace.target.join("full");
    fs::create_dir_all(&folder).map_err(|error| unwritable(&folder, &error))?;
    let mut state = State::load(folder.join("state.json"), sources(&workspace.root)?);
    let mut context = Context { folder, suites, count };
    for step in STEPS {
        if let Some(taken) = state.taken(step.id) {
            eprintln!("\n# {}: done before on these sources, in {}", step.id, shown(taken));
            continue;
        }
        let begin = Instant::now();
        (step.run)(&mut context)?;
        state.finish(step.id, begin.elapsed())?;
    }
    Ok(())
}

/// What the sources are: the commit, and a digest of what is not committed.
fn sources(root: &Path) -> Result<String, Failure> {
    let git = |args: &[&str]| output_of(Command::new("git").current_dir(root).args(args));
    let commit = git(&["rev-parse", "HEAD"])?.trim().to_owned();
    let changes = git(&["diff", "HEAD"])? + &git(&["status", "--porcelain"])?;
    if changes.is_empty() {
        return Ok(commit);
    }
    let mut digest = DefaultHasher::new();
    changes.hash(&mut digest);
    Ok(format!("{commit}+{:016x}", digest.finish()))
}

/// Which steps are done, on disk.
struct State {
    path: PathBuf,
    state: Value,
}

impl State {
    /// What was written down for these very sources; anything else counts for nothing.
    fn load(path: PathBuf, sources: String) -> Self {
        let found = fs::read_to_string(&path).ok();
        let state = found
            .and_then(|text| serde_json::from_str::<Value>(&text).ok())
            .filter(|state| state["sources"] == sources && state["seconds"].is_object())
            .unwrap_or_else(|| json!({ "sources": sources, "seconds": {} }));
        Self { path, state }
    }

    fn taken(&self, step: &str) -> Option<Duration> {
        self.state["seconds"][step].as_f64().map(Duration::from_secs_f64)
    }

    fn finish(&mut self, step: &str, taken: Duration) -> Result<(), Failure> {
        self.state["seconds"][step] = taken.as_secs_f64().into();
        // By a rename, so that an interruption leaves the old state or the new one.
        let fresh = self.path.with_extension("new");
        fs::write(&fresh, format!("{:#}\n", self.state))
            .and_then(|()| fs::rename(&fresh, &self.path))
            .map_err(|error| unwritable(&self.path, &error))
    }
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("`{}` cannot be written: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_on_where_it_was_unless_the_sources_changed() {
        let path = std::env::temp_dir().join(format!("xtask-state-{}.json", std::process::id()));
        let mut state = State::load(path.clone(), "a".into());
        assert_eq!(state.taken("cases"), None);
        state.finish("cases", Duration::from_secs(5)).expect("is written");
        let again = State::load(path.clone(), "a".into());
        assert_eq!(again.taken("cases"), Some(Duration::from_secs(5)));
        assert_eq!(again.taken("bench"), None);
        assert_eq!(State::load(path.clone(), "b".into()).taken("cases"), None);
        fs::remove_file(path).expect("is there");
    }
}
