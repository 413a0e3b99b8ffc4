//! One session: what it owns ends with it, and it outlives its connections.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use super::{
    config::Config,
    error, layout,
    line::{Ended, Line, Order, Resume},
    proof::Proof,
    round::{Landed, Means},
    wire::{Body, Code, Event, Request},
};
use crate::{
    Error,
    clock::{Clock, Moment},
};

/// The session is heard of so many times in its timeout.
pub(super) const BEATS: u32 = 8;

/// Between rounds over all servers that were not reached: random up to this, doubled each time.
const RETRY_FIRST: Duration = Duration::from_millis(20);
const RETRY_LAST: Duration = Duration::from_millis(500);

/// Why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Refused(Code),
    /// The connection broke while it was under way.
    Cut,
    /// There was no connection.
    NotSent,
    /// The session is over, and with it all that it owned.
    Over,
}

pub(super) type Answered = Result<Body, Fault>;

/// Requests that go together.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) requests: Vec<Request>,
    pub(super) tell: oneshot::Sender<Vec<Answered>>,
    pub(super) asked: Moment,
}

/// What a session tells its client.
#[derive(Debug)]
pub(super) enum Notice {
    Event(Arc<Session>, Event),
    /// It has another connection: watches of the one before are gone.
    Back(Arc<Session>),
    Over(Arc<Session>),
}

/// What all sessions of a client share.
#[derive(Debug)]
pub(super) struct Ground {
    pub(super) config: Config,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) notices: mpsc::UnboundedSender<Notice>,
    /// Requests sent so far, by all sessions.
    pub(super) sent: AtomicU64,
    /// Whether the servers read several at once.
    pub(super) reads: AtomicBool,
}

