//! One client: its session, and the batches that go over it, one at a time.

use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{runtime::Handle, sync::Notify};

use super::{
    super::{dial::Dialler, error},
    config::Settings,
    inspect::Sighting,
    keeper,
    key::Slot,
    plan::{self, Intent, Plan},
    session::{Failed, Identity, Over, Session},
    statement::Step,
};
use crate::{
    Error, ErrorKind, LostReason, Name,
    clock::{Clock, Moment},
    store::{Answer, Batch, OpenContext, Operation, Push, PushSink, Reply, Standing},
};

/// Between attempts to connect: random up to this, doubled each time.
const RETRY_FIRST: Duration = Duration::from_millis(20);
const RETRY_LAST: Duration = Duration::from_secs(1);

/// Beginning a session takes two connections and a dozen statements: so many times the patience with one answer.
const OPENING: u32 = 4;

/// How long a waiter is remembered after it was told that the name is not free: longer than the engine's pauses.
const WAITER: Duration = Duration::from_secs(2);

pub(super) struct Client {
    pub(super) settings: Settings,
    pub(super) dialler: Dialler,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) runtime: Handle,
    sink: OnceLock<PushSink>,
    /// Whoever has it may use the session and change its table.
    pub(super) turn: tokio::sync::Mutex<Turn>,
    current: Mutex<Option<Arc<Session>>>,
    is_closed: AtomicBool,
    /// Tells the keeper that something is due earlier than it thinks, which is at this moment.
    pub(super) sooner: Arc<Notify>,
    pub(super) keeper_due: AtomicU64,
    /// Who was told that a name is held by this client itself, and when.
    waiting: Mutex<HashMap<Slot, (Name, Moment)>>,
}

/// What only one task at a time knows.
#[derive(Default)]
pub(super) struct Turn {
    /// The last session, if it is not known to be over on the other side.
    before: Option<Identity>,
    failures: u32,
    /// Why there is no session, and when to try again.
    why: Option<(Error, Moment)>,
    pub(super) sightings: HashMap<Slot, Sighting>,
}

impl Client {
    pub(super) async fn open(
        settings: Settings,
        context: &OpenContext,
    ) -> Result<Arc<Self>, Error> {
        let dialler = Dialler::new(&settings.config, &context.who)?;
        let this = Arc::new(Self {
            settings,
            dialler,
            clock: context.clock.clone(),
            runtime: Handle::current(),
            sink: OnceLock::new(),
            turn: tokio::sync::Mutex::default(),
            current: Mutex::default(),
            is_closed: AtomicBool::new(false),
            sooner: Arc::default(),
            keeper_due: AtomicU64::new(u64::MAX),
            waiting: Mutex::default(),
        });
        this.session(&mut *this.turn.lock().await).await?;
        keeper::start(&this);
        Ok(this)
    }

    pub(super) fn start(&self, sink: PushSink) {
        // Called once; a second sink would only be another way to the same engine.
        let _ = self.sink.set(sink);
    }

    pub(super) fn push(&self, push: Push) {
        if let Some(sink) = self.sink.get() {
            sink(push);
        }
    }

    /// The session, if there is one.
    pub(super) fn current(&self) -> Option<Arc<Session>> {
        self.current.lock().clone().filter(|session| !session.is_over())
    }

