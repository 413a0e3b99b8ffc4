//! One server, kept connected.
//!
//! The common client's connection manager parks a command during an outage and carries it out seconds later, which for
//! a lock is the worst of answers. Here an outage is an error at once, while a task of its own connects again, with full
//! jitter. What was under way when a connection broke is *unknown*; so that it cannot still happen once its owner has
//! given up, the next connection to the same server ends the old one there before anything else is sent.

use std::{
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use redis::{Cmd, Pipeline, PushInfo, PushKind, RedisError, Value};
use tokio::{
    runtime::Handle,
    sync::{Mutex as AsyncMutex, Notify},
};

use super::{
    config::Address,
    connection::Connection,
    dial::Dialler,
    error, keys,
    probe::{self, Probe},
    run::Run,
    script::Script,
    wire::Sender,
};
use crate::{Error, ErrorKind, clock::BoxFuture};

/// Waits between attempts to connect are random, up to a bound that doubles from the first of these to the second.
const RETRY_FIRST: Duration = Duration::from_millis(20);
const RETRY_LAST: Duration = Duration::from_secs(2);

/// What nodes share with the client they belong to.
pub(in crate::stores) struct Wiring {
    pub(in crate::stores) dialler: Arc<Dialler>,
    /// What every connection loads, so that it can be called by its hash.
    pub(in crate::stores) scripts: Vec<&'static Script>,
    /// `auto`, `always` or `never`.
    pub(in crate::stores) handover: &'static str,
    pub(in crate::stores) runtime: Handle,
    /// Somebody has waited: every new connection subscribes from the start.
    pub(in crate::stores) has_waited: AtomicBool,
    pub(in crate::stores) on_push: Box<dyn Fn(PushInfo) + Send + Sync>,
    /// A connection was lost.
    pub(in crate::stores) on_loss: Box<dyn Fn() + Send + Sync>,
    /// A connection was made: pushes may have been missed before.
    pub(in crate::stores) on_return: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Wiring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wiring").field("handover", &self.handover).finish_non_exhaustive()
    }
}

/// Where a node is to be found.
pub(in crate::stores) type Find =
    Box<dyn Fn() -> BoxFuture<'static, Result<Address, Error>> + Send + Sync>;

/// One server.
pub(in crate::stores) struct Node {
    wiring: Arc<Wiring>,
    sender: Sender,
    find: Find,
    state: Mutex<State>,
    /// Held by the one who connects. Whoever comes meanwhile finds what has come of it.
    connecting: AsyncMutex<()>,
    generations: AtomicU64,
    /// Connect at once instead of after the wait.
    hurry: Arc<Notify>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("state", &*self.state.lock()).finish_non_exhaustive()
    }
}

#[derive(Debug)]
enum State {
    Up(Arc<Link>),
    Down(Down),
    Closed,
}

/// Not connected.
#[derive(Debug)]
struct Down {
    why: Error,
    before: Option<Lost>,
    /// A task sees to it that it becomes so.
    is_minded: bool,
}

/// A connection that was.
#[derive(Clone, Debug)]
struct Lost {
    link: Arc<Link>,
    since: Instant,
}

/// A connection that works, as far as is known.
#[derive(Debug)]
pub(in crate::stores) struct Link {
    pub(in crate::stores) connection: Connection,
    pub(in crate::stores) address: Address,
    pub(in crate::stores) sender: Sender,
    pub(in crate::stores) probe: Probe,
    pub(in crate::stores) run: Run,
    generation: u64,
    /// The server's number of this connection.
    id: i64,
    /// Whether the node's channel is subscribed.
    pub(in crate::stores) is_subscribed: AtomicBool,
    /// Whether keys can be watched.
    pub(in crate::stores) is_tracking: AtomicBool,
}

impl Link {
    /// Sends one command and waits for its answer.
    pub(in crate::stores) async fn command(&self, command: &Cmd) -> Result<Value, RedisError> {
        self.connection.command(command).await
    }

    /// Sends commands in one piece and waits for all their answers; a refused one is an answer too.
    pub(in crate::stores) async fn pipeline(
        &self,
        pipeline: &Pipeline,
    ) -> Result<Vec<Value>, RedisError> {
        self.connection.pipeline(pipeline).await
    }
}

impl Node {
    /// A node that has yet to connect.
    pub(in crate::stores) fn new(wiring: Arc<Wiring>, find: Find) -> Arc<Self> {
        let state = State::Down(Down { why: not_connected(), before: None, is_minded: false });
        let client = Arc::from(format!("{:016x}", rand::random::<u64>()));
        let sender = Sender { client, handover: wiring.handover };
        Arc::new(Self {
            wiring,
            sender,
            find,
            state: Mutex::new(state),
            connecting: AsyncMutex::default(),
            generations: AtomicU64::new(0),
            hurry: Arc::default(),
        })
    }

