//! What a check-up found, and what follows from it.

use std::{cmp::Reverse, time::Duration};

use leaseward::store::{Finding, Guarantee, Severity};
use serde::Serialize;

use crate::{exit::Exit, failure::Failure, units};

/// A renewal is sent when a third of the TTL is over; one whose answer takes as long comes with the next one due.
const DANGER_PART_OF_TTL: u32 = 3;

/// Ten times less leaves room for several tries before the deadline.
const WARNING_PART_OF_TTL: u32 = 30;

/// Everything that was learnt about a store.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) store: String,
    pub(super) round_trips: Option<RoundTrips>,
    pub(super) guarantee: Option<Guarantee>,
    pub(super) fence_lead: Option<Duration>,
    pub(super) findings: Vec<Finding>,
    /// What ended the check-up before its end, and what to do.
    pub(super) failure: Option<(String, Option<String>)>,
}

impl Report {
    pub(super) fn new(store: &str) -> Self {
        Self {
            store: store.to_owned(),
            round_trips: None,
            guarantee: None,
            fence_lead: None,
            findings: Vec::new(),
            failure: None,
        }
    }

    pub(super) fn failed(&mut self, failure: &Failure) {
        self.failure = Some((failure.message.clone(), failure.hint.clone()));
    }

    /// The findings, worst first.
    pub(super) fn sorted(&self) -> Vec<&Finding> {
        let mut findings: Vec<&Finding> = self.findings.iter().collect();
        findings.sort_by_key(|finding| Reverse(finding.severity));
        findings
    }

    pub(super) fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }

    /// How a check-up that came to its end ends the tool.
    pub(super) fn exit(&self) -> Exit {
        match self.count(Severity::Danger) {
            0 => Exit::Done,
            _ => Exit::Other,
        }
    }

    /// The whole of it in one line.
    pub(super) fn verdict(&self) -> String {
        if self.failure.is_some() {
            return match self.round_trips {
                None => "not checked: the store cannot be reached, or refuses".to_owned(),
                Some(_) => "not fully checked".to_owned(),
            };
        }
        let dangers = match self.count(Severity::Danger) {
            0 => "no danger found".to_owned(),
            many => format!("{} found", counted(many, "danger")),
        };
        let rest: Vec<String> = [(Severity::Warning, "warning"), (Severity::Note, "note")]
            .into_iter()
            .map(|(severity, word)| (self.count(severity), word))
            .filter(|(many, _)| *many > 0)
            .map(|(many, word)| counted(many, word))
            .collect();
        if rest.is_empty() { dangers } else { format!("{dangers}, {}", rest.join(", ")) }
    }

    /// The documented object.
    pub(super) fn for_programs(&self) -> impl Serialize {
        Object {
            store: &self.store,
            answers: self.round_trips.is_some(),
            round_trip_us: self.round_trips.as_ref().map(|trips| Micros {
                min: units::micros(trips.min()),
                median: units::micros(trips.median()),
                max: units::micros(trips.max()),
            }),
            guarantee: self.guarantee.as_ref(),
            fence_lead_ms: self.fence_lead.map(units::millis),
            findings: self.sorted(),
            dangers: self.count(Severity::Danger),
            error: self.failure.as_ref().map(|(message, hint)| Trouble { message, hint }),
        }
    }
}

fn counted(many: usize, word: &str) -> String {
    if many == 1 { format!("1 {word}") } else { format!("{many} {word}s") }
}

#[derive(Serialize)]
struct Object<'a> {
    store: &'a str,
    answers: bool,
    round_trip_us: Option<Micros>,
    guarantee: Option<&'a Guarantee>,
    fence_lead_ms: Option<u64>,
    findings: Vec<&'a Finding>,
    dangers: usize,
    error: Option<Trouble<'a>>,
}

#[derive(Serialize)]
struct Micros {
    min: u64,
    median: u64,
    max: u64,
}

#[derive(Serialize)]
struct Trouble<'a> {
    message: &'a str,
    hint: &'a Option<String>,
}

/// How long the store took to answer, each time; at least once.
#[derive(Clone, Debug, Default)]
pub(super) struct RoundTrips {
    sorted: Vec<Duration>,
}

