//! What happens to leases, for logs, metrics and audits.

use std::sync::Arc;

use serde::Serialize;

use crate::{Fence, LostReason, Name};

/// Something that happened to a lease of this process, or to its store.
///
/// The same is logged through `tracing` (target `leaseward`, inside the span of whoever acquired the lease) and counted
/// through `metrics`. What *other* processes do is seen through [`Locks::observe`](crate::Locks::observe).
#[non_exhaustive]
#[derive(Clone, Debug, Serialize)]
pub struct Event {
    /// Microseconds since the epoch.
    pub at_us: u64,
    /// What happened.
    pub kind: EventKind,
    /// To which name.
    #[serde(serialize_with = "name_as_text", skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
    /// Under which fence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,
    /// The first characters of the token.
    #[serde(rename = "token", skip_serializing_if = "Option::is_none")]
    pub token_prefix: Option<String>,
    /// The TTL asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// How long it was waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_us: Option<u64>,
    /// How long it was held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_us: Option<u64>,
    /// Why it was lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<LostReason>,
    /// The trace of the caller, if it [named one](crate::Lock::trace_id).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<Arc<str>>,
    /// What went wrong, or what to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Kinds of events.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A lease began.
    Acquired,
    /// A caller has to wait.
    Waiting,
    /// A try found the name busy.
    Refused,
    /// A caller stopped waiting.
    TimedOut,
    /// A lease was extended.
    Renewed,
    /// A renewal got no answer, or an error: the first of those in a row.
    RenewalFailed,
    /// A lease ended against its holder's will.
    Lost,
    /// A lease was given back, by its holder or by [`Locks::shutdown`](crate::Locks::shutdown).
    Released,
    /// A lease was given back after it had ended, which had not been noticed before: the TTL was too short for the work. A
    /// loss is told once, as this or as [`Lost`](EventKind::Lost).
    ExpiredBeforeRelease,
    /// An operator broke leases.
    Broken,
    /// The store failed repeatedly: asks fail at once for a while.
    BreakerOpened,
    /// The store answers again.
    BreakerClosed,
}

impl Event {
    pub(crate) fn new(kind: EventKind, at_us: u64) -> Self {
        Self {
            at_us,
            kind,
            name: None,
            fence: None,
            token_prefix: None,
            ttl_ms: None,
            wait_us: None,
            hold_us: None,
            reason: None,
            trace_id: None,
            message: None,
        }
    }
}

#[allow(clippy::ref_option)] // the signature serde asks for
fn name_as_text<S: serde::Serializer>(name: &Option<Name>, to: S) -> Result<S::Ok, S::Error> {
    match name {
        Some(name) => to.serialize_str(name),
        None => to.serialize_none(),
    }
}
