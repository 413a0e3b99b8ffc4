//! Tells whoever listens: `tracing`, `metrics`, and sinks such as the audit log. Nearly free when nobody does.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use parking_lot::{Mutex, RwLock};
use tracing::{Level, Span};

use super::{cell::TokenCell, meters::Metrics};
use crate::{
    AuditLog, Error, Event, EventKind, Fence, Guard, LostReason, Name,
    store::{self, Guarantee, HeldView},
};

/// Gets every event, on the thread where it happens: be quick, never block.
pub(crate) type Sink = Arc<dyn Fn(&Event) + Send + Sync>;

/// The caller of a lease: its span, and the trace it named.
#[derive(Clone)]
pub(crate) struct Origin {
    span: Span,
    trace_id: Option<Arc<str>>,
}

pub(crate) struct Events {
    sinks: RwLock<Vec<Sink>>,
    has_sinks: AtomicBool,
    audits: Mutex<Vec<AuditLog>>,
    metrics: Metrics,
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn wall_us() -> u64 {
    micros(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

impl Events {
    pub(crate) fn new() -> Self {
        Self {
            sinks: RwLock::default(),
            has_sinks: AtomicBool::new(false),
            audits: Mutex::default(),
            metrics: Metrics::new(),
        }
    }

    pub(crate) fn add_sink(&self, sink: Sink) {
        self.sinks.write().push(sink);
        self.has_sinks.store(true, Ordering::Release);
    }

    /// An audit log that is to be written before the end.
    pub(crate) fn add_audit(&self, audit: AuditLog) {
        self.audits.lock().push(audit);
    }

    pub(super) async fn all_written(&self) {
        let audits = self.audits.lock().clone();
        for audit in audits {
            audit.written().await;
        }
    }

    /// The caller, if it has a span or a trace.
    pub(crate) fn origin(&self, trace_id: Option<&Arc<str>>) -> Option<Arc<Origin>> {
        let span = Span::current();
        let is_known = !span.is_none() || trace_id.is_some();
        is_known.then(|| Arc::new(Origin { span, trace_id: trace_id.cloned() }))
    }

    fn tell(&self, event: &Event) {
        // A copy: what a sink does may lead to events of its own.
        let sinks = self.sinks.read().clone();
        for sink in sinks {
            // Somebody else's code, on the thread that renews leases as often as not: should it panic, they go on.
            let told = panic::catch_unwind(AssertUnwindSafe(|| sink(event)));
            if told.is_err() {
                tracing::error!(target: "leaseward", "a listener panicked and missed an event");
            }
        }
        log(event);
    }

    fn has_listeners(&self, level: Level) -> bool {
        self.has_sinks.load(Ordering::Relaxed)
            || match level {
                Level::WARN => tracing::enabled!(target: "leaseward", Level::WARN),
                Level::INFO => tracing::enabled!(target: "leaseward", Level::INFO),
                Level::TRACE => tracing::enabled!(target: "leaseward", Level::TRACE),
                _ => tracing::enabled!(target: "leaseward", Level::DEBUG),
            }
    }

    pub(crate) fn acquired(&self, guard: &Guard, wait: Duration, trace_id: Option<&Arc<str>>) {
        self.metrics.acquired.increment(1);
        self.metrics.acquire_seconds.record(wait.as_secs_f64());
        if self.has_listeners(Level::DEBUG) {
            let mut event = of_guard(EventKind::Acquired, guard);
            event.wait_us = Some(micros(wait));
            event.trace_id = trace_id.cloned();
            self.tell(&event);
        }
    }

    /// A lease was taken over by a handle, which renews it.
    pub(crate) fn taken_over(&self, guard: &Guard) {
        self.metrics.renewed.increment(1);
        if self.has_listeners(Level::TRACE) {
            self.tell(&of_guard(EventKind::Renewed, guard));
        }
    }

    /// A caller begins to wait. Acquisitions that waited, as a share of all, are what to alert on.
    pub(crate) fn waiting(&self, name: &Name, trace_id: Option<&Arc<str>>) {
        self.metrics.waited.increment(1);
        self.simple(EventKind::Waiting, std::slice::from_ref(name), None, trace_id);
    }

    /// A try for these names found one of them busy.
    pub(crate) fn refused(&self, names: &[Name], trace_id: Option<&Arc<str>>) {
        self.metrics.refused.increment(1);
        self.simple(EventKind::Refused, names, None, trace_id);
    }

    pub(crate) fn timed_out(&self, names: &[Name], waited: Duration, trace_id: Option<&Arc<str>>) {
        self.metrics.timed_out.increment(1);
        self.metrics.wait_seconds.record(waited.as_secs_f64());
        self.simple(EventKind::TimedOut, names, Some(waited), trace_id);
    }

    fn simple(
        &self,
        kind: EventKind,
        names: &[Name],
        waited: Option<Duration>,
        trace_id: Option<&Arc<str>>,
    ) {
        if self.has_listeners(Level::DEBUG) {
            let mut event = Event::new(kind, wall_us());
            match names {
                [name] => event.name = Some(name.clone()),
                several => event.message = Some(format!("one of {}", quoted(several))),
            }
            event.wait_us = waited.map(micros);
            event.trace_id = trace_id.cloned();
            self.tell(&event);
        }
    }

    pub(crate) fn waited(&self, wait: Duration) {
        self.metrics.wait_seconds.record(wait.as_secs_f64());
    }

    /// Tells an event of a lease in the span of its caller.
    fn tell_of(&self, mut event: Event, origin: Option<&Origin>) {
        let Some(origin) = origin else { return self.tell(&event) };
        event.trace_id.clone_from(&origin.trace_id);
        origin.span.in_scope(|| self.tell(&event));
    }

    pub(super) fn renewed(&self, cell: &TokenCell, origin: Option<&Origin>) {
        self.metrics.renewed.increment(1);
        if self.has_listeners(Level::TRACE) {
            self.tell_of(of_cell(EventKind::Renewed, cell), origin);
        }
    }

    /// Every failure is counted; told is the first of those in a row.
    pub(super) fn renewal_failed(
        &self,
        cell: &TokenCell,
        error: &Error,
        is_first: bool,
        origin: Option<&Origin>,
    ) {
        self.metrics.renewal_failed.increment(1);
        if is_first && self.has_listeners(Level::WARN) {
            let mut event = of_cell(EventKind::RenewalFailed, cell);
            event.message = Some(error.message().to_owned());
            self.tell_of(event, origin);
        }
    }

    pub(super) fn lost(&self, cell: &TokenCell, reason: LostReason, hold: &Hold) {
        self.metrics.lost.increment(1);
        if self.has_listeners(Level::WARN) {
            let mut event = of_cell(EventKind::Lost, cell);
            event.reason = Some(reason);
            event.message = match reason {
                LostReason::Expired => Some(too_long(cell, hold.held)),
                LostReason::NotOurs => Some(ENDED_BY_STORE.into()),
                LostReason::Broken | LostReason::SessionEnded | LostReason::ShutDown => None,
            };
            self.tell_of_hold(event, hold);
        }
    }

    /// A guard is done with its lease, in time or not.
    pub(super) fn hold_ended(&self, cell: &TokenCell, hold: &Hold) {
        let held = hold.held.as_secs_f64();
        self.metrics.hold_seconds.record(held);
        self.metrics.hold_share_of_ttl.record(held / cell.spec.ttl().as_secs_f64());
    }

    pub(super) fn released(&self, cell: &TokenCell, hold: &Hold) {
        self.metrics.released.increment(1);
        if self.has_listeners(Level::DEBUG) {
            self.tell_of_hold(of_cell(EventKind::Released, cell), hold);
        }
    }

    /// A release found that the lease had ended, which had not been noticed before: by its deadline, or by the store.
    pub(super) fn expired_before_release(&self, cell: &TokenCell, hold: &Hold, by_store: bool) {
        self.metrics.expired_before_release.increment(1);
        if self.has_listeners(Level::WARN) {
            let mut event = of_cell(EventKind::ExpiredBeforeRelease, cell);
            event.message = Some(match by_store {
                true => ENDED_BY_STORE.into(),
                false => too_long(cell, hold.held),
            });
            self.tell_of_hold(event, hold);
        }
    }

    fn tell_of_hold(&self, mut event: Event, hold: &Hold) {
        event.fence = Some(hold.fence);
        event.hold_us = Some(micros(hold.held));
        self.tell_of(event, hold.origin.as_deref());
    }

    pub(crate) fn broken(&self, name: &Name, holder: &HeldView, now: bool) {
        self.metrics.broken.increment(1);
        if self.has_listeners(Level::WARN) {
            let mut event = Event::new(EventKind::Broken, wall_us());
            event.name = Some(name.clone());
            event.token_prefix = Some(holder.token_prefix.clone());
            if holder.fence != Fence::ZERO {
                event.fence = Some(holder.fence);
                event.hold_us = Some(micros(holder.held));
            }
            let what = if now { "freed at once" } else { "its renewals are refused" };
            event.message = Some(format!("was held by {}; {what}", holder.who));
            self.tell(&event);
        }
    }

    pub(crate) fn breaker_opened(&self, why: &Error) {
        self.metrics.breaker_open.set(1.0);
        if self.has_listeners(Level::WARN) {
            let mut event = Event::new(EventKind::BreakerOpened, wall_us());
            event.message = Some(why.message().to_owned());
            self.tell(&event);
        }
    }

    pub(crate) fn breaker_closed(&self) {
        self.metrics.breaker_open.set(0.0);
        if self.has_listeners(Level::INFO) {
            self.tell(&Event::new(EventKind::BreakerClosed, wall_us()));
        }
    }

    /// Something was asked once more: a try with `retry`, or an ask the store did not answer.
    pub(crate) fn retried(&self) {
        self.metrics.retried.increment(1);
    }

    pub(crate) fn fence_lead(&self, lead: Duration) {
        self.metrics.fence_lead_seconds.set(lead.as_secs_f64());
    }

    /// How firmly the store holds, as numbers that an alert can compare.
    pub(crate) fn guarantee(&self, promised: &Guarantee) {
        let number = |level| match level {
            store::Level::MayBreak => 0.0,
            store::Level::WithinBounds => 1.0,
            store::Level::Holds => 2.0,
        };
        self.metrics.exclusion_level.set(number(promised.exclusion));
        self.metrics.fences_level.set(number(promised.fences));
    }
}

/// The time one guard had its lease.
pub(super) struct Hold {
    pub(super) fence: Fence,
    pub(super) held: Duration,
    pub(super) origin: Option<Arc<Origin>>,
}

fn quoted(names: &[Name]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

const ENDED_BY_STORE: &str = "the store had ended it: an operator, an eviction or another program";

fn too_long(cell: &TokenCell, held: Duration) -> String {
    format!(
        "held for {:.1}s with a TTL of {:.1}s: the TTL was too short, or renewal did not get through",
        held.as_secs_f64(),
        cell.spec.ttl().as_secs_f64(),
    )
}

fn of_guard(kind: EventKind, guard: &Guard) -> Event {
    let mut event = Event::new(kind, wall_us());
    event.name = Some(guard.name().clone());
    event.fence = Some(guard.fence());
    event.token_prefix = Some(guard.token_prefix());
    event.ttl_ms = u64::try_from(guard.ttl().as_millis()).ok();
    event
}

fn of_cell(kind: EventKind, cell: &TokenCell) -> Event {
    let mut event = Event::new(kind, wall_us());
    event.name = Some(cell.name.clone());
    event.token_prefix = Some(cell.token.prefix());
    event.ttl_ms = Some(cell.spec.ttl_ms.into());
    // None while nobody here holds it.
    event.fence = Some(cell.fence()).filter(|fence| *fence != Fence::ZERO);
    event
}

fn log(event: &Event) {
    let Event { name, fence, token_prefix, ttl_ms, wait_us, hold_us, reason, message, .. } = event;
    let name = name.as_ref().map(Name::as_str);
    let fence = fence.map(Fence::get);
    let reason = reason.map(tracing::field::display);
    macro_rules! log {
        ($level:expr, $what:literal) => {
            tracing::event!(
                target: "leaseward", $level, name, fence, token = token_prefix.as_deref(), ttl_ms,
                wait_us, hold_us, reason, detail = message.as_deref(), $what
            )
        };
    }
    match event.kind {
        EventKind::Acquired => log!(Level::DEBUG, "acquired"),
        EventKind::Waiting => log!(Level::DEBUG, "waiting"),
        EventKind::Refused => log!(Level::DEBUG, "refused"),
        EventKind::TimedOut => log!(Level::DEBUG, "timed out"),
        EventKind::Renewed => log!(Level::TRACE, "renewed"),
        EventKind::RenewalFailed => log!(Level::WARN, "renewal failed"),
        EventKind::Lost => log!(Level::WARN, "lost"),
        EventKind::Released => log!(Level::DEBUG, "released"),
        EventKind::ExpiredBeforeRelease => log!(Level::WARN, "expired before release"),
        EventKind::Broken => log!(Level::WARN, "broken"),
        EventKind::BreakerOpened => log!(Level::WARN, "breaker opened"),
        EventKind::BreakerClosed => log!(Level::INFO, "breaker closed"),
    }
}
