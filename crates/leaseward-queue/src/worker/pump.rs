//! The only one that talks to the database: writes down what ended, claims what can be used soon.

use std::{
    collections::HashMap,
    sync::{Arc, Weak, atomic::Ordering},
    time::{Duration, Instant},
};

use leaseward::{Error, ErrorKind, Fence};

use super::{
    Worker,
    buffer::{Item, Next, Outcome, Shared},
    pace::Pace,
};
use crate::{
    backend::{Claim, Ending, Fate, Found, Lease, Settle, Told, Turn, Turned},
    body::Body,
    events::{About, EventKind},
    queue::Inner,
    session::{Life, Stop},
    wake::Sleeper,
};

/// Jobs claimed by one statement at most.
const CLAIM_MAX: usize = 1_000;

/// Jobs written down by one statement at most.
const SETTLE_MAX: usize = 2_000;

/// Between attempts while the database is not reached: random up to this, doubled each time.
const RETRY_FIRST: Duration = Duration::from_millis(20);
const RETRY_LAST: Duration = Duration::from_secs(1);

/// How often a worker that ends with its queue looks whether others are done with theirs.
const DRAINED_EVERY: Duration = Duration::from_millis(100);

/// How often a worker that is to end tries to write down what it has, while the database is not reached.
const LAST_TRIES: u32 = 20;

/// Between two looks for what nobody tells of, if somebody told of something that others had by then, or that is not to be
/// had by a claim like any other.
const LOOK_SPACING: Duration = Duration::from_millis(200);

/// Before it is tried again to write down what a transaction of the user's is still at work on.
const BUSY_PAUSE: Duration = Duration::from_millis(10);

pub(super) struct Pump {
    pub(super) inner: Arc<Inner>,
    name: String,
    pub(super) number: i32,
    shared: Arc<Shared>,
    pub(super) life: Arc<Life>,
    /// Jobs of each lease that have not been written down.
    pub(super) leases: HashMap<(i64, i64), usize>,
    /// To be written down, again.
    held: Vec<Outcome>,
    /// Whether there may be something to claim.
    pub(super) hopeful: bool,
    /// Whether somebody said so since the last claim.
    is_hinted: bool,
    /// When to look for what nobody tells of, however busy it is.
    pub(super) look_at: Instant,
    pub(super) looked_at: Instant,
    /// The lease of a job that may have killed its worker, while it runs: one at a time, so that only those die with it
    /// that have never been suspected.
    pub(super) suspect: Option<(i64, i64)>,
    pace: Pace,
    prefetch: usize,
    pub(super) poll: Duration,
    grace: Duration,
    until_empty: bool,
    /// When the last of the jobs is due that were interrupted here: until then the queue is not empty.
    due_at: Instant,
    bound: Duration,
    failures: u32,
}

/// What to do next.
enum Step {
    Turn { claim: usize },
    Sleep,
    End,
}

impl Pump {
    pub(super) fn new(
        inner: Arc<Inner>,
        worker: &Worker,
        number: i32,
        life: Arc<Life>,
        shared: Arc<Shared>,
        until_empty: bool,
    ) -> Self {
        let sleeper: Weak<Shared> = Arc::downgrade(&shared);
        inner.bells.add(number, sleeper as Weak<dyn Sleeper>);
        Self {
            inner,
            name: worker.name.clone(),
            number,
            shared,
            life,
            leases: HashMap::new(),
            held: Vec::new(),
            hopeful: true,
            is_hinted: false,
            look_at: Instant::now(),
            looked_at: Instant::now(),
            suspect: None,
            pace: Pace::new(Instant::now()),
            prefetch: worker.prefetch,
            poll: worker.poll,
            grace: worker.grace,
            until_empty,
            due_at: Instant::now(),
            bound: RETRY_FIRST,
            failures: 0,
        }
    }

    pub(super) async fn run(mut self) {
        let mut abandon_at = None;
        loop {
            if self.shared.is_stopping() && abandon_at.is_none() {
                abandon_at = Some(Instant::now() + self.grace);
                self.give_back();
            }
            if abandon_at.is_some_and(|at| at <= Instant::now()) {
                self.shared.running.stop_all(Stop::Abandoned);
            }
            if self.look_at <= Instant::now() && abandon_at.is_none() {
                self.look().await;
            }
            if self.shared.take_hint() {
                (self.hopeful, self.is_hinted) = (true, true);
            }
            let mut outcomes = std::mem::take(&mut self.held);
            outcomes.extend(self.shared.take_outcomes());
            match self.step(!outcomes.is_empty()) {
                Step::Turn { claim } => self.turn(outcomes, claim).await,
                Step::End => return,
                Step::Sleep => {
                    if self.sleep(abandon_at).await {
                        return;
                    }
                }
            }
        }
    }

