//! Jobs as programs and people see them.

use std::time::{Duration, UNIX_EPOCH};

use clap::ValueEnum;
use leaseward::clock::{Clock as _, SystemClock};
use leaseward_queue::{Failed, JobId, JobState, JobView};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::units;

/// States as they are typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum State {
    /// Waiting for a worker
    Ready,
    /// To be run later: at its time, or again after it failed
    Later,
    /// Put aside until another job of its key ends
    Blocked,
    /// A worker has it
    Running,
    /// Failed for good
    Dead,
    /// Done, and remembered for a while
    Done,
    /// Cancelled, and remembered for a while
    Cancelled,
}

impl State {
    pub(super) const ALL: [Self; 7] = [
        Self::Running,
        Self::Ready,
        Self::Later,
        Self::Blocked,
        Self::Dead,
        Self::Done,
        Self::Cancelled,
    ];

    pub(super) fn meant(self) -> JobState {
        match self {
            Self::Ready => JobState::Ready,
            Self::Later => JobState::Later,
            Self::Blocked => JobState::Blocked,
            Self::Running => JobState::Running,
            Self::Dead => JobState::Dead,
            Self::Done => JobState::Done,
            Self::Cancelled => JobState::Cancelled,
        }
    }
}

/// A state in a word or two.
pub(super) fn word(job: &JobView) -> &'static str {
    match job.state {
        JobState::Running if job.worker_vanished => "worker vanished",
        JobState::Ready => "ready",
        JobState::Later => "later",
        JobState::Blocked => "blocked",
        JobState::Running => "running",
        JobState::Dead => "dead",
        JobState::Done => "done",
        JobState::Cancelled => "cancelled",
        _ => "other",
    }
}

/// A job, as programs see it.
#[derive(Debug, Serialize)]
pub(super) struct JobRow<'a> {
    id: JobId,
    queue: &'a str,
    state: JobState,
    priority: u8,
    payload: &'a RawValue,
    pushed_us: u64,
    at_us: Option<i64>,
    failures: u32,
    interruptions: u32,
    max_attempts: Option<u32>,
    key: Option<&'a str>,
    fence: Option<u64>,
    worker: Option<&'a str>,
    worker_vanished: bool,
    history: Vec<FailedRow<'a>>,
    trace: Option<&'a str>,
    progress: Option<&'a RawValue>,
    result: Option<&'a RawValue>,
}

#[derive(Debug, Serialize)]
struct FailedRow<'a> {
    attempt: u32,
    at_us: u64,
    fence: u64,
    error: &'a str,
}

impl<'a> JobRow<'a> {
    pub(super) fn of(queue: &'a str, job: &'a JobView) -> Self {
        let failed = |failed: &'a Failed| FailedRow {
            attempt: failed.attempt,
            at_us: failed.at_us,
            fence: failed.fence.get(),
            error: &failed.error,
        };
        Self {
            id: job.id,
            queue,
            state: job.state,
            priority: job.priority.get(),
            payload: &job.payload,
            pushed_us: job.pushed_us,
            at_us: job.at_us,
            failures: job.failures,
            interruptions: job.interruptions,
            max_attempts: job.max_attempts,
            key: job.key.as_deref(),
            fence: job.fence.map(leaseward::Fence::get),
            worker: job.worker.as_deref(),
            worker_vanished: job.worker_vanished,
            history: job.history.iter().map(failed).collect(),
            trace: job.trace.as_deref(),
            progress: job.progress.as_deref(),
            result: job.result.as_deref(),
        }
    }
}

/// What its time means: since when it runs, when it is due, when it ended.
pub(super) fn when(job: &JobView) -> String {
    let Some(at) = job.at_us.and_then(|at| u64::try_from(at).ok()) else { return "-".to_owned() };
    let now = SystemClock.wall_us();
    let ago = units::shown(Duration::from_micros(now.saturating_sub(at)));
    match job.state {
        JobState::Running => format!("for {ago}"),
        JobState::Later if at <= now => "due".to_owned(),
        JobState::Later => format!("in {}", units::shown(Duration::from_micros(at - now))),
        _ => format!("{ago} ago"),
    }
}

/// How long ago.
pub(super) fn age(at_us: u64) -> String {
    units::shown(Duration::from_micros(SystemClock.wall_us().saturating_sub(at_us)))
}

/// A time for people.
pub(super) fn time(at_us: u64) -> String {
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_micros(at_us)).to_string()
}

/// Failed attempts, of how many.
pub(super) fn failures(job: &JobView) -> String {
    match job.max_attempts {
        Some(max) => format!("{}/{max}", job.failures),
        None => job.failures.to_string(),
    }
}
