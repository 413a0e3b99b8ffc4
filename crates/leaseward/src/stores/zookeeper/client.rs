//! One client: its sessions, and the batches that go over them.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};

use super::{
    bounds::{Bounds, begin},
    config::Config,
    desk::{Desk, Desks},
    error,
    fences::Fences,
    keeper, layout,
    session::{Fault, Ground, Notice, Session},
    wire::{Body, Code, Kind, Request},
};
use crate::{
    Error, LostReason, Name,
    clock::Moment,
    lease::TTL_DEFAULT,
    store::{Answer, Batch, IfBusy, OpenContext, Operation, Push, PushSink},
};

/// A session that lasts at most this many times longer than needed is good enough.
const NEAR_ENOUGH: f64 = 1.5;

/// So many names are remembered to have a node: which costs a request less.
const KNOWN_MAX: usize = 10_000;

#[derive(Debug)]
pub(super) struct Client {
    pub(super) ground: Arc<Ground>,
    pub(super) fences: Fences,
    pub(super) desks: Desks,
    pub(super) bounds: Bounds,
    sink: Sink,
    sessions: Mutex<Vec<Arc<Session>>>,
    opening: tokio::sync::Mutex<()>,
    known: Mutex<HashSet<Name>>,
    is_closed: AtomicBool,
    /// Tells the keeper that something is due earlier than it thinks, which is at this moment.
    pub(super) sooner: Arc<Notify>,
    pub(super) keeper_due: AtomicU64,
}

#[derive(Default)]
struct Sink(OnceLock<PushSink>);

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sink")
    }
}

/// Ends a session that nobody came to use.
struct Unused<'a>(&'a Session);

impl Drop for Unused<'_> {
    fn drop(&mut self) {
        self.0.close(true);
    }
}

impl Client {
    pub(super) async fn open(config: Config, context: &OpenContext) -> Result<Arc<Self>, Error> {
        let (notices, told) = mpsc::unbounded_channel();
        let clock = context.clock.clone();
        let ground = Arc::new(Ground {
            config,
            clock,
            notices,
            sent: AtomicU64::new(0),
            reads: AtomicBool::new(false),
        });
        let bounds = Bounds::learn(&ground).await?;
        let this = Arc::new(Self {
            ground,
            fences: Fences::default(),
            desks: Desks::default(),
            bounds,
            sink: Sink::default(),
            sessions: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            known: Mutex::default(),
            is_closed: AtomicBool::new(false),
            sooner: Arc::default(),
            keeper_due: AtomicU64::new(u64::MAX),
        });
        this.session(TTL_DEFAULT.clamp(bounds.shortest_ttl(), bounds.longest_ttl())).await?;
        tokio::spawn(listen(Arc::downgrade(&this), told));
        keeper::start(&this);
        Ok(this)
    }

    pub(super) fn start(&self, sink: PushSink) {
        // Called once; a second sink would only be another way to the same engine.
        let _ = self.sink.0.set(sink);
    }

    pub(super) fn push(&self, push: Push) {
        if let Some(sink) = self.sink.0.get() {
            sink(push);
        }
    }

    pub(super) fn now(&self) -> Moment {
        self.ground.clock.now()
    }

    pub(super) fn at(&self) -> String {
        self.ground.config.location()
    }

    /// Where a name's line is.
    pub(super) fn folder(&self, name: &Name) -> String {
        format!("{}/{}", self.ground.config.root, layout::escape(name))
    }

    pub(super) fn failed(&self, fault: Fault, is_write: bool) -> Error {
        error::of_fault(fault, is_write, &self.at())
    }

    pub(super) fn is_enough(&self, session: &Session, ttl: Duration) -> bool {
        session.timeout >= self.bounds.needed(ttl)
    }

    /// A session that a lease of this length can live on.
    pub(super) async fn session(&self, ttl: Duration) -> Result<Arc<Session>, Error> {
        let needed = self.bounds.needed(ttl);
        if let Some(session) = self.fitting(needed) {
            return Ok(session);
        }
        let _turn = self.opening.lock().await;
        if self.is_closed() {
            return Err(error::closed());
        }
        if let Some(session) = self.fitting(needed) {
            return Ok(session);
        }
        let session = begin(&self.ground, needed, self.bounds.tick()).await?;
        // Also if whoever waits for it has gone.
        let unused = Unused(&session);
        self.fences.learn(&self.ground, &session).await?;
        std::mem::forget(unused);
        self.sessions.lock().push(session.clone());
        Ok(session)
    }

    fn fitting(&self, needed: Duration) -> Option<Arc<Session>> {
        let mut sessions = self.sessions.lock();
        sessions.retain(|session| !session.is_over());
        let most = needed.mul_f64(NEAR_ENOUGH);
        let fits = |session: &&Arc<Session>| (needed..=most).contains(&session.timeout);
        sessions.iter().filter(fits).min_by_key(|session| session.timeout).cloned()
    }

    /// Any session, for what leaves nothing behind.
    pub(super) async fn any_session(&self) -> Result<Arc<Session>, Error> {
        let first = {
            let mut sessions = self.sessions.lock();
            sessions.retain(|session| !session.is_over());
            sessions.first().cloned()
        };
        match first {
            Some(session) => Ok(session),
            None => {
                let (least, most) = (self.bounds.shortest_ttl(), self.bounds.longest_ttl());
                self.session(TTL_DEFAULT.clamp(least, most)).await
            }
        }
    }

    /// The session of ours that a node is owned by, if it is one of ours.
    pub(super) fn owner(&self, id: i64) -> Option<Arc<Session>> {
        self.sessions.lock().iter().find(|session| session.id == id).cloned()
    }