pub(super) struct Session {
    orders: mpsc::UnboundedSender<Order>,
    pub(super) clock: Arc<dyn Clock>,
    /// As the server wants it.
    pub(super) timeout: Duration,
    tick: Duration,
    /// How often it is heard of.
    pub(super) beat: Duration,
    /// How long an answer is waited for before another server is tried.
    pub(super) patience: Duration,
    pub(super) id: i64,
    password: Vec<u8>,
    zxid: AtomicI64,
    proof: Mutex<Proof>,
    is_over: AtomicBool,
    /// See [`Means::has_witness`].
    has_witness: Mutex<Option<bool>>,
    events: mpsc::UnboundedSender<Event>,
    ground: Arc<Ground>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl Session {
    /// Begins a session of about this timeout: the server has its bounds.
    pub(super) async fn open(
        ground: &Arc<Ground>,
        timeout: Duration,
        tick: Duration,
    ) -> Result<Arc<Self>, Error> {
        let line = connect(ground, timeout, &Resume::default()).await?;
        let given = Duration::from_millis(u64::try_from(line.connected.timeout_ms).unwrap_or(0));
        let (orders, queue) = mpsc::unbounded_channel();
        let (events, told) = mpsc::unbounded_channel();
        let proof = Proof::connected(given, tick, line.since);
        let this = Arc::new(Self {
            orders,
            clock: ground.clock.clone(),
            timeout: given,
            tick,
            beat: given / BEATS,
            patience: ground.config.timeout.min(given / 3),
            id: line.connected.session,
            password: line.connected.password.clone(),
            zxid: AtomicI64::new(0),
            proof: Mutex::new(proof),
            is_over: AtomicBool::new(false),
            has_witness: Mutex::new(Some(false)),
            events,
            ground: ground.clone(),
        });
        tokio::spawn(pass_on(this.clone(), told));
        tokio::spawn(drive(this.clone(), line, queue));
        Ok(this)
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// The newest transaction that was heard of.
    pub(super) fn zxid(&self) -> i64 {
        self.zxid.load(Ordering::Relaxed)
    }

    /// Sends requests together; an answer for each, in their order.
    pub(super) async fn fly(&self, requests: Vec<Request>) -> Vec<Answered> {
        let count = requests.len();
        if count == 0 {
            return Vec::new();
        }
        let (tell, told) = oneshot::channel();
        let flight = Flight { requests, tell, asked: self.clock.now() };
        let fault = if self.orders.send(Order::Send(flight)).is_ok() {
            match told.await {
                Ok(answers) => return answers,
                Err(_) => Fault::Over,
            }
        } else {
            Fault::Over
        };
        (0..count).map(|_| Err(fault)).collect()
    }

    /// Sends one request.
    pub(super) async fn ask(&self, request: Request) -> Answered {
        self.fly(vec![request]).await.pop().unwrap_or(Err(Fault::Over))
    }

    /// From which moment a lease over this session may be counted.
    pub(super) fn counts_from(&self, ttl: Duration) -> Moment {
        self.proof.lock().counts_from(ttl)
    }

    /// Ends it, with all that it owns; or only stops to speak for it, so that what it owns lasts until it times out.
    pub(super) fn close(&self, session: bool) {
        let _ = self.orders.send(Order::Close { session });
    }

    pub(super) fn sending(&self, now: Moment, requests: usize) {
        let requests = u64::try_from(requests).unwrap_or(0);
        self.ground.sent.fetch_add(requests, Ordering::Relaxed);
        self.proof.lock().sending(now);
    }

    pub(super) fn answered(&self, sent: Moment, is_led: bool, zxid: i64) {
        self.zxid.fetch_max(zxid, Ordering::Relaxed);
        if is_led {
            self.proof.lock().answered(sent);
        }
    }

    /// What may be put together, by what is known.
    pub(super) fn means(&self) -> Means {
        let config = &self.ground.config;
        Means {
            session: self.id,
            witness: format!("{}/{}", config.root, layout::witness(self.id)),
            acl: config.acl(),
            has_witness: *self.has_witness.lock(),
            reads: self.ground.reads.load(Ordering::Relaxed),
        }
    }

    /// Takes in what a round has shown.
    pub(super) fn learn(&self, landed: &Landed) {
        if let Some(has_witness) = landed.has_witness {
            *self.has_witness.lock() = has_witness;
        }
        if landed.knows_no_reads {
            self.ground.reads.store(false, Ordering::Relaxed);
        }
    }

    pub(super) fn told(&self, event: Event) {
        let _ = self.events.send(event);
    }
}

async fn pass_on(session: Arc<Session>, mut told: mpsc::UnboundedReceiver<Event>) {
    let (ground, weak) = (session.ground.clone(), Arc::downgrade(&session));
    drop(session);
    while let Some(event) = told.recv().await {
        let Some(session) = weak.upgrade() else { return };
        if ground.notices.send(Notice::Event(session, event)).is_err() {
            return;
        }
    }
}

/// Keeps a session alive over one connection after the other.
async fn drive(session: Arc<Session>, mut line: Line, mut orders: mpsc::UnboundedReceiver<Order>) {
    let ground = session.ground.clone();
    let mut early = Vec::new();
    loop {
        let ended = line.carry(&session, &mut orders, &mut early).await;
        match ended {
            Ended::Closed => break,
            Ended::Over => {
                fail(early, Fault::Over);
                return over(&session, orders);
            }
            Ended::Cut => {
                tracing::debug!(at = %ground.config.location(), "the connection was lost");
            }
        }
        match reconnect(&session, &mut orders, &mut early).await {
            Again::Connected(next) => line = *next,
            Again::Over => {
                fail(early, Fault::Over);
                return over(&session, orders);
            }
            Again::Closed => break,
        }
        *session.proof.lock() = Proof::connected(session.timeout, session.tick, line.since);
        let _ = ground.notices.send(Notice::Back(session.clone()));
    }
    fail(early, Fault::Over);
    session.is_over.store(true, Ordering::Release);
}

fn over(session: &Arc<Session>, mut orders: mpsc::UnboundedReceiver<Order>) {
    session.is_over.store(true, Ordering::Release);
    orders.close();
    while let Ok(order) = orders.try_recv() {
        if let Order::Send(flight) = order {
            fail([flight], Fault::Over);
        }
    }
    tracing::warn!(at = %session.ground.config.location(), "the session with zookeeper ended");
    let _ = session.ground.notices.send(Notice::Over(session.clone()));
}

pub(super) fn fail(flights: impl IntoIterator<Item = Flight>, fault: Fault) {
    for flight in flights {
        let _ = flight.tell.send(flight.requests.iter().map(|_| Err(fault)).collect());
    }
}

enum Again {
    Connected(Box<Line>),
    Over,
    Closed,
}

/// Takes the session up at another server. Who asks meanwhile waits, but not for ever.
async fn reconnect(
    session: &Arc<Session>,
    orders: &mut mpsc::UnboundedReceiver<Order>,
    early: &mut Vec<Flight>,
) -> Again {
    let ground = session.ground.clone();
    let resume =
        Resume { session: session.id, password: session.password.clone(), zxid: session.zxid() };
    let timeout = session.timeout;
    let mut dialling = Box::pin(async move { persist(&ground, timeout, &resume).await });
    loop {
        let now = session.clock.now();
        let patience = session.ground.config.timeout;
        fail(early.extract_if(.., |flight| now >= flight.asked + patience), Fault::NotSent);
        tokio::select! {
            line = &mut dialling => return match line {
                Some(line) => Again::Connected(Box::new(line)),
                None => Again::Over,
            },
            order = orders.recv() => match order {
                Some(Order::Send(flight)) => early.push(flight),
                // The server ends it in its time.
                Some(Order::Close { .. }) | None => return Again::Closed,
            },
            () = tokio::time::sleep(RETRY_FIRST) => {}
        }
    }
}

/// Tries all servers until one takes the session up; `None` if it is over.
async fn persist(ground: &Ground, timeout: Duration, resume: &Resume) -> Option<Line> {
    let mut failures = 0u32;
    loop {
        match connect(ground, timeout, resume).await {
            Ok(line) => return (line.connected.session != 0).then_some(line),
            Err(why) => tracing::debug!(%why, "no server was reached"),
        }
        let cap = RETRY_FIRST.saturating_mul(1 << failures.min(10)).min(RETRY_LAST);
        failures += 1;
        tokio::time::sleep(cap.mul_f64(rand::random())).await;
    }
}

/// Tries all servers once, in random order.
pub(super) async fn connect(
    ground: &Ground,
    timeout: Duration,
    resume: &Resume,
) -> Result<Line, Error> {
    let config = &ground.config;
    let first = rand::random_range(0..config.hosts.len());
    let mut why = error::unreachable(&config.location(), "it has no server");
    for at in 0..config.hosts.len() {
        let host = &config.hosts[(first + at) % config.hosts.len()];
        match Line::open(config, host, timeout, resume, &*ground.clock).await {
            Ok(line) => return Ok(line),
            Err(error) => why = error,
        }
    }
    Err(why)
}
