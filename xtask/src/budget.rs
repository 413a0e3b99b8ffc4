//! How long each part of the tests took, beside what it may take on two cores.

use std::time::{Duration, Instant};

/// A part of the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Compiling, lints included.
    Build,
    /// The conformance suite.
    Cases,
    /// Programs that are killed, frozen and cut off.
    Faults,
    Rest,
}

const PHASES: [(Phase, &str, Duration); 4] = [
    (Phase::Build, "build", Duration::from_secs(8 * 60)),
    (Phase::Cases, "cases", Duration::from_secs(5 * 60)),
    (Phase::Faults, "faults", Duration::from_secs(8 * 60)),
    (Phase::Rest, "rest", Duration::from_secs(3 * 60)),
];

#[derive(Default)]
pub(crate) struct Budget {
    taken: Vec<(Phase, Duration)>,
}

impl Budget {
    /// Does something on a phase's account, whether it succeeds or not.
    pub(crate) fn spend<T>(&mut self, phase: Phase, work: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let out = work();
        self.taken.push((phase, begin.elapsed()));
        out
    }

    fn taken(&self, phase: Phase) -> Duration {
        self.taken.iter().filter(|(of, _)| *of == phase).map(|(_, taken)| *taken).sum()
    }

    pub(crate) fn table(&self) -> String {
        let mut out = String::from("phase     taken    budget\n");
        for (phase, name, budget) in PHASES {
            let taken = self.taken(phase);
            let over = if taken > budget { "  over budget" } else { "" };
            out += &format!("{name:<7} {:>7}   {:>7}{over}\n", shown(taken), shown(budget));
        }
        out
    }
}

pub(crate) fn shown(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}m {:02}s", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_went_over() {
        let mut budget = Budget::default();
        budget.taken.push((Phase::Rest, Duration::from_secs(100)));
        budget.taken.push((Phase::Rest, Duration::from_secs(101)));
        let table = budget.table();
        assert!(table.contains("rest     3m 21s    3m 00s  over budget"), "{table}");
        assert_eq!(table.matches("over budget").count(), 1);
    }
}