    /// The session, made if there is none.
    pub(super) async fn session(self: &Arc<Self>, turn: &mut Turn) -> Result<Arc<Session>, Error> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(error::closed());
        }
        if let Some(session) = self.current() {
            return Ok(session);
        }
        if let Some((why, until)) = &turn.why
            && self.clock.now() < *until
        {
            return Err(why.duplicate());
        }
        match self.open_session(turn.before).await {
            Ok(session) => {
                turn.before = Some(session.identity);
                (turn.failures, turn.why) = (0, None);
                *self.current.lock() = Some(session.clone());
                if session.begin() { Ok(session) } else { Err(error::broke(&session.at)) }
            }
            Err(why) => {
                let cap = RETRY_FIRST.saturating_mul(1 << turn.failures.min(10)).min(RETRY_LAST);
                turn.failures += 1;
                let until = self.clock.now() + cap.mul_f64(rand::random());
                turn.why = Some((why.duplicate(), until));
                Err(why)
            }
        }
    }

    /// Nobody else has a turn meanwhile, so it may not take for ever.
    async fn open_session(
        self: &Arc<Self>,
        before: Option<Identity>,
    ) -> Result<Arc<Session>, Error> {
        let patience = self.settings.config.timeout * OPENING;
        match tokio::time::timeout(patience, Session::open(self, before)).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let message = format!("{} does not answer", self.settings.location());
                Err(Error::new(ErrorKind::Unavailable, message)
                    .hint("is it overloaded or stopped?"))
            }
        }
    }

    /// A session has ended: everything held over it is lost.
    pub(super) fn session_over(&self, over: &Arc<Over>) {
        self.current.lock().take_if(|session| session.is_of(over));
        if over.take_used() && !self.is_closed() {
            tracing::warn!(at = %self.settings.location(), "the session with postgresql ended");
            self.push(Push::SessionLost);
        }
    }

    pub(super) async fn submit(self: Arc<Self>, batch: Batch) -> Vec<Answer> {
        let mut answers: Vec<Option<Answer>> = batch.iter().map(|_| None).collect();
        let mut freed = Vec::new();
        let mut turn = self.turn.lock().await;
        let mut places: Vec<usize> = (0..batch.len()).collect();
        while !places.is_empty() {
            let (later, free) = self.round(&mut turn, &batch, &places, &mut answers).await;
            (places, freed) = (later, [freed, free].concat());
        }
        drop(turn);
        self.wake(&freed);
        let missing = || Err(super::super::answers::unexpected());
        answers.into_iter().map(|answer| answer.unwrap_or_else(missing)).collect()
    }

    /// Carries out what one statement can; answers with what is left, and with what came free.
    async fn round(
        self: &Arc<Self>,
        turn: &mut Turn,
        batch: &[Operation],
        places: &[usize],
        answers: &mut [Option<Answer>],
    ) -> (Vec<usize>, Vec<Slot>) {
        let session = match self.session(turn).await {
            Ok(session) => session,
            Err(error) => {
                for place in places {
                    answers[*place] = Some(without_session(&batch[*place], &error));
                }
                return (Vec::new(), Vec::new());
            }
        };
        let now = self.clock.now();
        let mut plan = {
            let mut table = session.table.lock();
            Plan::make(&mut table, &self.settings, batch, places, now, answers)
        };
        self.remember(&plan.blocked, now);
        if !plan.steps.is_empty() {
            match self.send(&session, &plan, now).await {
                Ok(said) => self.take(turn, &session, batch, &plan, &said, now, answers).await,
                Err(failed) => self.fail(&session, batch, &plan, failed, now, answers).await,
            }
            self.keep_by(session.table.lock().next_end().min(session.used() + session.idle() / 3));
        }
        (std::mem::take(&mut plan.later), plan.freed)
    }

    async fn send(&self, session: &Session, plan: &Plan, now: Moment) -> Result<Vec<i64>, Failed> {
        session.last_for(plan.ttl, now).await?;
        if plan.intents.iter().any(|intent| matches!(intent, Intent::Ask { .. })) {
            session.raise(&self.settings.config.schema, now).await?;
        }
        session.run(&plan.steps, now).await
    }

    /// Enters what the server said, and answers.
    #[allow(clippy::too_many_arguments)] // all of one round
    async fn take(
        self: &Arc<Self>,
        turn: &mut Turn,
        session: &Arc<Session>,
        batch: &[Operation],
        plan: &Plan,
        said: &[i64],
        now: Moment,
        answers: &mut [Option<Answer>],
    ) {
        let mut busy = Vec::new();
        {
            let mut table = session.table.lock();
            for intent in &plan.intents {
                match (intent, &batch[intent.place()]) {
                    (Intent::Ask { place, slot, how }, Operation::Ask(ask)) => {
                        match plan::enter(&mut table, ask, (*slot, how), said, now) {
                            Some(reply) => answers[*place] = Some(Ok(reply)),
                            None => busy.push((*place, *slot)),
                        }
                    }
                    (Intent::Renew { place, slot }, Operation::Renew(renew)) => {
                        let end = now + renew.ttl;
                        let is_there = table.lengthen(*slot, &renew.token, renew.ttl, end);
                        answers[*place] = Some(Ok(if is_there {
                            plan::renewed(renew.ttl)
                        } else {
                            Reply::NotYours(LostReason::NotOurs)
                        }));
                    }
                    (intent, _) => answers[intent.place()] = Some(Ok(Reply::Released)),
                }
            }
        }
        if !busy.is_empty() {
            let slots: Vec<Slot> = busy.iter().map(|(_, slot)| *slot).collect();
            self.sight(turn, session, &slots, now).await;
            for (place, slot) in busy {
                let holder = turn.sightings.get(&slot).and_then(|seen| seen.holder.clone());
                let standing = Standing { holder, free_in: None, ahead: 0 };
                answers[place] = Some(Ok(Reply::Busy(standing)));
            }
        }
    }

    /// The statement failed. Session locks outlive a statement that fails half way: what it may have taken is given
    /// back, what it should have given back too.
    async fn fail(
        &self,
        session: &Session,
        batch: &[Operation],
        plan: &Plan,
        failed: Failed,
        now: Moment,
        answers: &mut [Option<Answer>],
    ) {
        let is_clean = match &failed {
            Failed::Over(_) => false,
            Failed::Refused(_) => {
                let undo: Vec<Step> = {
                    let table = session.table.lock();
                    let touched = plan.touched().filter(|(slot, _)| !table.is_held(*slot));
                    touched.map(|(slot, mode)| Step::Unlock(slot, mode)).collect()
                };
                let is_clean = undo.is_empty() || session.run(&undo, now).await.is_ok();
                // Where nothing is held, a session that begins anew makes whatever is missing.
                if !is_clean || session.table.lock().len() == 0 {
                    session.end();
                }
                is_clean
            }
        };
        let error = Error::from(failed);
        for intent in &plan.intents {
            let answer = match &batch[intent.place()] {
                Operation::Release(_) if is_clean => Ok(Reply::Released),
                _ => Err(error.duplicate()),
            };
            answers[intent.place()] = Some(answer);
        }
    }

    /// Notes who was told that this client itself is in the way.
    fn remember(&self, blocked: &[(Slot, Name)], now: Moment) {
        if !blocked.is_empty() {
            let mut waiting = self.waiting.lock();
            waiting.retain(|_, (_, told)| now.since(*told) < WAITER);
            waiting.extend(blocked.iter().map(|(slot, name)| (*slot, (name.clone(), now))));
        }
    }

    /// Has whoever waits for what came free here ask again.
    pub(super) fn wake(&self, freed: &[Slot]) {
        if freed.is_empty() {
            return;
        }
        let names: Vec<Name> = {
            let mut waiting = self.waiting.lock();
            freed.iter().filter_map(|slot| waiting.remove(slot)).map(|(name, _)| name).collect()
        };
        for name in names {
            self.push(Push::Woken { name });
        }
    }

    /// Has the keeper look by this moment at the latest.
    pub(super) fn keep_by(&self, at: Moment) {
        if at.as_nanos() < self.keeper_due.load(Ordering::Acquire) {
            self.keeper_due.store(at.as_nanos(), Ordering::Release);
            self.sooner.notify_one();
        }
    }

    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        if let Some(session) = self.current.lock().take() {
            session.end();
        }
        self.sooner.notify_one();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }
}

impl Intent {
    fn place(&self) -> usize {
        match self {
            Self::Ask { place, .. } | Self::Renew { place, .. } | Self::Release { place } => *place,
        }
    }
}

/// Without a session nothing is held.
fn without_session(operation: &Operation, why: &Error) -> Answer {
    match operation {
        Operation::Ask(_) => Err(why.duplicate()),
        Operation::Renew(_) | Operation::Release(_) => {
            Ok(Reply::NotYours(LostReason::SessionEnded))
        }
    }
}
