//! What can be wrong with any store, whatever it is.

use std::time::Duration;

use crate::store::{Finding, Severity};

/// A shorter lead is the trace of a burst: it is over before a store that lost its data is back.
const LEAD_MIN: Duration = Duration::from_millis(10);

/// A lead this long outlasts the restart of a machine, so it is there when the first fence is given out again.
const LEAD_DANGER: Duration = Duration::from_secs(10);

/// Judges how far the newest fence is ahead of the store's clock.
pub(crate) fn of_fence_lead(lead: Duration) -> Option<Finding> {
    if lead < LEAD_MIN {
        return None;
    }
    let severity = if lead < LEAD_DANGER { Severity::Warning } else { Severity::Danger };
    let shown = match lead.as_secs() {
        0 => format!("{} ms", lead.as_millis()),
        seconds => format!("{seconds} s"),
    };
    Some(Finding {
        severity,
        what: format!("the newest fence is {shown} ahead of the store's clock"),
        meaning: "should the store lose its newest data now, it would give out fences again that \
                  others have already, and a late writer could not be told from the holder"
            .into(),
        advice: "set the clock right; if it is, it was wrong before: neither replace nor restore \
                 the store until the clock has caught up"
            .into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lead_is_judged_by_how_long_it_lasts() {
        let table = [
            (0, None),
            (9, None),
            (10, Some(Severity::Warning)),
            (9_999, Some(Severity::Warning)),
            (10_000, Some(Severity::Danger)),
            (3_600_000, Some(Severity::Danger)),
        ];
        for (ms, severity) in table {
            let found = of_fence_lead(Duration::from_millis(ms));
            assert_eq!(found.map(|finding| finding.severity), severity, "{ms} ms");
        }
    }
}