    /// How much more can be used soon: what is free now, and what will be by the time that an answer comes.
    fn room(&self) -> usize {
        let concurrency = self.shared.concurrency;
        let ahead = self.pace.ahead(Instant::now(), concurrency).min(self.prefetch);
        (concurrency + ahead).saturating_sub(self.shared.held())
    }

    fn step(&self, has_outcomes: bool) -> Step {
        if self.shared.is_stopping() {
            let is_over = self.shared.held() == 0 || self.failures > LAST_TRIES;
            return match (has_outcomes, is_over) {
                (true, _) if self.failures <= LAST_TRIES => Step::Turn { claim: 0 },
                (_, true) => Step::End,
                _ => Step::Sleep,
            };
        }
        let room = self.room().min(CLAIM_MAX);
        let claims = room > 0 && (self.hopeful || has_outcomes);
        if has_outcomes || claims {
            Step::Turn { claim: if claims { room } else { 0 } }
        } else {
            Step::Sleep
        }
    }

    /// Sleeps until something has changed; whether it is all over.
    async fn sleep(&mut self, abandon_at: Option<Instant>) -> bool {
        let is_hungry = abandon_at.is_none() && self.room() > 0;
        if is_hungry {
            if self.inner.sessions.about_to_sleep().await {
                self.hopeful = true;
                return false;
            }
            let is_idle = self.shared.held() == 0 && self.due_at <= Instant::now();
            if self.until_empty && is_idle && self.is_drained().await {
                return true;
            }
        }
        let pause = match abandon_at {
            Some(at) => at.saturating_duration_since(Instant::now()).max(RETRY_FIRST),
            None => {
                let until_look = self.look_at.saturating_duration_since(Instant::now());
                if self.until_empty { until_look.min(DRAINED_EVERY) } else { until_look }
            }
        };
        let asleep = is_hungry.then(|| self.inner.sessions.asleep());
        // Woken or not, it is looked at what there is.
        let _ = tokio::time::timeout(pause, self.shared.changed()).await;
        drop(asleep);
        false
    }

    async fn is_drained(&self) -> bool {
        match self.inner.backend.is_drained(self.number).await {
            Ok(is_drained) => is_drained,
            Err(error) => {
                tracing::debug!(target: "leaseward_queue", error = %error, "nobody knows whether the queue is empty");
                false
            }
        }
    }

    /// Notes that jobs which nobody has begun are given back.
    fn give_back(&self) {
        for item in self.shared.take_back() {
            self.inner.events.tell(
                EventKind::GivenBack,
                &About { job: Some(item.id), ..About::queue(&self.name) },
            );
            self.shared.note(Outcome {
                life: item.life,
                ending: Ending {
                    token: item.token,
                    id: item.id,
                    unique: item.body.unique.clone(),
                    fate: Fate::Back { body: item.body.encode() },
                    key: item.key,
                    noted: false,
                },
                in_transaction: false,
                ran: None,
                is_doubtful: false,
            });
        }
    }

    /// One statement.
    async fn turn(&mut self, mut outcomes: Vec<Outcome>, claim: usize) {
        if self.life.is_over() && claim > 0 {
            match self.inner.sessions.life().await {
                Ok(life) => {
                    // What is to be said of the last one is still to be written down.
                    self.leases.retain(|(of, _), _| *of == self.life.id);
                    self.life = life;
                    self.suspect = None;
                }
                Err(error) => {
                    self.held = outcomes;
                    return self.pause(&error).await;
                }
            }
        }
        // What a session that is over has to say comes first, and claims nothing.
        let of = outcomes.iter().find(|outcome| outcome.life.id != self.life.id);
        let life = of.map_or_else(|| self.life.clone(), |outcome| outcome.life.clone());
        let claim = if life.id == self.life.id { claim } else { 0 };
        let (mut now, mut rest) = (Vec::new(), Vec::new());
        for outcome in outcomes.drain(..) {
            let fits = now.len() < SETTLE_MAX && outcome.life.id == life.id;
            if fits { now.push(outcome) } else { rest.push(outcome) }
        }
        self.held = rest;
        let settle = self.settle(&now);
        let count = u32::try_from(claim).unwrap_or(u32::MAX);
        let claim = (claim > 0).then(|| Claim {
            queue: self.number,
            last: life.last.load(Ordering::Acquire),
            count,
            alone: false,
        });
        let begin = Instant::now();
        let answer = self.ask(&life, Turn { session: life.id, settle, claim }).await;
        match answer {
            Ok(turned) => {
                let runs = now.iter().filter_map(|outcome| outcome.ran);
                self.pace.turned(Instant::now(), begin.elapsed(), runs);
                let is_busy = !turned.busy.is_empty();
                self.turned(&life, now, turned, claim);
                if is_busy {
                    tokio::time::sleep(BUSY_PAUSE).await;
                }
            }
            Err(error) => {
                let is_doubtful = error.kind() == ErrorKind::Indeterminate;
                now.iter_mut().for_each(|outcome| outcome.is_doubtful |= is_doubtful);
                self.held.append(&mut now);
                self.pause(&error).await;
            }
        }
    }

