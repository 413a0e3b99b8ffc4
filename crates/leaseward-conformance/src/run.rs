//! Runs one case on one fixture.

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::{
    Case, Fixture, Pace,
    fixture::{Helpers, Registered, Time},
};

/// No case takes this long unless something hangs.
const CASE_MAX: Duration = Duration::from_secs(60);

/// Threads of a case's runtime: more than one, so that two clients can meet.
const THREADS: usize = 2;

/// How long what a case left behind may take to end.
const END_MAX: Duration = Duration::from_secs(5);

/// What a case came to; one that fails panics instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The promise was shown.
    Shown,
    /// The store does not make this promise, because it has not what it takes.
    NotApplicable(String),
}

/// Runs a case on a fresh fixture, on a runtime of its own.
///
/// # Panics
/// If the case does not hold, or hangs.
pub fn run(registered: &'static Registered, case: &Case, helpers: &Helpers) -> Verdict {
    let time = match case.pace {
        Pace::Timed if registered.virtual_time => Time::Virtual,
        Pace::Timed | Pace::Real => Time::Real,
    };
    let runtime = runtime(case.pace, time);
    let verdict = runtime.block_on(async {
        let fixture = Fixture::new(registered, time, helpers.clone());
        if let Some(need) = fixture.lacks(case.needs).await {
            return Verdict::NotApplicable(format!("`{}` has not {need}", registered.scheme));
        }
        if tokio::time::timeout(CASE_MAX, (case.run)(&fixture)).await.is_err() {
            panic!("the case hangs: not done after {CASE_MAX:?}\n{}", fixture.account().await);
        }
        Verdict::Shown
    });
    runtime.shutdown_timeout(END_MAX);
    verdict
}

fn runtime(pace: Pace, time: Time) -> Runtime {
    let mut builder = match pace {
        Pace::Real => Builder::new_multi_thread(),
        Pace::Timed => Builder::new_current_thread(),
    };
    if pace == Pace::Real {
        builder.worker_threads(THREADS);
    }
    builder.enable_all().start_paused(time == Time::Virtual).build().expect("a runtime can be made")
}
