//! What happens to jobs, for logs, metrics and whoever listens.

use std::{
    collections::HashMap,
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use leaseward::Fence;
use parking_lot::RwLock;
use serde::Serialize;

use crate::{JobId, meters::Meters};

/// Something that happened to a job in this process, or to its queue.
///
/// The same is logged through `tracing` (target `leaseward_queue`) and counted through `metrics` (`leaseward_queue_*`).
#[non_exhaustive]
#[derive(Clone, Debug, Serialize)]
pub struct Event {
    /// Microseconds since the epoch.
    pub at_us: u64,
    /// What happened.
    pub kind: EventKind,
    /// In which queue.
    pub queue: String,
    /// To which job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// In which attempt, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Under which fence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,
    /// How long it ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_us: Option<u64>,
    /// The trace that the job was pushed with, as a W3C `traceparent`.
    #[serde(rename = "traceparent", skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Kinds of events.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// An attempt began.
    Started,
    /// A job is done, as far as its handler is concerned; it is written down soon after.
    Done,
    /// An attempt failed, and there will be another one.
    Failed,
    /// A job failed for good.
    Dead,
    /// A job is to run again later, by its own wish.
    Snoozed,
    /// An attempt was broken off, and not by the job: most often this process could not reach the database for too long. There
    /// will be another one; it does not count.
    Interrupted,
    /// A job was cancelled.
    Cancelled,
    /// A job was given back before it was done.
    GivenBack,
    /// The session ended while the job ran: another worker may have it. Nothing that this attempt says counts.
    Lost,
    /// What an attempt came to was refused, because the job had been given to another.
    Stale,
    /// The jobs of a worker that vanished were taken over.
    Adopted,
    /// A periodic job was pushed.
    Fired,
}

impl EventKind {
    /// As metrics and logs have it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Dead => "dead",
            Self::Snoozed => "snoozed",
            Self::Interrupted => "interrupted",
            Self::Cancelled => "cancelled",
            Self::GivenBack => "given_back",
            Self::Lost => "lost",
            Self::Stale => "stale",
            Self::Adopted => "adopted",
            Self::Fired => "fired",
        }
    }
}

type Sink = Arc<dyn Fn(&Event) + Send + Sync>;

#[derive(Default)]
pub(crate) struct Events {
    sinks: RwLock<Vec<Sink>>,
    meters: RwLock<HashMap<Box<str>, Arc<Meters>>>,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Events")
    }
}

/// One job, for an event about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About<'a> {
    pub(crate) queue: &'a str,
    pub(crate) job: Option<JobId>,
    pub(crate) attempt: Option<u32>,
    pub(crate) fence: Option<Fence>,
    pub(crate) run: Option<Duration>,
    pub(crate) trace: Option<&'a str>,
    pub(crate) message: Option<&'a str>,
}

impl<'a> About<'a> {
    pub(crate) fn queue(queue: &'a str) -> Self {
        Self { queue, job: None, attempt: None, fence: None, run: None, trace: None, message: None }
    }
}

impl Events {
    pub(crate) fn add(&self, sink: Sink) {
        self.sinks.write().push(sink);
    }

    /// The metrics of a queue.
    pub(crate) fn meters(&self, queue: &str) -> Arc<Meters> {
        if let Some(meters) = self.meters.read().get(queue) {
            return meters.clone();
        }
        self.meters
            .write()
            .entry(queue.into())
            .or_insert_with(|| Arc::new(Meters::new(queue)))
            .clone()
    }

    pub(crate) fn tell(&self, kind: EventKind, about: &About<'_>) {
        self.meters(about.queue).happened(kind, about.run);
        log(kind, about);
        if self.sinks.read().is_empty() {
            return;
        }
        let event = Event {
            at_us: wall_us(),
            kind,
            queue: about.queue.to_owned(),
            job: about.job,
            attempt: about.attempt,
            fence: about.fence,
            run_us: about.run.map(|run| u64::try_from(run.as_micros()).unwrap_or(u64::MAX)),
            trace: about.trace.map(str::to_owned),
            message: about.message.map(str::to_owned),
        };
        // A copy: what a sink does may lead to events of its own.
        let sinks = self.sinks.read().clone();
        for sink in sinks {
            sink(&event);
        }
    }
}

fn log(kind: EventKind, about: &About<'_>) {
    let (queue, what) = (about.queue, kind.name());
    let job = about.job.map(tracing::field::display);
    let (attempt, message) = (about.attempt, about.message);
    match kind {
        EventKind::Dead | EventKind::Lost | EventKind::Stale | EventKind::Adopted => {
            tracing::warn!(target: "leaseward_queue", queue, job, attempt, message, "{what}");
        }
        EventKind::Failed | EventKind::Interrupted => {
            tracing::info!(target: "leaseward_queue", queue, job, attempt, message, "{what}")
        }
        _ => tracing::debug!(target: "leaseward_queue", queue, job, attempt, message, "{what}"),
    }
}

pub(crate) fn wall_us() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
