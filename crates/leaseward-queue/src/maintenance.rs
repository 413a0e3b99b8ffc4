//! What keeps a queue going: jobs that come due, jobs of workers that vanished, periodic jobs, forgetting.
//!
//! One process at a time does it, whichever holds a lock of Leaseward's. The lock saves work, no more: every step is atomic in
//! the database, so that two who do it at once, or one that was paused in between, do no harm.

use std::{
    sync::{Arc, Weak, atomic::Ordering},
    time::{Duration, Instant},
};

use leaseward::{Error, ErrorKind, Fence, Guard};

use crate::{
    Failure,
    backend::{self, Adopted, Ending, Fate, Leased, Settle, Told},
    body::Body,
    cron,
    events::{About, EventKind, wall_us},
    job::micros,
    meters,
    queue::Inner,
    session::Life,
    strays,
    worker::Chance,
};

/// Jobs promoted by one statement.
const PROMOTE_COUNT: u32 = 1_000;

/// Leases taken over by one statement.
const ADOPT_COUNT: u32 = 50;

/// The longest time between two looks for what is due, and the shortest.
const DUE_EVERY: Duration = Duration::from_secs(1);
const DUE_SPACING: Duration = Duration::from_millis(5);

/// The longest time between two looks for workers that vanished.
const ADOPT_EVERY: Duration = Duration::from_millis(500);

const TIDY_EVERY: Duration = Duration::from_secs(30);

/// The longest time until another process takes over from one that vanished.
const LOCK_TTL: Duration = Duration::from_secs(5);
const LOCK_TTL_MIN: Duration = Duration::from_millis(200);

/// Who waits for the lock has one round after each of these, in case that whoever has it does not do its work.
const LOCK_WAIT: Duration = Duration::from_secs(10);
const LOCK_WAIT_MIN: Duration = Duration::from_secs(1);
const ROUND: Duration = Duration::from_millis(500);

/// How long the locks are waited for, and how long a process goes on without them when they cannot be had.
const WITHOUT_LOCK: Duration = Duration::from_secs(5);

/// The lock's name. One database has one set of queues in each schema.
fn lock_name(inner: &Inner) -> String {
    match inner.backend.schema() {
        Some(schema) => format!("leaseward-queue:maintenance:{schema}"),
        None => "leaseward-queue:maintenance".to_owned(),
    }
}

/// What came of asking for the lock.
enum Turn {
    /// It is ours.
    Held(Guard),
    /// Another process has it, as far as anybody knows.
    Waited,
    /// There is none to be had.
    Without,
}

/// Runs until the handle is gone.
pub(crate) async fn run(inner: Weak<Inner>) {
    loop {
        let Some(this) = inner.upgrade() else { return };
        match turn(&this).await {
            Turn::Held(guard) => {
                tokio::select! {
                    () = work(&this) => {}
                    reason = guard.lost() => {
                        tracing::debug!(target: "leaseward_queue", ?reason, "another process keeps the queue going");
                    }
                }
            }
            // Nothing depends on the lock but how often things are done twice: so jobs do not wait for it.
            Turn::Waited => drop(tokio::time::timeout(ROUND, work(&this)).await),
            Turn::Without => drop(tokio::time::timeout(WITHOUT_LOCK, work(&this)).await),
        }
    }
}

async fn turn(inner: &Inner) -> Turn {
    // A process that was stopped while it made the locks' tables keeps others waiting for them.
    let Ok(Some(locks)) = tokio::time::timeout(WITHOUT_LOCK, inner.locks()).await else {
        return Turn::Without;
    };
    let ttl = (inner.sessions.ttl / 3).clamp(LOCK_TTL_MIN, LOCK_TTL);
    let wait = inner.sessions.ttl.clamp(LOCK_WAIT_MIN, LOCK_WAIT);
    match locks.lock(lock_name(inner)).ttl(ttl).wait(wait).acquire().await {
        Ok(guard) => Turn::Held(guard),
        Err(error) if error.kind() == ErrorKind::Timeout => Turn::Waited,
        Err(error) => {
            tracing::warn!(target: "leaseward_queue", error = %error, "no lock: the queue is kept going without it");
            Turn::Without
        }
    }
}

/// Works without end.
async fn work(inner: &Arc<Inner>) {
    let (mut adopt_at, mut tidy_at) = (Instant::now(), Instant::now());
    let adopt_every = (inner.sessions.ttl / 10).min(ADOPT_EVERY);
    loop {
        let mut next = Instant::now() + DUE_EVERY;
        match promote(inner).await {
            Ok(pause) => next = next.min(Instant::now() + pause.unwrap_or(DUE_EVERY)),
            Err(error) => complain(&error, "what is due is looked for again"),
        }
        match cron::fire_due(inner).await {
            Ok(pause) => next = next.min(Instant::now() + pause.unwrap_or(DUE_EVERY)),
            Err(error) => complain(&error, "periodic jobs are looked for again"),
        }
        if adopt_at <= Instant::now() {
            // In a task: what was taken over must be settled, also if the lock is lost meanwhile.
            let adopting = tokio::spawn(adopt(inner.clone()));
            if let Ok(Err(error)) = adopting.await {
                complain(&error, "workers that vanished are looked for again");
            }
            adopt_at = Instant::now() + adopt_every;
        }
        if tidy_at <= Instant::now() {
            match inner.backend.tidy(micros(inner.builder.keep_dead)).await {
                Ok(true) => {}
                Ok(false) => {
                    tidy_at = Instant::now() + TIDY_EVERY;
                    show(inner).await;
                }
                Err(error) => {
                    complain(&error, "what is over is forgotten later");
                    tidy_at = Instant::now() + TIDY_EVERY;
                }
            }
        }
        let pause = next.min(adopt_at).saturating_duration_since(Instant::now());
        // Woken or not, it is looked.
        let _ = tokio::time::timeout(pause, inner.bells.hear_later()).await;
        tokio::time::sleep(DUE_SPACING).await;
    }
}

