//! Jobs and queues as people look at them.

use leaseward::Fence;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::{Failed, JobId, Priority, backend::Raw, body::Body};

/// Where a job is in its life.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Waiting for a worker.
    Ready,
    /// To be run at a later time: scheduled, snoozed, or waiting for its next attempt.
    Later,
    /// Put aside until another job of its key ends.
    Blocked,
    /// A worker has it.
    Running,
    /// It failed for good.
    Dead,
    /// Done, and remembered for a while.
    Done,
    /// Cancelled, and remembered for a while.
    Cancelled,
}

impl JobState {
    /// All of them, those first in which a job is looked for first.
    pub(crate) const ALL: [Self; 7] = [
        Self::Running,
        Self::Ready,
        Self::Later,
        Self::Blocked,
        Self::Dead,
        Self::Done,
        Self::Cancelled,
    ];
}

/// A job.
#[non_exhaustive]
#[derive(Clone, Debug, Serialize)]
pub struct JobView {
    /// Which.
    pub id: JobId,
    /// Where it is in its life.
    pub state: JobState,
    /// How urgent.
    #[serde(serialize_with = "number")]
    pub priority: Priority,
    /// What it is about.
    pub payload: Box<RawValue>,
    /// When it was pushed: microseconds since the epoch.
    pub pushed_us: u64,
    /// When it is due (later), was claimed (running), or ended: microseconds since the epoch.
    pub at_us: Option<i64>,
    /// Attempts that have failed.
    pub failures: u32,
    /// Attempts that were interrupted, and do not count.
    pub interruptions: u32,
    /// After how many failures it is dead, if the job itself says so.
    pub max_attempts: Option<u32>,
    /// The key whose jobs do not all run at once.
    pub key: Option<String>,
    /// Of its newest attempt.
    pub fence: Option<Fence>,
    /// Who runs it: `host:pid`.
    pub worker: Option<String>,
    /// That worker gave no sign of life for its TTL: the job waits to be taken from it, and is run again.
    pub worker_vanished: bool,
    /// The last failures, oldest first.
    pub history: Vec<Failed>,
    /// The trace of whoever pushed it.
    pub trace: Option<String>,
    /// What it noted of its progress.
    pub progress: Option<Box<RawValue>>,
    /// What came of it, if results are kept.
    pub result: Option<Box<RawValue>>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the signature serde asks for
fn number<S: serde::Serializer>(priority: &Priority, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u8(priority.get())
}

impl JobView {
    pub(crate) fn new(raw: Raw) -> Result<Self, leaseward::Error> {
        let body = Body::decode(&raw.body)?;
        let json = |bytes: Vec<u8>| {
            String::from_utf8(bytes).ok().and_then(|text| RawValue::from_string(text).ok())
        };
        Ok(Self {
            id: raw.id,
            state: raw.state,
            priority: raw.id.priority(),
            payload: body.payload,
            pushed_us: body.pushed_us,
            at_us: raw.at_us,
            failures: body.failures,
            interruptions: body.interruptions,
            max_attempts: body.max_attempts,
            key: raw.key.map(String::from),
            fence: raw.fence.and_then(|fence| u64::try_from(fence).ok()).map(Fence::new),
            worker: raw.who,
            worker_vanished: raw.is_orphaned,
            history: body.history,
            trace: body.trace.map(String::from),
            progress: raw.progress.and_then(json),
            result: raw.result.and_then(json),
        })
    }
}

/// A queue, from counters: looking costs the same however many jobs there are.
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QueueStats {
    /// Its name.
    pub name: String,
    /// Whether nothing of it is claimed.
    pub paused: bool,
    /// How many of its jobs may run at once.
    pub limit: Option<u32>,
    /// How many jobs of one key may run at once.
    pub key_limit: u32,
    /// Waiting for a worker.
    pub ready: u64,
    /// To be run later.
    pub later: u64,
    /// Put aside because of their keys.
    pub blocked: u64,
    /// Claimed by workers.
    pub running: u64,
    /// Dead letters.
    pub dead: u64,
    /// Pushed since the queue was made.
    pub pushed: u64,
    /// Done since the queue was made.
    pub done: u64,
    /// Attempts that failed since the queue was made.
    pub failed: u64,
    /// Attempts that were interrupted since the queue was made: most often their worker could not reach the database.
    pub interrupted: u64,
    /// Cancelled since the queue was made.
    pub cancelled: u64,
}

/// The counters as they are kept.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) pushed: i64,
    pub(crate) done: i64,
    pub(crate) failed: i64,
    pub(crate) interrupted: i64,
    pub(crate) dead: i64,
    pub(crate) cancelled: i64,
    pub(crate) later: i64,
    pub(crate) blocked: i64,
    pub(crate) leased: i64,
}

impl QueueStats {
    pub(crate) fn count(&mut self, counters: Counters) {
        let Counters { pushed, done, failed, interrupted, dead, cancelled, later, blocked, leased } =
            counters;
        let natural = |number: i64| u64::try_from(number).unwrap_or(0);
        self.ready = natural(pushed - done - dead - cancelled - later - blocked - leased);
        (self.later, self.blocked, self.running) =
            (natural(later), natural(blocked), natural(leased));
        (self.dead, self.pushed, self.done) = (natural(dead), natural(pushed), natural(done));
        (self.failed, self.cancelled) = (natural(failed), natural(cancelled));
        self.interrupted = natural(interrupted);
    }
}
