//! Tells whoever listens: `tracing`, `metrics`, and sinks such as the audit log. Nearly free when nobody does.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use metrics::{Counter, Gauge, Histogram};
use parking_lot::RwLock;
use tracing::{Level, Span};

use super::bid::{Bid, BidState};
use crate::{
    Error, Event, EventKind, Fence, Guard, LostReason, Name,
    clock::Moment,
    store::{self, Guarantee, HeldView},
};

/// Gets every event, on the thread where it happens: be quick, never block.
pub(crate) type Sink = Arc<dyn Fn(&Event) + Send + Sync>;

/// An event found out under a lock, and the span of whom it concerns.
pub(crate) struct Found {
    event: Event,
    span: Option<Box<Span>>,
}

pub(crate) struct Events {
    sinks: RwLock<Vec<Sink>>,
    has_sinks: AtomicBool,
    metrics: Metrics,
}

/// Handles to the recorder that was installed when the engine started.
struct Metrics {
    acquired: Counter,
    waited: Counter,
    refused: Counter,
    timed_out: Counter,
    retried: Counter,
    renewed: Counter,
    renewal_failed: Counter,
    lost: Counter,
    released: Counter,
    expired_before_release: Counter,
    broken: Counter,
    breaker_open: Gauge,
    acquire_seconds: Histogram,
    wait_seconds: Histogram,
    hold_seconds: Histogram,
    hold_share_of_ttl: Histogram,
    fence_lead_seconds: Gauge,
    exclusion_level: Gauge,
    fences_level: Gauge,
}

impl Metrics {
    fn new() -> Self {
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
            metrics: Metrics::new(),
        }
    }

    pub(crate) fn add_sink(&self, sink: Sink) {
        self.sinks.write().push(sink);
        self.has_sinks.store(true, Ordering::Release);
    }

    /// The caller's span, if it has one worth keeping.
    pub(crate) fn current_span(&self) -> Option<Box<Span>> {
        let span = Span::current();
        (!span.is_none()).then(|| Box::new(span))
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
                _ => tracing::enabled!(target: "leaseward", Level::DEBUG),
            }
    }

    pub(crate) fn acquired(&self, guard: &Guard, wait: Duration, ttl: Duration) {
        self.metrics.acquired.increment(1);
        self.metrics.acquire_seconds.record(wait.as_secs_f64());
        if self.has_listeners(Level::DEBUG) {
            let mut event = Event::new(EventKind::Acquired, wall_us());
            event.name = Some(guard.name().clone());
            event.fence = Some(guard.fence());
            event.token_prefix = Some(guard.token_prefix());
            event.ttl_ms = u64::try_from(ttl.as_millis()).ok();
            event.wait_us = Some(micros(wait));
            self.tell(&event);
        }
    }

    /// A caller begins to wait. Acquisitions that waited, as a share of all, are what to alert on.
    pub(crate) fn waiting(&self, name: &Name) {
        self.metrics.waited.increment(1);
        self.simple(EventKind::Waiting, name, None);
    }

    pub(crate) fn refused(&self, name: &Name) {
        self.metrics.refused.increment(1);
        self.simple(EventKind::Refused, name, None);
    }

    pub(crate) fn timed_out(&self, name: &Name, waited: Duration) {
        self.metrics.timed_out.increment(1);
        self.metrics.wait_seconds.record(waited.as_secs_f64());
        self.simple(EventKind::TimedOut, name, Some(waited));
    }

    fn simple(&self, kind: EventKind, name: &Name, waited: Option<Duration>) {
        if self.has_listeners(Level::DEBUG) {
            let mut event = Event::new(kind, wall_us());
            event.name = Some(name.clone());
            event.wait_us = waited.map(micros);
            self.tell(&event);
        }
    }

    pub(crate) fn waited(&self, wait: Duration) {
        self.metrics.wait_seconds.record(wait.as_secs_f64());
    }

    /// Tells what was found out under a lock, now that it is released: a sink may well drop a guard.
    pub(super) fn tell_found(&self, found: &Found) {
        match &found.span {
            Some(span) => span.in_scope(|| self.tell(&found.event)),
            None => self.tell(&found.event),
        }
    }

    pub(crate) fn renewed(&self, bid: &Bid) -> Option<Found> {
        self.metrics.renewed.increment(1);
        let is_heard = self.has_sinks.load(Ordering::Relaxed)
            || tracing::enabled!(target: "leaseward", Level::TRACE);
        is_heard.then(|| Found { event: of_bid(EventKind::Renewed, bid), span: None })
    }

    pub(crate) fn renewal_failed(
        &self,
        bid: &Bid,
        state: &BidState,
        error: &Error,
    ) -> Option<Found> {
        self.metrics.renewal_failed.increment(1);
        self.has_listeners(Level::WARN).then(|| {
            let mut event = of_bid(EventKind::RenewalFailed, bid);
            event.message = Some(error.message().to_owned());
            Found { event, span: state.span.clone() }
        })
    }

    pub(crate) fn lost(
        &self,
        bid: &Bid,
        state: &BidState,
        reason: LostReason,
        now: Moment,
    ) -> Option<Found> {
        self.metrics.lost.increment(1);
        self.has_listeners(Level::WARN).then(|| {
            let mut event = of_bid(EventKind::Lost, bid);
            event.reason = Some(reason);
            event.hold_us = Some(micros(now.since(state.since)));
            Found { event, span: state.span.clone() }
        })
    }

    pub(crate) fn released(&self, bid: &Bid, fence: Fence, held: Duration) {
        let metrics = &self.metrics;
        metrics.released.increment(1);
        metrics.hold_seconds.record(held.as_secs_f64());
        metrics.hold_share_of_ttl.record(held.as_secs_f64() / bid.spec.ttl().as_secs_f64());
        if self.has_listeners(Level::DEBUG) {
            let mut event = of_bid(EventKind::Released, bid);
            event.fence = Some(fence);
            event.hold_us = Some(micros(held));
            self.tell(&event);
        }
    }

    pub(crate) fn expired_before_release(&self, bid: &Bid, fence: Fence, held: Duration) {
        self.metrics.expired_before_release.increment(1);
        if self.has_listeners(Level::WARN) {
            let mut event = of_bid(EventKind::ExpiredBeforeRelease, bid);
            event.fence = Some(fence);
            event.hold_us = Some(micros(held));
            event.message = Some(format!(
                "held for {:.1}s with a TTL of {:.1}s: the TTL was too short, or renewal did not get through",
                held.as_secs_f64(),
                bid.spec.ttl().as_secs_f64(),
            ));
            self.tell(&event);
        }
    }

    pub(crate) fn broken(&self, name: &Name, holder: &HeldView) {
        self.metrics.broken.increment(1);
        if self.has_listeners(Level::WARN) {
            let mut event = Event::new(EventKind::Broken, wall_us());
            event.name = Some(name.clone());
            event.fence = Some(holder.fence);
            event.token_prefix = Some(holder.token_prefix.clone());
            event.message = Some(format!("was held by {}", holder.who));
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
        if self.has_listeners(Level::WARN) {
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

fn of_bid(kind: EventKind, bid: &Bid) -> Event {
    let mut event = Event::new(kind, wall_us());
    event.name = Some(bid.name.clone());
    event.token_prefix = Some(bid.token.prefix());
    event.ttl_ms = Some(bid.spec.ttl_ms.into());
    // None while nobody here holds it.
    event.fence = Some(bid.fence()).filter(|fence| *fence != Fence::ZERO);
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
        EventKind::BreakerClosed => log!(Level::WARN, "breaker closed"),
    }
}
