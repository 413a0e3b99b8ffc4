//! Queues that people run, in processes of their own.

use std::path::PathBuf;

use leaseward_testkit::peers;

use crate::standby::StandBy;

/// A queue of another language.
#[derive(Clone, Copy)]
pub(super) enum Peer {
    PgBoss,
    Graphile,
    Procrastinate,
}

impl Peer {
    /// Runs one experiment; one value for each of its figures.
    pub(super) fn run(self, what: &str, url: &str, numbers: &[u32]) -> Result<Vec<f64>, String> {
        let script = |name: &str| -> PathBuf {
            [env!("CARGO_MANIFEST_DIR"), "peers", name].iter().collect()
        };
        let mut command = match self {
            Self::PgBoss | Self::Graphile => peers::node(&script("queue.cjs")),
            Self::Procrastinate => peers::python(&script("queue_jobs.py")),
        };
        match self {
            Self::PgBoss => command.arg("pg-boss"),
            Self::Graphile => command.arg("graphile-worker"),
            Self::Procrastinate => &mut command,
        };
        command.args([what, url]).args(numbers.iter().map(u32::to_string));
        let mut one = StandBy::start(vec![command])?;
        one.go()?;
        one.figures()?.into_iter().next().ok_or_else(|| "no figures".into())
    }
}
