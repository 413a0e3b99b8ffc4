//! Findings, looked at.

use leaseward::{
    Locks,
    store::{Finding, Severity},
};

pub(crate) async fn connect(url: &str) -> Locks {
    leaseward::connect(url).await.unwrap_or_else(|error| panic!("{url}: {error}"))
}

/// What a check of this store finds.
pub(crate) async fn findings(url: &str) -> Vec<Finding> {
    connect(url).await.diagnose().await.expect("it answers")
}

/// The finding that says this.
pub(crate) fn find<'a>(findings: &'a [Finding], text: &str) -> &'a Finding {
    let found = findings.iter().find(|finding| finding.what.contains(text));
    found.unwrap_or_else(|| panic!("no finding says `{text}`: {findings:#?}"))
}

pub(crate) fn dangers(findings: &[Finding]) -> Vec<&str> {
    let dangers = findings.iter().filter(|finding| finding.severity == Severity::Danger);
    dangers.map(|finding| finding.what.as_str()).collect()
}
