//! Sessions: one sign of life for all jobs of a process.
//!
//! A [`Life`] is one session. Its deadline is counted from the moment a sign of life was *sent*, on a clock that also counts
//! suspend; once it has passed, or the database says that the session is over, every job of it is lost, and a new life begins.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicUsize, Ordering},
    },
    time::Duration,
};

use leaseward::{
    Error,
    clock::{Clock as _, Moment, SystemClock},
};
use parking_lot::Mutex;
use rand::RngExt as _;
use tokio::sync::{Mutex as AsyncMutex, Notify, RwLock};

use crate::{JobId, backend::Backend, job::micros};

/// Why a job is to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stop {
    Cancelled = 1,
    Lost = 2,
    /// The worker ends, and has waited long enough.
    Abandoned = 3,
    /// This process gave no sign of life for too long: the job is lost unless it can still be written down.
    Late = 4,
}

/// How a running job is told to stop.
#[derive(Debug, Default)]
pub(crate) struct Control {
    stop: AtomicU8,
    changed: Notify,
}

impl Control {
    /// Tells it; the first reason counts.
    pub(crate) fn stop(&self, why: Stop) {
        let _ = self.stop.compare_exchange(0, why as u8, Ordering::AcqRel, Ordering::Relaxed);
        self.changed.notify_waiters();
    }

    pub(crate) fn stopped(&self) -> Option<Stop> {
        match self.stop.load(Ordering::Acquire) {
            1 => Some(Stop::Cancelled),
            2 => Some(Stop::Lost),
            3 => Some(Stop::Abandoned),
            4 => Some(Stop::Late),
            _ => None,
        }
    }

    /// Resolves once it is told.
    pub(crate) async fn told(&self) -> Stop {
        loop {
            let changed = self.changed.notified();
            if let Some(why) = self.stopped() {
                return why;
            }
            changed.await;
        }
    }
}

/// The jobs that a worker runs.
#[derive(Debug, Default)]
pub(crate) struct Running {
    jobs: Mutex<HashMap<JobId, Arc<Control>>>,
}

impl Running {
    pub(crate) fn begun(&self, id: JobId, control: &Arc<Control>) {
        self.jobs.lock().insert(id, control.clone());
    }

    pub(crate) fn ended(&self, id: JobId) {
        self.jobs.lock().remove(&id);
    }

    pub(crate) fn count(&self) -> usize {
        self.jobs.lock().len()
    }

    pub(crate) fn stop_all(&self, why: Stop) {
        let all: Vec<_> = self.jobs.lock().values().cloned().collect();
        all.iter().for_each(|control| control.stop(why));
    }

    fn cancel(&self, id: JobId) {
        if let Some(control) = self.jobs.lock().get(&id) {
            control.stop(Stop::Cancelled);
        }
    }
}

/// A worker that sleeps.
pub(crate) struct Asleep<'a>(&'a AtomicUsize);

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// One session.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) id: i64,
    /// The newest token it has had.
    pub(crate) last: AtomicI64,
    /// Leases it knows of.
    pub(crate) tokens: Mutex<HashSet<i64>>,
    /// Held for reading by whoever claims: in between nobody's claim is under way, and what is not known is stray.
    pub(crate) claiming: RwLock<()>,
    deadline: Mutex<Moment>,
    is_over: AtomicBool,
}

