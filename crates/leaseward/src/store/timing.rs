//! Durations that stores and engine must agree on.

use std::time::Duration;

/// The longest a place in the queue outlives its last ask, and the longest a handed-over lease lasts before its
/// holder's first renewal: a waiter that died unseen costs this much, never its whole TTL.
pub const HANDED_MAX: Duration = Duration::from_secs(10);

/// How long a place in the queue lasts after an ask: refreshed every third of it, so that two refreshes may be lost.
pub fn place_ttl(ttl: Duration) -> Duration {
    ttl.min(HANDED_MAX)
}

/// How long a handed-over lease lasts until its first renewal.
pub fn handed_ttl(ttl: Duration) -> Duration {
    ttl.min(HANDED_MAX)
}

/// What is taken off a lease's time on the client's side, for clocks that run at different rates: 1 % and 2 ms.
pub fn margin(ttl: Duration) -> Duration {
    ttl / 100 + Duration::from_millis(2)
}
