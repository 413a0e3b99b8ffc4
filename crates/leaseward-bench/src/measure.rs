//! Runs rows: every contender once a round, in turn, so that whatever else the machine does hits all of them alike.

use crate::row::{Contender, Role, Row, Size, Target};

/// Values of one figure by one contender, one a round.
pub(crate) struct Series(Vec<f64>);

/// What a contender came to.
pub(crate) enum Outcome {
    /// One series for each of the row's figures.
    Measured(Vec<Series>),
    /// It could not be measured here, and why.
    Skipped(String),
}

/// A row with what was measured; outcomes stand in the order of its contenders.
pub(crate) struct Measured {
    pub(crate) row: Row,
    pub(crate) outcomes: Vec<Outcome>,
}

impl Series {
    pub(crate) fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        match sorted.len() {
            0 => f64::NAN,
            n if n % 2 == 1 => sorted[middle],
            _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
        }
    }

    pub(crate) fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    pub(crate) fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    pub(crate) fn values(&self) -> &[f64] {
        &self.0
    }

    /// This in relation to another of the same rounds: round by round, then the median.
    fn against(&self, other: &Self, relation: impl Fn(f64, f64) -> f64) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(mine, theirs)| relation(*mine, *theirs)).collect())
    }

    pub(crate) fn ratio_to(&self, other: &Self) -> Self {
        self.against(other, |mine, theirs| mine / theirs)
    }
}

/// Measures a row. A contender that fails once is out, with its reason in the table.
pub(crate) fn measure(mut row: Row, rounds: usize, size: Size) -> Measured {
    let figures = row.figures.len();
    let mut outcomes: Vec<_> = row
        .contenders
        .iter()
        .map(|_| Outcome::Measured((0..figures).map(|_| Series(Vec::new())).collect()))
        .collect();
    let rounds = rounds.min(row.rounds_max);
    for round in 1..=rounds {
        for (contender, outcome) in row.contenders.iter_mut().zip(&mut outcomes) {
            let Outcome::Measured(series) = outcome else { continue };
            eprintln!("  {} · {} ({round}/{rounds})", row.name, contender.name);
            match (contender.run)(size) {
                Ok(values) => {
                    assert_eq!(values.len(), figures, "BUG: one value a figure");
                    for (series, value) in series.iter_mut().zip(values) {
                        series.0.push(value);
                    }
                }
                Err(why) => {
                    eprintln!("  skipped: {why}");
                    *outcome = Outcome::Skipped(why);
                }
            }
        }
    }
    Measured { row, outcomes }
}

impl Measured {
    fn series(&self, is_it: impl Fn(&Contender) -> bool, figure: usize) -> Option<&Series> {
        let at = self.row.contenders.iter().position(is_it)?;
        match &self.outcomes[at] {
            Outcome::Measured(series) => series.get(figure),
            Outcome::Skipped(_) => None,
        }
    }

    pub(crate) fn ours(&self, figure: usize) -> Option<&Series> {
        self.series(|contender| contender.role == Role::Ours, figure)
    }

    /// What ratios are taken to: the first of the raw limits.
    pub(crate) fn raw(&self, figure: usize) -> Option<&Series> {
        self.series(|contender| contender.role == Role::Raw, figure)
    }

    fn named(&self, whom: &str, figure: usize) -> Option<&Series> {
        self.series(|contender| contender.name == whom, figure)
    }

    /// Ours in relation to the other build's, if there is one.
    pub(crate) fn times_other_build(&self, figure: usize) -> Option<f64> {
        let other = self.series(|contender| contender.role == Role::OtherBuild, figure)?;
        Some(self.ours(figure)?.ratio_to(other).median()).filter(|ratio| ratio.is_finite())
    }

    /// The same in words for the table.
    pub(crate) fn to_other_build(&self, figure: usize) -> String {
        let ratio = self.times_other_build(figure);
        ratio.map_or(String::new(), |ratio| format!(" (ours {ratio:.2}×)"))
    }

    /// Whether a target is met; `None` if what it needs was not measured.
    pub(crate) fn is_met(&self, figure: usize, target: Target) -> Option<bool> {
        let ours = self.ours(figure)?;
        let ratio = || Some(ours.ratio_to(self.raw(figure)?).median());
        Some(match target {
            Target::AtMost(most) => ours.median() <= most,
            Target::AtLeast(least) => ours.median() >= least,
            Target::RatioAtMost(most) => ratio()? <= most,
            Target::RatioAtLeast(least) => ratio()? >= least,
            Target::MoreByAtMost(most) => {
                ours.against(self.raw(figure)?, |mine, theirs| mine - theirs).median() <= most
            }
            Target::TimesAtLeast(whom, least) => {
                ours.ratio_to(self.named(whom, figure)?).median() >= least
            }
            Target::TimesAtMost(whom, most) => {
                ours.ratio_to(self.named(whom, figure)?).median() <= most
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Unit;

    #[test]
    fn judges_by_the_median_of_the_rounds_ratios() {
        let mut ours = [10.0, 40.0, 12.0].into_iter();
        let mut raw = [1.0, 4.0, 2.0].into_iter();
        let row = Row::new("x", Unit::Nanos, &[])
            .ours("ours", move |_| Ok(vec![ours.next().expect("three rounds")]))
            .raw("raw", move |_| Ok(vec![raw.next().expect("three rounds")]))
            .peer("gone", |_| Err("not installed".into()));
        let measured = measure(row, 3, Size { is_quick: true, is_full: false });
        assert_eq!(measured.is_met(0, Target::RatioAtMost(10.0)), Some(true));
        assert_eq!(measured.is_met(0, Target::RatioAtMost(9.9)), Some(false));
        assert_eq!(measured.is_met(0, Target::AtMost(12.0)), Some(true));
        assert_eq!(measured.is_met(0, Target::MoreByAtMost(9.0)), Some(false));
        assert_eq!(measured.is_met(0, Target::TimesAtLeast("raw", 10.0)), Some(true));
        assert_eq!(measured.is_met(0, Target::TimesAtLeast("gone", 1.0)), None);
        assert_eq!(measured.is_met(0, Target::TimesAtMost("raw", 10.0)), Some(true));
        assert_eq!(measured.is_met(0, Target::TimesAtMost("raw", 9.9)), Some(false));
        assert!(matches!(measured.outcomes[2], Outcome::Skipped(_)));
    }
}