impl Life {
    fn new() -> Self {
        Self {
            // Positive: zero stands for nobody, and what is below for transactions of the user's.
            id: rand::rng().random_range(1..i64::MAX),
            last: AtomicI64::new(0),
            tokens: Mutex::default(),
            claiming: RwLock::new(()),
            deadline: Mutex::new(Moment::from_nanos(0)),
            is_over: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Why its jobs are to stop once it is over. Past its deadline nobody had to say so.
    pub(crate) fn stop(&self) -> Stop {
        if SystemClock.now() >= self.deadline() { Stop::Late } else { Stop::Lost }
    }

    /// Until when it lasts, as far as is known; moves with each sign of life.
    pub(crate) fn deadline(&self) -> Moment {
        *self.deadline.lock()
    }
}

/// What is known of the database from the answers to signs of life.
#[derive(Debug, Default)]
struct Heard {
    last: Option<Moment>,
    rescues_from: Option<Moment>,
}

impl Heard {
    /// Signs of life are sent every third of the TTL: after two of them without an answer the database, or this process, is
    /// away.
    fn is_away(&self, now: Moment, ttl: Duration) -> bool {
        self.last.is_some_and(|last| now.since(last) > ttl * 2 / 3)
    }

    fn answered(&mut self, now: Moment, ttl: Duration) {
        if self.is_away(now, ttl) {
            self.rescues_from = Some(now + ttl);
        }
        self.last = Some(now);
    }

    fn may_rescue(&self, now: Moment, ttl: Duration) -> bool {
        !self.is_away(now, ttl) && self.rescues_from.is_none_or(|from| now >= from)
    }
}

#[derive(Debug)]
pub(crate) struct Sessions {
    backend: Arc<dyn Backend>,
    pub(crate) who: String,
    pub(crate) ttl: Duration,
    life: Mutex<Option<Arc<Life>>>,
    /// Held while a life begins.
    beginning: AsyncMutex<()>,
    /// Who counts what this handle does while it has no session.
    shard: i64,
    crews: Mutex<Vec<Weak<Running>>>,
    sleeping: AtomicUsize,
    heard: Mutex<Heard>,
    /// Whether some worker has slept since the last sign of life, and whether others know.
    has_slept: AtomicBool,
    is_known_to_sleep: AtomicBool,
}

impl Sessions {
    pub(crate) fn new(backend: Arc<dyn Backend>, who: String, ttl: Duration) -> Self {
        Self {
            backend,
            who,
            ttl,
            life: Mutex::new(None),
            beginning: AsyncMutex::new(()),
            shard: rand::rng().random_range(1..i64::MAX),
            crews: Mutex::default(),
            sleeping: AtomicUsize::new(0),
            heard: Mutex::default(),
            has_slept: AtomicBool::new(false),
            is_known_to_sleep: AtomicBool::new(false),
        }
    }

    /// By whom it is counted what this handle does.
    pub(crate) fn shard(&self) -> i64 {
        self.life.lock().as_ref().map_or(self.shard, |life| life.id)
    }

    /// The life, which is begun if there is none.
    pub(crate) async fn life(&self) -> Result<Arc<Life>, Error> {
        let current = |this: &Self| this.life.lock().clone().filter(|life| !life.is_over());
        if let Some(life) = current(self) {
            return Ok(life);
        }
        let _beginning = self.beginning.lock().await;
        if let Some(life) = current(self) {
            return Ok(life);
        }
        let life = Arc::new(Life::new());
        let sent = SystemClock.now();
        self.backend.begin(life.id, self.who.clone(), micros(self.ttl)).await?;
        *life.deadline.lock() = self.deadline(sent);
        self.heard.lock().answered(SystemClock.now(), self.ttl);
        self.is_known_to_sleep.store(false, Ordering::Release);
        *self.life.lock() = Some(life.clone());
        Ok(life)
    }

    /// A little before the database would take it for dead.
    fn deadline(&self, sent: Moment) -> Moment {
        sent + (self.ttl - self.ttl / 50)
    }

    /// Has the jobs of a worker told what happens to the session.
    pub(crate) fn add(&self, running: &Arc<Running>) {
        let mut crews = self.crews.lock();
        crews.retain(|crew| crew.strong_count() > 0);
        crews.push(Arc::downgrade(running));
    }

    fn crews(&self) -> Vec<Arc<Running>> {
        self.crews.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Counts as asleep until it is dropped.
    pub(crate) fn asleep(&self) -> Asleep<'_> {
        self.sleeping.fetch_add(1, Ordering::AcqRel);
        Asleep(&self.sleeping)
    }

    /// Says that a worker is about to sleep. `true` if others were told only now: something may have come in meanwhile.
    pub(crate) async fn about_to_sleep(&self) -> bool {
        self.has_slept.store(true, Ordering::Release);
        if self.is_known_to_sleep.load(Ordering::Acquire) {
            return false;
        }
        self.beat().await.is_ok_and(|is_alive| is_alive)
    }

    /// Sends a sign of life; whether the session still is.
    async fn beat(&self) -> Result<bool, Error> {
        let Some(life) = self.life.lock().clone() else { return Ok(true) };
        let sleeps =
            self.has_slept.load(Ordering::Acquire) || self.sleeping.load(Ordering::Acquire) > 0;
        let sent = SystemClock.now();
        let alive = self.backend.beat(life.id, micros(self.ttl), sleeps).await?;
        self.heard.lock().answered(SystemClock.now(), self.ttl);
        if alive {
            *life.deadline.lock() = self.deadline(sent);
            self.is_known_to_sleep.store(sleeps, Ordering::Release);
        }
        Ok(alive)
    }

    /// Ends a life: all its jobs are to stop.
    pub(crate) fn over(&self, life: &Life) {
        if life.is_over.swap(true, Ordering::AcqRel) {
            return;
        }
        let why = life.stop();
        if why == Stop::Late {
            tracing::warn!(
                target: "leaseward_queue",
                ttl = ?self.ttl,
                "the database has confirmed no sign of life for the TTL: running jobs are interrupted"
            );
        } else {
            tracing::warn!(target: "leaseward_queue", "this process was taken for dead: its jobs are lost");
        }
        self.crews().iter().for_each(|crew| crew.stop_all(why));
    }

    /// Whether silence of others may be held against them: not while this process has only just heard from the database
    /// again. Others were without it too, and may be about to say what became of their jobs.
    pub(crate) fn may_rescue(&self) -> bool {
        self.heard.lock().may_rescue(SystemClock.now(), self.ttl)
    }

    /// Sends signs of life until it is dropped.
    pub(crate) async fn keep_alive(&self) {
        loop {
            tokio::time::sleep(self.ttl / 3).await;
            // Also after a suspend: what is over is over before anybody is asked.
            loop {
                let Some(life) = self.life.lock().clone() else { break };
                let beat = async {
                    tokio::select! {
                        biased;
                        // Later an answer changes nothing, and may never come.
                        () = SystemClock.sleep_until(life.deadline()) => Ok(false),
                        is_alive = self.beat() => is_alive,
                    }
                };
                match beat.await {
                    Ok(true) => break,
                    Ok(false) => {
                        self.over(&life);
                        // What waits for work asks for a new life by itself; a process with nothing to do needs none.
                        if self.life().await.is_ok() {
                            break;
                        }
                    }
                    Err(error) => {
                        tracing::debug!(target: "leaseward_queue", error = %error, "no sign of life was sent");
                    }
                }
                tokio::time::sleep(self.ttl / 15).await;
            }
            // Who slept in the last third may sleep again soon.
            self.has_slept.store(false, Ordering::Release);
        }
    }

    /// Stops jobs that were cancelled.
    pub(crate) async fn look_for_cancelled(&self) {
        let Some(life) = self.life.lock().clone() else { return };
        let crews = self.crews();
        if crews.iter().all(|crew| crew.count() == 0) {
            return;
        }
        match self.backend.cancelled(life.id).await {
            Ok(ids) => {
                for id in ids {
                    crews.iter().for_each(|crew| crew.cancel(id));
                }
            }
            Err(error) => {
                tracing::debug!(target: "leaseward_queue", error = %error, "nobody knows what was cancelled")
            }
        }
    }

    /// Says goodbye.
    pub(crate) async fn leave(&self) {
        let life = self.life.lock().take();
        *self.heard.lock() = Heard::default();
        if let Some(life) = life
            && let Err(error) = self.backend.leave(life.id).await
        {
            tracing::debug!(target: "leaseward_queue", error = %error, "the session ends by itself");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(3);

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn silence_is_held_against_nobody_by_a_process_that_heard_nothing_itself() {
        let mut heard = Heard::default();
        for ms in [0, 1_000, 2_100, 4_000] {
            heard.answered(at(ms), TTL);
            assert!(heard.may_rescue(at(ms), TTL), "{ms}");
        }
        assert!(!heard.may_rescue(at(6_001), TTL), "it hears nothing");
        heard.answered(at(6_001), TTL);
        for (ms, may) in [(7_000, false), (8_000, false), (9_000, false), (9_001, true)] {
            heard.answered(at(ms), TTL);
            assert_eq!(heard.may_rescue(at(ms), TTL), may, "{ms}: for a TTL from the answer on");
        }
    }
}