impl RoundTrips {
    pub(super) fn push(&mut self, took: Duration) {
        let at = self.sorted.partition_point(|other| *other <= took);
        self.sorted.insert(at, took);
    }

    pub(super) fn many(&self) -> usize {
        self.sorted.len()
    }

    pub(super) fn min(&self) -> Duration {
        self.sorted.first().copied().unwrap_or_default()
    }

    pub(super) fn median(&self) -> Duration {
        self.sorted.get(self.sorted.len() / 2).copied().unwrap_or_default()
    }

    pub(super) fn max(&self) -> Duration {
        self.sorted.last().copied().unwrap_or_default()
    }

    /// Whether leases of this TTL can be renewed in time. The slowest answer counts: one is enough to lose a lease.
    pub(super) fn finding(&self, ttl: Duration) -> Option<Finding> {
        let slowest = self.max();
        let severity = if slowest >= ttl / DANGER_PART_OF_TTL {
            Severity::Danger
        } else if slowest >= ttl / WARNING_PART_OF_TTL {
            Severity::Warning
        } else {
            return None;
        };
        let (slowest, ttl) = (units::fine(slowest), units::shown(ttl));
        Some(Finding {
            severity,
            what: format!("an answer took {slowest}, and the TTL is {ttl}"),
            meaning: "a lease is renewed when a third of its TTL is over; with answers this slow \
                      it can be lost although its holder and the store are well"
                .into(),
            advice: "use a longer TTL (`--ttl`, or `ttl` in the configuration), or find out what \
                     makes the store or the way to it slow"
                .into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(severity: Severity) -> Finding {
        let text = || "x".to_owned();
        Finding { severity, what: text(), meaning: text(), advice: text() }
    }

    fn report(severities: &[Severity]) -> Report {
        let mut report = Report::new("memory:");
        report.findings = severities.iter().copied().map(finding).collect();
        report
    }

    #[test]
    fn only_a_danger_is_a_failure() {
        use Severity::{Danger, Note, Warning};
        let table: [(&[Severity], Exit, &str); 5] = [
            (&[], Exit::Done, "no danger found"),
            (&[Note], Exit::Done, "no danger found, 1 note"),
            (&[Warning, Note, Warning], Exit::Done, "no danger found, 2 warnings, 1 note"),
            (&[Danger], Exit::Other, "1 danger found"),
            (&[Note, Danger, Warning, Danger], Exit::Other, "2 dangers found, 1 warning, 1 note"),
        ];
        for (severities, exit, verdict) in table {
            let report = report(severities);
            assert_eq!(report.exit(), exit, "{severities:?}");
            assert_eq!(report.verdict(), verdict);
        }
    }

    #[test]
    fn the_worst_comes_first() {
        use Severity::{Danger, Note, Warning};
        let report = report(&[Note, Danger, Warning]);
        let order: Vec<Severity> = report.sorted().iter().map(|found| found.severity).collect();
        assert_eq!(order, [Danger, Warning, Note]);
    }

    #[test]
    fn a_check_cut_short_gives_no_all_clear() {
        let mut report = report(&[]);
        report.failed(&Failure::new(Exit::Unavailable, "gone"));
        assert_eq!(report.verdict(), "not checked: the store cannot be reached, or refuses");
        report.round_trips = Some(RoundTrips::default());
        assert_eq!(report.verdict(), "not fully checked");
    }

    #[test]
    fn answers_are_judged_by_the_slowest() {
        let table = [
            (999, None),
            (1_000, Some(Severity::Warning)),
            (9_999, Some(Severity::Warning)),
            (10_000, Some(Severity::Danger)),
        ];
        for (slowest_ms, severity) in table {
            let mut trips = RoundTrips::default();
            for ms in [3, slowest_ms, 1] {
                trips.push(Duration::from_millis(ms));
            }
            let found = trips.finding(Duration::from_secs(30));
            assert_eq!(found.map(|finding| finding.severity), severity, "{slowest_ms} ms");
            assert_eq!(trips.min(), Duration::from_millis(1));
            assert_eq!(trips.median(), Duration::from_millis(3));
        }
    }
}
