//! The series of a client, by their names.

use metrics::{Counter, Gauge, Histogram};

/// Handles to the recorder that was installed when the engine started.
pub(super) struct Metrics {
    pub(super) acquired: Counter,
    pub(super) waited: Counter,
    pub(super) refused: Counter,
    pub(super) timed_out: Counter,
    pub(super) retried: Counter,
    pub(super) renewed: Counter,
    pub(super) renewal_failed: Counter,
    pub(super) lost: Counter,
    pub(super) released: Counter,
    pub(super) expired_before_release: Counter,
    pub(super) broken: Counter,
    pub(super) breaker_open: Gauge,
    pub(super) acquire_seconds: Histogram,
    pub(super) wait_seconds: Histogram,
    pub(super) hold_seconds: Histogram,
    pub(super) hold_share_of_ttl: Histogram,
    pub(super) fence_lead_seconds: Gauge,
    pub(super) exclusion_level: Gauge,
    pub(super) fences_level: Gauge,
}

impl Metrics {
    pub(super) fn new() -> Self {
        use metrics::{counter, gauge, histogram};
        Self {
            acquired: counter!("leaseward_acquired_total"),
            waited: counter!("leaseward_waited_total"),
            refused: counter!("leaseward_refused_total"),
            timed_out: counter!("leaseward_timed_out_total"),
            retried: counter!("leaseward_retried_total"),
            renewed: counter!("leaseward_renewed_total"),
            renewal_failed: counter!("leaseward_renewal_failed_total"),
            lost: counter!("leaseward_lost_total"),
            released: counter!("leaseward_released_total"),
            expired_before_release: counter!("leaseward_expired_before_release_total"),
            broken: counter!("leaseward_broken_total"),
            breaker_open: gauge!("leaseward_breaker_open"),
            acquire_seconds: histogram!("leaseward_acquire_seconds"),
            wait_seconds: histogram!("leaseward_wait_seconds"),
            hold_seconds: histogram!("leaseward_hold_seconds"),
            hold_share_of_ttl: histogram!("leaseward_hold_share_of_ttl"),
            fence_lead_seconds: gauge!("leaseward_fence_lead_seconds"),
            exclusion_level: gauge!("leaseward_guarantee_level", "of" => "exclusion"),
            fences_level: gauge!("leaseward_guarantee_level", "of" => "fences"),
        }
    }
}
