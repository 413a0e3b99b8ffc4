//! What happened in a history: always as a hash, in words when somebody will read them.

use crate::clock::Moment;

#[derive(Debug)]
pub(super) struct Trace {
    hash: u64,
    lines: Option<Vec<String>>,
}

impl Trace {
    pub(super) fn new(tells: bool) -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, lines: tells.then(Vec::new) }
    }

    pub(super) fn note(&mut self, now: Moment, code: (u64, u64), line: impl FnOnce() -> String) {
        for part in [now.as_nanos(), code.0, code.1] {
            self.hash = (self.hash ^ part).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(17);
        }
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>9.3}s {}", now.as_nanos() as f64 / 1e9 - 1_000.0, line()));
        }
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    pub(super) fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}