    /// A node at an address that never changes.
    pub(in crate::stores) fn at(wiring: Arc<Wiring>, address: Address) -> Arc<Self> {
        Self::new(wiring, Box::new(move || Box::pin(std::future::ready(Ok(address.clone())))))
    }

    /// Connects, unless it is connected.
    pub(in crate::stores) async fn open(self: &Arc<Self>) -> Result<Arc<Link>, Error> {
        let _alone = self.connecting.lock().await;
        let before = match &*self.state.lock() {
            State::Up(link) => return Ok(link.clone()),
            State::Down(down) => down.before.clone(),
            State::Closed => return Err(closed()),
        };
        let link = self.connect(before).await?;
        self.take(Ok(link));
        self.link()
    }

    /// The connection, if there is one now.
    pub(in crate::stores) fn link(&self) -> Result<Arc<Link>, Error> {
        match &*self.state.lock() {
            State::Up(link) => Ok(link.clone()),
            State::Down(down) => Err(down.why.duplicate()),
            State::Closed => Err(closed()),
        }
    }

    /// Whether it is connected, or was so lately.
    pub(in crate::stores) fn was_there_within(&self, span: Duration) -> bool {
        match &*self.state.lock() {
            State::Up(_) => true,
            State::Down(down) => {
                down.before.as_ref().is_some_and(|lost| lost.since.elapsed() <= span)
            }
            State::Closed => false,
        }
    }

    /// Gives a connection up and gets a new one, unless that was done already.
    pub(in crate::stores) fn broken(self: &Arc<Self>, link: &Link, why: Error) {
        self.give_up(Some(link.generation), why);
    }

    /// Gives the present connection up, whichever it is: this node is to be found elsewhere.
    pub(in crate::stores) fn moved(self: &Arc<Self>, why: Error) {
        self.give_up(None, why);
        self.hurry.notify_one();
    }

    fn give_up(self: &Arc<Self>, generation: Option<u64>, why: Error) {
        let mut state = self.state.lock();
        let State::Up(link) = &*state else { return };
        if generation.is_some_and(|generation| generation != link.generation) {
            return;
        }
        let (lost, told) = (link.clone(), why.duplicate());
        // What is in doubt is what was under way. What is asked from here on is not sent.
        let known = match why.kind() {
            ErrorKind::Indeterminate => {
                Error::new(ErrorKind::Unavailable, why.message().to_owned())
                    .hint("nothing was sent")
            }
            _ => why,
        };
        let before = Some(Lost { link: lost.clone(), since: Instant::now() });
        *state = State::Down(Down { why: known, before, is_minded: false });
        drop(state);
        // Not under the lock: whoever listens to events is somebody else's code.
        tracing::warn!(address = %lost.address, error = %told, "lost the connection to redis");
        self.reconnect();
        (self.wiring.on_loss)();
    }

    /// Starts connecting in the background, unless that is done already.
    pub(in crate::stores) fn reconnect(self: &Arc<Self>) {
        if let State::Down(down) = &mut *self.state.lock()
            && !std::mem::replace(&mut down.is_minded, true)
        {
            self.wiring.runtime.spawn(keep_connecting(Arc::downgrade(self)));
        }
    }

    pub(in crate::stores) fn close(&self) {
        *self.state.lock() = State::Closed;
        self.hurry.notify_one();
    }

    /// Takes what an attempt came to; answers whether no more are needed.
    fn take(self: &Arc<Self>, outcome: Result<Arc<Link>, Error>) -> bool {
        let mut state = self.state.lock();
        match (&mut *state, outcome) {
            (State::Down(..), Ok(link)) => {
                *state = State::Up(link.clone());
                drop(state);
                tracing::debug!(address = %link.address, "connected to redis");
                (self.wiring.on_return)();
                if link.connection.is_ended() {
                    // Before this node had it, so nobody was told.
                    self.broken(&link, broken());
                }
                true
            }
            (State::Down(down), Err(error)) => {
                down.why = error;
                false
            }
            (State::Up(_) | State::Closed, _) => true,
        }
    }

    /// One attempt. With the connection before, so that what it still carries is made an end of.
    async fn connect(self: &Arc<Self>, before: Option<Lost>) -> Result<Arc<Link>, Error> {
        let since = before.as_ref().map(|lost| lost.since);
        self.attempt(before).await.map_err(|error| match since {
            Some(since) => error.was_reached(Some(since.elapsed())),
            None => error,
        })
    }