    fn settle(&self, outcomes: &[Outcome]) -> Settle {
        let mut counts: HashMap<(i64, i64), usize> = HashMap::new();
        for outcome in outcomes {
            *counts.entry((outcome.life.id, outcome.ending.token)).or_default() += 1;
        }
        // A lease of which jobs were lost is never whole: those who take it over see to the rest.
        let is_whole = |(lease, count): (&(i64, i64), &usize)| {
            self.leases.get(lease).filter(|left| *left <= count).map(|_| lease.1)
        };
        Settle {
            ended: counts.iter().filter_map(is_whole).collect(),
            endings: outcomes.iter().map(|outcome| outcome.ending.clone()).collect(),
            in_transactions: outcomes.iter().any(|outcome| outcome.in_transaction),
        }
    }

    fn turned(
        &mut self,
        life: &Arc<Life>,
        outcomes: Vec<Outcome>,
        turned: Turned,
        claim: Option<Claim>,
    ) {
        (self.bound, self.failures) = (RETRY_FIRST, 0);
        for outcome in outcomes {
            let token = outcome.ending.token;
            if turned.busy.contains(&token) {
                self.held.push(outcome);
                continue;
            }
            self.written(life, token);
            // In doubt it is our own first attempt to write it down that it is stale by.
            if !turned.ours.contains(&token) && !outcome.is_doubtful {
                self.stale(&outcome);
            } else if let Fate::Interrupted { after_us, .. } = outcome.ending.fate {
                let pause = Duration::from_micros(after_us.max(0).cast_unsigned());
                self.due_at = self.due_at.max(Instant::now() + pause);
            }
        }
        for queue in turned.freed {
            self.inner.bells.ring(queue);
            self.inner.bells.tell(Told::Work(queue));
        }
        let Some(claim) = claim else { return };
        let taken = turned.lease.as_ref().map_or(0, |lease| lease.jobs.len());
        let is_short = taken < claim.count as usize;
        // It may have been said of a job that may have killed its worker.
        if std::mem::take(&mut self.is_hinted) && taken == 0 {
            self.look_at = self.look_at.min(self.looked_at + LOOK_SPACING);
        }
        self.hopeful = match turned.found {
            Found::All => !is_short,
            Found::Aside => true,
            Found::Paused | Found::Limited => false,
            Found::Over => {
                self.inner.sessions.over(life);
                true
            }
        };
        if let Some(lease) = turned.lease {
            self.claimed(life, lease, Next::Last);
        }
    }

    /// One job less is to be written down of a lease.
    fn written(&mut self, life: &Life, token: i64) {
        if let Some(left) = self.leases.get_mut(&(life.id, token)) {
            *left -= 1;
            if *left == 0 {
                self.leases.remove(&(life.id, token));
                life.tokens.lock().remove(&token);
                if self.suspect == Some((life.id, token)) {
                    self.suspect = None;
                    self.look_at = Instant::now();
                }
            }
        }
    }

    fn stale(&self, outcome: &Outcome) {
        self.shared.summary.lock().lost += 1;
        let fence = u64::try_from(outcome.ending.token).ok().map(Fence::new);
        let about = About { job: Some(outcome.ending.id), fence, ..About::queue(&self.name) };
        self.inner.events.tell(EventKind::Stale, &about);
    }

    pub(super) fn claimed(&mut self, life: &Arc<Life>, lease: Lease, place: Next) {
        life.last.fetch_max(lease.token, Ordering::AcqRel);
        self.leases.insert((life.id, lease.token), lease.jobs.len());
        let mut items = Vec::with_capacity(lease.jobs.len());
        for job in lease.jobs {
            match Body::decode(&job.body) {
                Ok(body) => items.push(Item {
                    id: job.id,
                    token: lease.token,
                    life: life.clone(),
                    key: job.key,
                    body,
                }),
                Err(error) => {
                    tracing::error!(target: "leaseward_queue", job = %job.id, error = %error, "a job that cannot be read is dead");
                    let fate = Fate::Dead { body: job.body };
                    let ending = Ending {
                        token: lease.token,
                        id: job.id,
                        fate,
                        key: job.key,
                        unique: None,
                        noted: false,
                    };
                    self.held.push(Outcome {
                        life: life.clone(),
                        ending,
                        in_transaction: false,
                        ran: None,
                        is_doubtful: false,
                    });
                }
            }
        }
        self.shared.put(items, place);
    }

    /// The database failed: not again at once.
    pub(super) async fn pause(&mut self, error: &Error) {
        self.failures += 1;
        // Once an outage: it is tried again every second.
        if self.failures == 1 {
            tracing::warn!(target: "leaseward_queue", queue = self.name, error = %error, "the queue's database failed; it is tried again");
        }
        tokio::time::sleep(self.bound.mul_f64(rand::random())).await;
        self.bound = (self.bound * 2).min(RETRY_LAST);
    }
}