/// Tells how many jobs there are.
async fn show(inner: &Inner) {
    match inner.backend.stats().await {
        Ok(queues) => meters::show(&queues),
        Err(error) => complain(&error, "nobody knows how many jobs there are"),
    }
}

fn complain(error: &Error, what: &str) {
    tracing::warn!(target: "leaseward_queue", error = %error, "{what}");
}

/// Moves what has come due; how long until the next.
async fn promote(inner: &Inner) -> Result<Option<Duration>, Error> {
    loop {
        let promoted = inner.backend.promote(inner.sessions.shard(), PROMOTE_COUNT).await?;
        for queue in promoted.queues {
            inner.bells.work(queue);
        }
        if promoted.count < u64::from(PROMOTE_COUNT) {
            let pause =
                promoted.pause_us.map(|us| Duration::from_micros(us.max(0).cast_unsigned()));
            return Ok(pause);
        }
    }
}

/// Takes over what workers that vanished have left, and has it run again, or declares it dead.
async fn adopt(inner: Arc<Inner>) -> Result<(), Error> {
    let life = inner.sessions.life().await?;
    if !inner.sessions.may_rescue() {
        return Ok(());
    }
    loop {
        let adopted = {
            let _claiming = life.claiming.read().await;
            let last = life.last.load(Ordering::Acquire);
            let answer = inner.backend.adopt(life.id, last, ADOPT_COUNT).await;
            if answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Indeterminate) {
                strays::give_back_soon(&inner, &life);
            }
            let adopted = answer?;
            let mut tokens = life.tokens.lock();
            for one in &adopted {
                tokens.insert(one.lease.token);
                life.last.fetch_max(one.lease.token, Ordering::AcqRel);
            }
            adopted
        };
        if adopted.is_empty() {
            return Ok(());
        }
        let tokens: Vec<i64> = adopted.iter().map(|one| one.lease.token).collect();
        let settled = settle(&inner, &life, adopted).await;
        life.tokens.lock().retain(|token| !tokens.contains(token));
        // What could not be settled has nobody now.
        if !matches!(settled, Ok(true)) {
            strays::give_back_soon(&inner, &life);
        }
        settled?;
    }
}

/// Writes down what becomes of jobs that were taken over; whether all of it could be written. A late transaction of the
/// worker that vanished may hold a lease that is no longer its own until it has ended.
async fn settle(inner: &Inner, life: &Life, adopted: Vec<Adopted>) -> Result<bool, Error> {
    let mut settle = Settle { in_transactions: true, ..Settle::default() };
    for Adopted { lease, finished, who } in adopted {
        settle.ended.push(lease.token);
        let fence = Fence::new(u64::try_from(lease.token).unwrap_or(0));
        for job in lease.jobs {
            let is_finished = finished.contains(&job.id);
            let (kind, ending) = ending(inner, lease.token, fence, job, is_finished, &who);
            let queue = inner.name(ending.id.queue());
            let about = About { job: Some(ending.id), message: Some(&who), ..About::queue(&queue) };
            inner.events.tell(EventKind::Adopted, &about);
            if kind == EventKind::Dead {
                inner.events.tell(EventKind::Dead, &about);
            }
            settle.endings.push(ending);
        }
    }
    let turned =
        inner.backend.turn(backend::Turn { session: life.id, settle, claim: None }).await?;
    turned.freed.into_iter().for_each(|queue| inner.bells.work(queue));
    inner.bells.later();
    inner.bells.tell(Told::Later);
    Ok(turned.busy.is_empty())
}

fn ending(
    inner: &Inner,
    token: i64,
    fence: Fence,
    job: Leased,
    is_finished: bool,
    who: &str,
) -> (EventKind, Ending) {
    let policy = inner.policy(job.id.queue());
    let chance = Chance { now_us: wall_us(), random: rand::random() };
    let failure = Failure::new(format!("its worker {who} vanished"));
    let (unique, (kind, fate)) = match Body::decode(&job.body) {
        Ok(body) if is_finished => (body.unique, (EventKind::Done, Fate::Done)),
        Ok(body) => (body.unique.clone(), policy.failed(body, fence, &failure, true, chance)),
        Err(_) => (None, (EventKind::Dead, Fate::Dead { body: job.body })),
    };
    (kind, Ending { token, id: job.id, fate, key: job.key, unique, noted: is_finished })
}
