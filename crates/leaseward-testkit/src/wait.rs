//! Waiting for what another process does, of which no signal reaches us.

use std::{
    thread,
    time::{Duration, Instant},
};

/// How long a server may take for anything that is asked of it: far more than it needs, even on a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Short against anything a server does, long against what asking it costs.
const PAUSE: Duration = Duration::from_millis(10);

/// Asks again and again until there is an answer. Blocks the thread.
///
/// # Panics
/// With `what` if there is none within `patience`.
pub fn eventually<T>(what: &str, patience: Duration, mut ask: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(begin.elapsed() < patience, "not within {patience:?}: {what}");
        thread::sleep(PAUSE);
    }
}
