//! Metrics: `leaseward_queue_*`. Handles are made once for each queue, so that a job costs a few additions.

use std::time::Duration;

use metrics::{Counter, Histogram, counter, gauge, histogram};

use crate::{EventKind, QueueStats};

/// Kinds of events that are counted: all but beginnings, which are counted by their ends.
const COUNTED: [EventKind; 11] = [
    EventKind::Done,
    EventKind::Failed,
    EventKind::Dead,
    EventKind::Snoozed,
    EventKind::Interrupted,
    EventKind::Cancelled,
    EventKind::GivenBack,
    EventKind::Lost,
    EventKind::Stale,
    EventKind::Adopted,
    EventKind::Fired,
];

/// The metrics of one queue.
pub(crate) struct Meters {
    outcomes: Vec<(EventKind, Counter)>,
    run: Histogram,
    wait: Histogram,
}

impl Meters {
    pub(crate) fn new(queue: &str) -> Self {
        let queue = queue.to_owned();
        let one = |kind: EventKind| {
            let counter = counter!("leaseward_queue_jobs_total", "queue" => queue.clone(), "outcome" => kind.name());
            (kind, counter)
        };
        Self {
            outcomes: COUNTED.map(one).into(),
            run: histogram!("leaseward_queue_run_seconds", "queue" => queue.clone()),
            wait: histogram!("leaseward_queue_wait_seconds", "queue" => queue),
        }
    }

    pub(crate) fn happened(&self, kind: EventKind, run: Option<Duration>) {
        if let Some((_, counter)) = self.outcomes.iter().find(|(known, _)| *known == kind) {
            counter.increment(1);
        }
        if let Some(run) = run {
            self.run.record(run.as_secs_f64());
        }
    }

    /// How long a job waited from its push to the beginning of an attempt.
    pub(crate) fn waited(&self, time: Duration) {
        self.wait.record(time.as_secs_f64());
    }
}

/// How many jobs there are, as gauges: told by whoever keeps the queues going.
pub(crate) fn show(queues: &[QueueStats]) {
    for queue in queues {
        for (state, count) in [
            ("ready", queue.ready),
            ("later", queue.later),
            ("blocked", queue.blocked),
            ("running", queue.running),
            ("dead", queue.dead),
        ] {
            #[allow(clippy::cast_precision_loss)] // exact up to 2⁵³ jobs
            gauge!("leaseward_queue_jobs", "queue" => queue.name.clone(), "state" => state)
                .set(count as f64);
        }
    }
}
