//! A check-up, as people read it.

use leaseward::store::{Finding, Guarantee, Severity};

use super::report::{Report, RoundTrips};
use crate::{
    failure::Failure,
    printer::{Printer, Tone},
    units,
};

pub(super) fn print(report: &Report, printer: Printer) -> Result<(), Failure> {
    printer.pairs(&facts(report))?;
    for finding in report.sorted() {
        print_finding(finding, printer)?;
    }
    let verdict = report.verdict();
    let tone = match (report.failure.is_some(), report.count(Severity::Danger)) {
        (false, 0) => Tone::Good,
        _ => Tone::Bad,
    };
    printer.line(&format!("\n{}", printer.out_tone(tone, &verdict)))
}

fn facts(report: &Report) -> Vec<(&'static str, String)> {
    let mut rows = vec![("store", report.store.clone())];
    let answers = report.round_trips.as_ref().map_or_else(|| "no".to_owned(), answers);
    rows.push(("answers", answers));
    if let Some(guarantee) = &report.guarantee {
        rows.extend(promises(guarantee));
    }
    if let Some(lead) = report.fence_lead.filter(|lead| !lead.is_zero()) {
        rows.push(("fence lead", format!("{} ahead of the store's clock", units::fine(lead))));
    }
    rows
}

fn answers(trips: &RoundTrips) -> String {
    if trips.max().is_zero() {
        return "at once".to_owned();
    }
    let (min, median) = (units::fine(trips.min()), units::fine(trips.median()));
    let (max, many) = (units::fine(trips.max()), trips.many());
    format!("in {median} (median of {many}, from {min} to {max})")
}

fn promises(guarantee: &Guarantee) -> Vec<(&'static str, String)> {
    let mut rows = vec![
        ("exclusion", guarantee.exclusion.to_string()),
        ("fence order", guarantee.fences.to_string()),
        ("reach", guarantee.reach.to_string()),
    ];
    let labels = ["breaks when"].into_iter().chain(std::iter::repeat(""));
    rows.extend(labels.zip(guarantee.breaks_when.iter().cloned()));
    rows
}

fn print_finding(finding: &Finding, printer: Printer) -> Result<(), Failure> {
    let (word, tone) = match finding.severity {
        Severity::Danger => ("danger", Tone::Bad),
        Severity::Warning => ("warning", Tone::Careful),
        Severity::Note => ("note", Tone::Accent),
    };
    printer.line(&format!("\n{}: {}", printer.out_tone(tone, word), finding.what))?;
    printer.pairs(&[("  means", finding.meaning.clone()), ("  do", finding.advice.clone())])
}