    pub(super) fn sessions(&self) -> Vec<Arc<Session>> {
        self.sessions.lock().clone()
    }

    pub(super) fn forget_session(&self, session: &Arc<Session>) {
        self.sessions.lock().retain(|other| !Arc::ptr_eq(other, session));
    }

    pub(super) fn is_known(&self, name: &Name) -> bool {
        self.known.lock().contains(name)
    }

    pub(super) fn note_known(&self, name: &Name, is_there: bool) {
        let mut known = self.known.lock();
        if !is_there {
            known.remove(name);
            return;
        }
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(name.clone());
    }

    /// The request that makes a name's node.
    pub(super) fn make_folder(&self, name: &Name) -> Request {
        Request::Create {
            path: self.folder(name),
            data: Vec::new(),
            acl: self.ground.config.acl(),
            kind: Kind::Container,
        }
    }

    pub(super) async fn submit(self: Arc<Self>, batch: Batch) -> Vec<Answer> {
        // Operations on one name in their order, those on others beside them.
        let mut names: HashMap<&Name, Vec<usize>> = HashMap::new();
        for (place, operation) in batch.iter().enumerate() {
            names.entry(operation.name()).or_default().push(place);
        }
        let (client, batch) = (&*self, &batch);
        let answered = names.into_values().map(|places| async move {
            let queues = |place: &usize| {
                matches!(&batch[*place], Operation::Ask(ask) if ask.if_busy == IfBusy::Queue)
            };
            let carry_out = |place| async move { (place, client.carry_out(&batch[place]).await) };
            let mut answers = Vec::with_capacity(places.len());
            // Those that queue begin together, in their order: one after the other, those of the next batch would overtake
            // them.
            for run in places.chunk_by(|a, b| queues(a) && queues(b)) {
                answers.extend(join_all(run.iter().copied().map(carry_out)).await);
            }
            answers
        });
        let mut answers: Vec<_> = join_all(answered).await.into_iter().flatten().collect();
        answers.sort_unstable_by_key(|(place, _)| *place);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    async fn carry_out(&self, operation: &Operation) -> Answer {
        if self.is_closed() {
            return Err(error::closed());
        }
        match operation {
            Operation::Ask(ask) => self.ask(ask).await,
            Operation::Renew(renew) => self.renew(renew).await,
            Operation::Release(release) => self.release(&release.name, &release.token).await,
        }
    }

    /// Has the keeper look by this moment at the latest.
    pub(super) fn keep_by(&self, at: Moment) {
        if at.as_nanos() < self.keeper_due.load(Ordering::Acquire) {
            self.keeper_due.store(at.as_nanos(), Ordering::Release);
            self.sooner.notify_one();
        }
    }

    /// Ends an operation at a desk.
    pub(super) fn settle(
        &self,
        desk: &Arc<Desk>,
        sits: tokio::sync::MutexGuard<'_, super::desk::Sits>,
    ) {
        self.desks.settle(desk, sits);
        self.keep_by(desk.due());
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Lets go. What is still held lasts as long as its session does without a word: leases are not released by this.
    pub(super) fn close(&self) {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return;
        }
        let desks = self.desks.all();
        let used: HashSet<i64> = desks.iter().filter_map(|desk| desk.session()).collect();
        for session in self.sessions.lock().drain(..) {
            session.close(!used.contains(&session.id));
        }
        self.sooner.notify_one();
    }

    /// Reads the children of a name's node; none if there is no such node.
    pub(super) async fn line_of(
        &self,
        session: &Session,
        name: &Name,
    ) -> Result<layout::Queue, Error> {
        let children = Request::Children { path: self.folder(name), watch: false };
        let answer = session.fly(vec![Request::Sync, children]).await.pop();
        self.queue_in(answer)
    }

    /// What a list of children says.
    pub(super) fn queue_in(
        &self,
        answer: Option<super::session::Answered>,
    ) -> Result<layout::Queue, Error> {
        match answer {
            Some(Ok(Body::Children(children))) => Ok(layout::Queue::read(&children)),
            Some(Err(Fault::Refused(Code::NoNode))) => Ok(layout::Queue::default()),
            Some(Err(fault)) => Err(self.failed(fault, false)),
            Some(Ok(_)) | None => Err(error::unexpected(&self.at())),
        }
    }
}

/// Takes what sessions tell to whoever it is for.
async fn listen(client: std::sync::Weak<Client>, mut told: mpsc::UnboundedReceiver<Notice>) {
    while let Some(notice) = told.recv().await {
        let Some(client) = client.upgrade() else { return };
        match notice {
            Notice::Event(session, event) => {
                for desk in client.desks.watching(session.id, &event.path) {
                    let (client, kind) = (client.clone(), event.kind);
                    tokio::spawn(async move { client.woken(desk, Some(kind)).await });
                }
            }
            Notice::Back(session) => {
                client.desks.forget_watches(session.id);
                for desk in client.desks.all() {
                    if desk.session() == Some(session.id) {
                        let client = client.clone();
                        tokio::spawn(async move { client.woken(desk, None).await });
                    }
                }
            }
            Notice::Over(session) => client.session_over(&session),
        }
    }
}

impl Client {
    /// A session has ended, and with it all that it owned.
    fn session_over(&self, session: &Arc<Session>) {
        self.forget_session(session);
        self.desks.forget_watches(session.id);
        if self.is_closed() {
            return;
        }
        // Those of other sessions go on.
        for desk in self.desks.all() {
            if desk.session() == Some(session.id) {
                let (name, token) = (desk.name.clone(), desk.token.clone());
                self.push(Push::Lost { name, token, reason: LostReason::SessionEnded });
            }
        }
    }
}
