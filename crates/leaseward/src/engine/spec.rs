//! How a lease is to be held.

use std::{sync::Arc, time::Duration};

use crate::{Mode, Value, guard::Danger, lease::PackedMode, store::IfBusy};

/// Told shortly before a lease ends because its renewals fail.
pub(crate) type OnDanger = Arc<dyn Fn(Danger) + Send + Sync>;

/// How a lease is to be held. Times are in milliseconds so that a hundred thousand leases stay small.
#[derive(Clone)]
pub(crate) struct Spec {
    pub(crate) mode: PackedMode,
    pub(crate) if_busy: IfBusy,
    pub(crate) ttl_ms: u32,
    /// 0: renewal is off.
    pub(crate) renew_ms: u32,
    /// What few leases have.
    pub(crate) extras: Option<Arc<Extras>>,
}

#[derive(Default)]
pub(crate) struct Extras {
    /// 0: no limit.
    pub(crate) max_hold_ms: u32,
    pub(crate) min_hold_ms: u32,
    pub(crate) value: Option<Value>,
    pub(crate) on_danger: Option<OnDanger>,
    pub(crate) trace_id: Option<Arc<str>>,
    /// It waits for a store that is away from the beginning, and not only once it stands in line.
    pub(crate) rides_out: bool,
}

impl Extras {
    /// Whether both ask for the same of the store. Two callbacks never do; a trace and patience are the caller's own.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let plain = |extras: &Self| (extras.max_hold_ms, extras.min_hold_ms);
        plain(self) == plain(other)
            && self.value == other.value
            && self.on_danger.is_none()
            && other.on_danger.is_none()
    }
}

impl Spec {
    pub(crate) fn mode(&self) -> Mode {
        self.mode.get()
    }

    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms.into())
    }

    /// Zero: no limit.
    pub(crate) fn max_hold(&self) -> Duration {
        self.extra_ms(|extras| extras.max_hold_ms)
    }

    pub(crate) fn min_hold(&self) -> Duration {
        self.extra_ms(|extras| extras.min_hold_ms)
    }

    fn extra_ms(&self, which: impl FnOnce(&Extras) -> u32) -> Duration {
        Duration::from_millis(self.extras.as_deref().map_or(0, which).into())
    }

    pub(crate) fn value(&self) -> Option<&Value> {
        self.extras.as_ref().and_then(|extras| extras.value.as_ref())
    }

    pub(crate) fn trace_id(&self) -> Option<&Arc<str>> {
        self.extras.as_ref().and_then(|extras| extras.trace_id.as_ref())
    }

    /// Whether it waits for a store that is away from the beginning.
    pub(crate) fn rides_out(&self) -> bool {
        self.extras.as_ref().is_some_and(|extras| extras.rides_out)
    }

    /// Whether a waiter with this spec may take over a lease held under another: what the store recorded must be true
    /// for it too.
    pub(crate) fn can_inherit(&self, lease: &Self) -> bool {
        let plain = |spec: &Self| (spec.mode, spec.ttl_ms, spec.renew_ms);
        let same_extras = match (&self.extras, &lease.extras) {
            (None, None) => true,
            (Some(mine), Some(theirs)) => Arc::ptr_eq(mine, theirs) || mine.is_same(theirs),
            (Some(extras), None) | (None, Some(extras)) => extras.is_same(&Extras::default()),
        };
        self.mode() == Mode::Exclusive && plain(self) == plain(lease) && same_extras
    }
}
