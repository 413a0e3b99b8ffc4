//! Periodic jobs: pushed once for each time, however many schedulers there are.
//!
//! Whoever keeps the queue going (one process, by a lock of Leaseward's) pushes what is due. The time last pushed is a row in the
//! database, written in the same transaction as the job: should two processes believe that they hold the lock, the second one
//! pushes nothing.

mod expression;

use std::{
    collections::HashMap,
    time::{Duration, SystemTime},
};

use leaseward::Error;

pub use self::expression::Cron;
use crate::{
    NewJob, Queue,
    crew::Enlisted,
    events::{About, EventKind, wall_us},
    job::{check, micros},
    queue::Inner,
};

/// What to do about times that passed while no scheduler ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missed {
    /// Push one job for all of them, at once.
    #[default]
    Once,
    /// Push nothing for them.
    Skip,
}

/// A later time than this after its own is missed.
const LATE: Duration = Duration::from_secs(60);

/// A periodic job of this process.
pub(crate) struct Schedule {
    cron: Cron,
    job: NewJob,
    missed: Missed,
    /// When it was last pushed, once that is known.
    last_us: Option<i64>,
}

/// Schedules of a process, by name.
pub(crate) type Schedules = HashMap<String, Schedule>;

/// A periodic job; dropped, this process does not push it any more.
#[must_use = "dropping it ends the schedule in this process"]
pub struct Scheduled {
    name: String,
    queue: Queue,
    _enlisted: Enlisted,
}

impl std::fmt::Debug for Scheduled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scheduled").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Drop for Scheduled {
    fn drop(&mut self) {
        self.queue.inner.schedules.lock().remove(&self.name);
    }
}

impl Queue {
    /// Pushes a job at each time that a cron expression names (in UTC), as long as the answer lives in some process. Every
    /// process that knows the schedule may run it: each time is pushed once. The name is that of the schedule in the database.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](leaseward::ErrorKind) for a bad name; else what the database says.
    ///
    /// # Cancel safety
    /// Cancel safe: a schedule that nobody knew may have been noted.
    pub async fn schedule(
        &self,
        name: impl Into<String>,
        cron: Cron,
        missed: Missed,
        job: NewJob,
    ) -> Result<Scheduled, Error> {
        let name = name.into();
        check(&name, "the name of a schedule")?;
        // What is wrong with the job is told now, and not at midnight.
        self.row(job.clone()).await?;
        let last_us = self.inner.backend.last_fired(name.clone()).await?;
        if last_us.is_none() {
            // From now on: what was before nobody has missed.
            let now = i64::try_from(wall_us()).unwrap_or(i64::MAX);
            self.inner.backend.fire(self.inner.sessions.shard(), name.clone(), now, None).await?;
        }
        let schedule = Schedule { cron, job, missed, last_us: None };
        self.inner.schedules.lock().insert(name.clone(), schedule);
        let enlisted = self.inner.enlist();
        self.inner.bells.later();
        Ok(Scheduled { name, queue: self.clone(), _enlisted: enlisted })
    }
}

/// What is to be pushed of one schedule.
struct Due {
    name: String,
    at_us: i64,
    /// `None` if it is too late for it.
    job: Option<NewJob>,
}

/// Pushes what is due; how long until the next.
pub(crate) async fn fire_due(inner: &Inner) -> Result<Option<Duration>, Error> {
    let names: Vec<String> = inner.schedules.lock().keys().cloned().collect();
    let mut pause: Option<Duration> = None;
    for name in names {
        let last = inner.backend.last_fired(name.clone()).await?;
        let now = SystemTime::now();
        let (due, next) = look(inner, &name, last, now);
        if let Some(due) = due {
            fire(inner, due).await?;
        }
        pause = [pause, next].into_iter().flatten().min();
    }
    Ok(pause)
}

/// The latest time that has come since the last one pushed, and how long until the next.
fn look(
    inner: &Inner,
    name: &str,
    last: Option<i64>,
    now: SystemTime,
) -> (Option<Due>, Option<Duration>) {
    let mut schedules = inner.schedules.lock();
    let Some(schedule) = schedules.get_mut(name) else { return (None, None) };
    let Some(last_us) = last.or(schedule.last_us) else { return (None, None) };
    schedule.last_us = Some(last_us);
    let last = SystemTime::UNIX_EPOCH + Duration::from_micros(last_us.max(0).cast_unsigned());
    let latest = schedule.cron.latest(last, now);
    let due = latest.map(|at| {
        let is_late = now.duration_since(at).unwrap_or_default() > LATE;
        let wanted = !(is_late && schedule.missed == Missed::Skip);
        Due {
            name: name.to_owned(),
            at_us: micros(at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()),
            job: wanted.then(|| schedule.job.clone()),
        }
    });
    let next = schedule.cron.next(now).and_then(|next| next.duration_since(now).ok());
    (due, next)
}

async fn fire(inner: &Inner, due: Due) -> Result<(), Error> {
    let queue = Queue { inner: inner.me.upgrade().ok_or_else(crate::queue::closed)? };
    let (mut name, mut row) = (String::new(), None);
    if let Some(job) = due.job {
        job.queue().clone_into(&mut name);
        row = Some(queue.row(job).await?);
    }
    let session = inner.sessions.shard();
    if inner.backend.fire(session, due.name.clone(), due.at_us, row).await?.is_some()
        && !name.is_empty()
    {
        let about = About { message: Some(&due.name), ..About::queue(&name) };
        inner.events.tell(EventKind::Fired, &about);
        inner.bells.work(inner.number(&name).await?);
        inner.bells.later();
    }
    Ok(())
}