    async fn attempt(self: &Arc<Self>, before: Option<Lost>) -> Result<Arc<Link>, Error> {
        let address = (self.find)().await?;
        let generation = self.generations.fetch_add(1, Ordering::Relaxed) + 1;
        let this = Arc::downgrade(self);
        let on_push = Box::new(move |info: PushInfo| hear(&this, generation, info));
        let subscribes = self.wiring.has_waited.load(Ordering::Acquire);
        let setup = self.setup(subscribes);
        let (connection, answers) =
            self.wiring.dialler.dial_and_send(&address, on_push, setup).await?;
        let sender = self.sender.clone();
        let scripts = self.wiring.scripts.len();
        let mut link =
            read_setup(connection, address, sender, generation, subscribes, scripts, &answers)?;
        if let Some(before) = before {
            link.run = Run::found(&link.probe, Some((&before.link.probe, &before.link.run)));
            end_old(&link, &before.link).await;
        }
        Ok(Arc::new(link))
    }

    /// Whether no more attempts are needed after this one.
    async fn try_again(self: &Arc<Self>) -> bool {
        let _alone = self.connecting.lock().await;
        let before = match &*self.state.lock() {
            State::Down(down) => down.before.clone(),
            State::Up(_) | State::Closed => return true,
        };
        let outcome = self.connect(before).await;
        self.take(outcome)
    }

    /// Everything a connection needs, in one round trip.
    fn setup(&self, subscribes: bool) -> Pipeline {
        let mut setup = redis::pipe();
        setup.cmd("CLIENT").arg("ID");
        setup.cmd("CLIENT").arg("SETNAME").arg(&self.wiring.dialler.name);
        for script in &self.wiring.scripts {
            setup.cmd("SCRIPT").arg("LOAD").arg(&script.text);
        }
        for question in probe::questions() {
            setup.add_command(question);
        }
        if subscribes {
            setup.add_command(subscribe(&self.sender));
        }
        setup
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.hurry.notify_one();
    }
}

/// The command that makes a connection hear the pushes that are for it.
pub(in crate::stores) fn subscribe(sender: &Sender) -> Cmd {
    let mut subscribe = redis::cmd("SUBSCRIBE");
    subscribe.arg(keys::channel(&sender.client));
    subscribe
}

/// How many answers of the setup come before those of the scripts, which come before those of the probe.
const BEFORE_SCRIPTS: usize = 2;

fn read_setup(
    connection: Connection,
    address: Address,
    sender: Sender,
    generation: u64,
    subscribes: bool,
    scripts: usize,
    answers: &[Value],
) -> Result<Link, Error> {
    let id = match &answers[0] {
        Value::Int(id) => *id,
        _ => -1,
    };
    let end = answers.len() - usize::from(subscribes);
    let (loaded, asked) = answers[BEFORE_SCRIPTS..end].split_at(scripts);
    let probe = Probe::read(asked);
    // What it is comes first: a Sentinel does not know scripts either, but that is not what is wrong.
    probe.check(&address)?;
    for answer in loaded {
        if let Value::ServerError(refusal) = answer {
            let error: RedisError = refusal.clone().into();
            return Err(error::of_connecting(&error, error::Peer::Redis(&address)));
        }
    }
    let is_subscribed = subscribes && !matches!(answers[end], Value::ServerError(_));
    let run = Run::found(&probe, None);
    Ok(Link {
        connection,
        address,
        sender,
        probe,
        run,
        generation,
        id,
        is_subscribed: AtomicBool::new(is_subscribed),
        is_tracking: AtomicBool::new(false),
    })
}

/// Ends the connection before this one at the server: requests that are still on their way in it are never carried out.
/// Only on the very same run of the server, because numbers begin anew with each.
async fn end_old(link: &Link, before: &Link) {
    if before.id > 0 && link.probe.is_same_run(&before.probe) {
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL").arg("ID").arg(before.id);
        // Refused or already gone: leases and places of that connection then end by their own time.
        let _ = link.command(&kill).await;
    }
}

fn hear(node: &Weak<Node>, generation: u64, info: PushInfo) {
    let Some(node) = node.upgrade() else { return };
    if info.kind == PushKind::Disconnection {
        node.give_up(Some(generation), broken());
    } else {
        (node.wiring.on_push)(info);
    }
}

async fn keep_connecting(node: Weak<Node>) {
    let mut bound = RETRY_FIRST;
    loop {
        let Some(this) = node.upgrade() else { return };
        if this.try_again().await {
            return;
        }
        let wait = bound.mul_f64(rand::random());
        bound = (bound * 2).min(RETRY_LAST);
        let hurry = this.hurry.clone();
        // Nothing keeps the node alive meanwhile: a client that was dropped stops connecting.
        drop(this);
        let _ = tokio::time::timeout(wait, hurry.notified()).await;
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::ShutDown, "this store is closed")
}

fn broken() -> Error {
    Error::new(ErrorKind::Unavailable, "the connection to redis broke")
        .hint("it is being connected again")
}

fn not_connected() -> Error {
    Error::new(ErrorKind::Unavailable, "redis is not connected yet")
}
