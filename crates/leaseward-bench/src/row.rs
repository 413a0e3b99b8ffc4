//! What is measured: rows of figures, who is measured, and what is to be reached.

use std::{fmt, time::Duration};

/// One experiment, run by every contender in turn, round after round.
pub(crate) struct Row {
    /// What is measured, in the words of the table.
    pub(crate) name: &'static str,
    /// What one run of a contender yields, in this order.
    pub(crate) figures: Vec<Figure>,
    /// The first is ours; the second, if it is [`Role::Raw`], is what ratios are taken to.
    pub(crate) contenders: Vec<Contender>,
    /// Rounds if not the usual number: for experiments that take long.
    pub(crate) rounds_max: usize,
    /// Takes so long that it has to be asked for with `--full`.
    pub(crate) is_long: bool,
}

/// One number an experiment yields.
#[derive(Clone)]
pub(crate) struct Figure {
    /// What distinguishes it from the row's other figures; may be empty.
    pub(crate) name: &'static str,
    pub(crate) unit: Unit,
    pub(crate) targets: Vec<Target>,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Unit {
    Nanos,
    Micros,
    Millis,
    PerSecond,
    Bytes,
    Percent,
    Count,
}

/// What a figure of ours has to reach.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    AtMost(f64),
    AtLeast(f64),
    /// Times the raw limit of the same round.
    RatioAtMost(f64),
    RatioAtLeast(f64),
    /// More than the raw limit of the same round by this much at most.
    MoreByAtMost(f64),
    /// Times a contender of this name, of the same round.
    TimesAtLeast(&'static str, f64),
    TimesAtMost(&'static str, f64),
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Role {
    Ours,
    /// The same work with no library around it, or the primitive nobody can beat.
    Raw,
    Peer,
    /// This benchmark of another build, added by `--beside`.
    OtherBuild,
}

/// The name of the contender that `--beside` adds, for targets.
pub(crate) const OTHER_BUILD: &str = "other build";

/// Somebody who is measured.
pub(crate) struct Contender {
    pub(crate) role: Role,
    pub(crate) name: &'static str,
    pub(crate) run: Run,
}

/// Runs an experiment once: one value for each of the row's figures, or why there is none.
pub(crate) type Run = Box<dyn FnMut(Size) -> Result<Vec<f64>, String>>;

/// How much work a run is.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) is_quick: bool,
    pub(crate) is_full: bool,
}

impl Size {
    /// So many times, or a fifth of it in a quick run.
    pub(crate) fn times(self, full: u32) -> u32 {
        if self.is_quick { (full / 5).max(1) } else { full }
    }

    /// So long, or a third of it in a quick run.
    pub(crate) fn span(self, full: Duration) -> Duration {
        if self.is_quick { full / 3 } else { full }
    }
}

impl Row {
    pub(crate) fn new(name: &'static str, unit: Unit, targets: &[Target]) -> Self {
        let figure = Figure { name: "", unit, targets: targets.to_vec() };
        Self {
            name,
            figures: vec![figure],
            contenders: Vec::new(),
            rounds_max: usize::MAX,
            is_long: false,
        }
    }

    /// Names the first figure.
    pub(crate) fn figure(mut self, name: &'static str) -> Self {
        self.figures[0].name = name;
        self
    }

    /// One more figure of the same runs.
    pub(crate) fn and(mut self, name: &'static str, unit: Unit, targets: &[Target]) -> Self {
        self.figures.push(Figure { name, unit, targets: targets.to_vec() });
        self
    }

    pub(crate) fn rounds_max(mut self, rounds: usize) -> Self {
        self.rounds_max = rounds;
        self
    }

    pub(crate) fn long(mut self) -> Self {
        self.is_long = true;
        self
    }

    pub(crate) fn ours<F>(self, name: &'static str, run: F) -> Self
    where
        F: FnMut(Size) -> Result<Vec<f64>, String> + 'static,
    {
        self.with(Role::Ours, name, run)
    }

    pub(crate) fn raw<F>(self, name: &'static str, run: F) -> Self
    where
        F: FnMut(Size) -> Result<Vec<f64>, String> + 'static,
    {
        self.with(Role::Raw, name, run)
    }

    pub(crate) fn peer<F>(self, name: &'static str, run: F) -> Self
    where
        F: FnMut(Size) -> Result<Vec<f64>, String> + 'static,
    {
        self.with(Role::Peer, name, run)
    }

    pub(crate) fn with<F>(mut self, role: Role, name: &'static str, run: F) -> Self
    where
        F: FnMut(Size) -> Result<Vec<f64>, String> + 'static,
    {
        self.contenders.push(Contender { role, name, run: Box::new(run) });
        self
    }
}

impl Unit {
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Nanos => "ns",
            Self::Micros => "µs",
            Self::Millis => "ms",
            Self::PerSecond => "/s",
            Self::Bytes => "B",
            Self::Percent => "%",
            Self::Count => "",
        }
    }

    /// A value with as many digits as mean something.
    pub(crate) fn show(self, value: f64) -> String {
        if value.abs() >= 100.0 || (self == Self::Count && value.fract() == 0.0) {
            return grouped(value);
        }
        if value.abs() >= 10.0 { format!("{value:.1}") } else { format!("{value:.2}") }
    }
}

/// A whole number with its thousands apart.
fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut out = String::from(if value < 0.0 { "-" } else { "" });
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |value: f64| {
            if value.fract() == 0.0 { grouped(value) } else { format!("{value}") }
        };
        match *self {
            Self::AtMost(most) => write!(f, "≤ {}", show(most)),
            Self::AtLeast(least) => write!(f, "≥ {}", show(least)),
            Self::RatioAtMost(most) => write!(f, "≤ {}×", show(most)),
            Self::RatioAtLeast(least) => write!(f, "≥ {}×", show(least)),
            Self::MoreByAtMost(most) => write!(f, "≤ raw + {}", show(most)),
            Self::TimesAtLeast(whom, least) => write!(f, "≥ {}× {whom}", show(least)),
            Self::TimesAtMost(whom, most) => write!(f, "≤ {}× {whom}", show(most)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_as_many_digits_as_mean_something() {
        for (value, expected) in
            [(0.123, "0.12"), (12.34, "12.3"), (999.6, "1,000"), (1_234_567.8, "1,234,568")]
        {
            assert_eq!(Unit::Nanos.show(value), expected);
        }
        assert_eq!(Unit::Count.show(0.0), "0");
    }
}
