//! One client: sends batches to the node they belong to, hears pushes.

use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::future::join_all;
use parking_lot::Mutex;
use redis::{PushInfo, PushKind, RedisError, Value};
use tokio::runtime::Handle;

use super::{
    config::{Config, Topology},
    dial::Dialler,
    error::{self, Reaction},
    keys::{Keys, Slot},
    node::{self, Link, Wiring},
    servers::Servers,
    strong::{Line, Strong},
    wire::{self, Answers, By, Call, Heard, IsForeign, SCRIPT, Sender},
};
use crate::{
    Error, Name, Token,
    store::{Answer, Batch, Evidence, IfBusy, OpenContext, Operation, Push, PushSink, Reply},
};

/// How often a call is sent anew because a server did not know the script or sent us elsewhere: more than a slot on the
/// move needs, fewer than a loop.
const RESENDS_MAX: usize = 5;

pub(super) struct Client {
    pub(super) config: Config,
    pub(super) keys: Keys,
    pub(super) sender: Sender,
    hash: String,
    wiring: Arc<Wiring>,
    /// Set once it is open.
    servers: OnceLock<Servers>,
    sink: OnceLock<PushSink>,
    /// Where leases count only once replicas have them.
    strong: Option<Strong>,
    /// Who waits, and for what: woken when pushes may have been missed.
    waiting: Mutex<HashMap<Token, Name>>,
}

/// Operations of one slot, and where they stood in the batch.
pub(super) struct Part {
    slot: Slot,
    pub(super) places: Vec<usize>,
    call: Call,
    /// Whether any of them may have to wait for a push.
    waits: bool,
}

/// Over which connection a call goes.
#[derive(Clone, Copy)]
pub(super) enum Via<'a> {
    /// The one that carries everything.
    Shared,
    /// One of strong mode, with or without waiting for replicas in the same piece.
    Line { strong: &'a Strong, line: Line, waits: bool },
}

impl Via<'_> {
    /// For several calls at once, whose waiting is done together, after them.
    fn without_waiting(self) -> Self {
        match self {
            Self::Shared => self,
            Self::Line { strong, line, .. } => Self::Line { strong, line, waits: false },
        }
    }
}

/// What came of a call.
pub(super) struct Called {
    value: Value,
    pub(super) link: Arc<Link>,
    /// What was answered to waiting for replicas, if that was in the same piece.
    pub(super) acknowledged: Option<Value>,
}

impl Client {
    /// Connects.
    pub(super) async fn open(config: Config, context: &OpenContext) -> Result<Arc<Self>, Error> {
        let dialler = Dialler::new(&config, &context.who)?;
        let client = format!("{:016x}", rand::random::<u64>());
        let is_cluster = matches!(config.topology, Topology::Cluster { .. });
        let strong = config.strong.map(|rule| (rule, dialler.for_longer_answers(rule.timeout)));
        let this = Arc::new_cyclic(|me| Self {
            keys: Keys::new(config.prefix.clone(), is_cluster),
            sender: Sender { client: client.clone(), handover: config.handover },
            strong: strong.map(|(rule, dialler)| {
                Strong::new(rule, wire_up_lines(me, dialler, client.clone()), is_cluster)
            }),
            hash: redis::Script::new(SCRIPT).get_hash().to_owned(),
            wiring: wire_up(me, dialler, client),
            servers: OnceLock::new(),
            sink: OnceLock::new(),
            waiting: Mutex::default(),
            config,
        });
        let servers = Servers::open(&this.config, this.wiring.clone()).await?;
        assert!(this.servers.set(servers).is_ok(), "BUG: opened twice");
        if let Some(strong) = &this.strong {
            strong.open(this.servers()).await?;
        }
        Ok(this)
    }

    pub(super) fn servers(&self) -> &Servers {
        self.servers.get().expect("BUG: used before it was open")
    }

    pub(super) fn start(&self, sink: PushSink) {
        // Called once; a second sink would only be another way to the same engine.
        let _ = self.sink.set(sink);
    }

    pub(super) async fn submit(self: Arc<Self>, batch: Batch) -> Vec<Answer> {
        if let Some(strong) = &self.strong
            && let Some(line) = Line::of(&batch)
        {
            return self.submit_strongly(strong, &batch, line).await;
        }
        let (parts, outcomes) = self.carry_out(&batch, Via::Shared).await;
        self.read_all(&batch, &parts, outcomes)
    }

    /// Sends a batch, a call for each slot.
    pub(super) async fn carry_out(
        &self,
        batch: &Batch,
        via: Via<'_>,
    ) -> (Vec<Part>, Vec<Result<Called, Error>>) {
        let parts = self.split(batch);
        let outcomes = match parts.as_slice() {
            // The usual case.
            [part] => vec![self.call_via(part.slot, &part.call, part.waits, via).await],
            parts => {
                let via = via.without_waiting();
                let calls =
                    parts.iter().map(|part| self.call_via(part.slot, &part.call, part.waits, via));
                join_all(calls).await
            }
        };
        (parts, outcomes)
    }

    /// The answers of a batch, in the order of its operations.
    pub(super) fn read_all(
        &self,
        batch: &Batch,
        parts: &[Part],
        outcomes: Vec<Result<Called, Error>>,
    ) -> Vec<Answer> {
        let mut read = parts.iter().zip(outcomes).map(|(part, outcome)| {
            (part, self.read(&part.places, batch, outcome.map(|called| called.value)))
        });
        if parts.len() == 1 {
            // Nothing to put back into order.
            return read.next().map(|(_, answers)| answers).unwrap_or_default();
        }
        let mut answers: Vec<Option<Answer>> = batch.iter().map(|_| None).collect();
        for (part, read) in read {
            for (place, answer) in part.places.iter().zip(read) {
                answers[*place] = Some(answer);
            }
        }
        answers
            .into_iter()
            .map(|answer| answer.expect("BUG: every operation is in a part"))
            .collect()
    }

    /// Puts the operations of each slot into one call.
    fn split(&self, batch: &Batch) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::with_capacity(1);
        for (place, operation) in batch.iter().enumerate() {
            let key = self.keys.lock_key(operation.name());
            let slot = self.keys.slot(&key);
            let at = parts.iter().position(|part| part.slot == slot).unwrap_or_else(|| {
                let call = Call::new(&self.keys, slot);
                parts.push(Part { slot, places: Vec::new(), call, waits: false });
                parts.len() - 1
            });
            let part = &mut parts[at];
            part.places.push(place);
            part.waits |= is_wait(operation);
            match operation {
                Operation::Ask(ask) if ask.names.len() > 1 => {
                    part.call
                        .push(operation, ask.names.iter().map(|name| self.keys.lock_key(name)));
                }
                _ => part.call.push(operation, [key]),
            }
        }
        parts
    }

    /// Carries out one call of the script at the node that has the slot.
    pub(super) async fn call(&self, slot: Slot, call: &Call) -> Result<Value, Error> {
        self.call_via(slot, call, false, Via::Shared).await.map(|called| called.value)
    }

    async fn call_via(
        &self,
        slot: Slot,
        call: &Call,
        waits: bool,
        via: Via<'_>,
    ) -> Result<Called, Error> {
        let mut node = self.servers().node_of(slot)?;
        let (mut by, mut asking) = (By::Hash(&self.hash), false);
        let mut sends = 0;
        loop {
            let shared = node.link()?;
            let (at, link) = match via {
                Via::Shared => (node.clone(), shared),
                Via::Line { strong, line, .. } => {
                    if waits {
                        self.subscribe(&shared).await;
                    }
                    strong.connection(&shared, line).await?
                }
            };
            let command = call.command(by, &self.sender);
            let failure = match self.send(&link, command, waits, asking, via).await {
                Ok((value, acknowledged)) => return Ok(Called { value, link, acknowledged }),
                Err(failure) => failure,
            };
            sends += 1;
            let why = error::of_call(&failure, &link.address.to_string());
            match error::code_of(&failure).map(error::Code::reaction) {
                _ if sends > RESENDS_MAX => return Err(why),
                Some(Reaction::SendScript) => by = By::Text,
                Some(Reaction::Redirect) => match self.servers().redirect(&failure).await {
                    Some(redirect) => (node, asking) = (redirect.node, redirect.asking),
                    None => return Err(why),
                },
                Some(Reaction::Tell) => return Err(why),
                // No answer at all, or one that says that this is not the node it was.
                Some(Reaction::Reconnect) | None => {
                    at.broken(&link, why.duplicate());
                    return Err(why);
                }
            }
        }
    }

    /// Sends a call. The first one who waits subscribes, in the same piece: the subscription stands before the script
    /// runs, so no push can be missed, and it costs no round trip.
    async fn send(
        &self,
        link: &Link,
        command: redis::Cmd,
        waits: bool,
        asking: bool,
        via: Via<'_>,
    ) -> Result<(Value, Option<Value>), RedisError> {
        let (subscribes, wait) = match via {
            Via::Shared => (waits && !link.is_subscribed.load(Ordering::Acquire), None),
            Via::Line { strong, waits, .. } => (false, waits.then(|| strong.wait())),
        };
        if !subscribes && !asking && wait.is_none() {
            return link.command(&command).await.map(|value| (value, None));
        }
        let mut pipeline = redis::pipe();
        if subscribes {
            self.wiring.has_waited.store(true, Ordering::Release);
            pipeline.add_command(node::subscribe(&self.sender.client));
        }
        if asking {
            pipeline.add_command(redis::cmd("ASKING"));
        }
        pipeline.add_command(command);
        let waits = wait.map(|wait| pipeline.add_command(wait)).is_some();
        let mut answers = link.pipeline(&pipeline).await?;
        let acknowledged = if waits { answers.pop() } else { None };
        let last = answers.pop().unwrap_or_default();
        if subscribes && !matches!(answers[0], Value::ServerError(_)) {
            link.is_subscribed.store(true, Ordering::Release);
        }
        match last {
            Value::ServerError(error) => Err(error.into()),
            value => Ok((value, acknowledged)),
        }
    }

    /// Subscribes on the shared connection, before a call that may have to wait goes out over another.
    async fn subscribe(&self, shared: &Link) {
        if shared.is_subscribed.load(Ordering::Acquire) {
            return;
        }
        self.wiring.has_waited.store(true, Ordering::Release);
        // Refused or lost: whoever waits asks again now and then.
        if shared.command(&node::subscribe(&self.sender.client)).await.is_ok() {
            shared.is_subscribed.store(true, Ordering::Release);
        }
    }

    pub(super) async fn ping(&self) -> Result<(), Error> {
        for node in self.servers().primaries() {
            let link = node.link()?;
            let pong = link.command(&redis::cmd("PING")).await;
            pong.map_err(|error| error::of_call(&error, &link.address.to_string()))?;
        }
        Ok(())
    }

    /// The answers to the operations at these places, in their order.
    fn read(&self, places: &[usize], batch: &Batch, outcome: Result<Value, Error>) -> Vec<Answer> {
        let answers = outcome.and_then(Answers::new);
        let mut answers = match answers {
            Ok(answers) => answers,
            Err(error) => return places.iter().map(|_| Err(error.duplicate())).collect(),
        };
        let mut read = Vec::with_capacity(places.len());
        for place in places {
            let operation = &batch[*place];
            let (answer, IsForeign(_)) = answers.next_for(operation);
            self.note(operation, &answer);
            read.push(answer);
        }
        read
    }

    /// Keeps the books of who waits.
    fn note(&self, operation: &Operation, answer: &Answer) {
        match (operation, answer) {
            (Operation::Ask(ask), Ok(Reply::Queued(_))) => {
                self.waiting.lock().insert(ask.token.clone(), ask.names[0].clone());
            }
            (Operation::Ask(ask), Ok(_)) if ask.if_busy == IfBusy::Queue => {
                self.waiting.lock().remove(&ask.token);
            }
            (Operation::Release(release), _) => {
                let mut waiting = self.waiting.lock();
                if !waiting.is_empty() {
                    waiting.remove(&release.token);
                }
            }
            _ => {}
        }
    }

    /// Something came that nobody asked for.
    fn hear(&self, info: PushInfo) {
        let (PushKind::Message, [_, Value::BulkString(message)]) = (info.kind, &*info.data) else {
            return;
        };
        match wire::heard(message, &self.keys) {
            Some(Heard::Push(mut push)) => {
                if let Push::Granted { token, grant, .. } = &mut push {
                    if self.strong.is_some() {
                        // Replicas may not have it yet: the token asks again, and that is waited for.
                        grant.evidence = Evidence::Unproven;
                    } else {
                        self.waiting.lock().remove(token);
                    }
                }
                self.push(push);
            }
            Some(Heard::Wake(name, delay)) => self.wake_after(name, delay),
            None => {}
        }
    }

    pub(super) fn push(&self, push: Push) {
        if let Some(sink) = self.sink.get() {
            sink(push);
        }
    }

    fn wake_after(&self, name: Name, delay: std::time::Duration) {
        let Some(sink) = self.sink.get().cloned() else { return };
        if delay.is_zero() {
            return sink(Push::Woken { name });
        }
        self.wiring.runtime.spawn(async move {
            tokio::time::sleep(delay).await;
            sink(Push::Woken { name });
        });
    }

    /// Pushes may have been missed: everybody who waits asks again.
    fn wake_all(&self) {
        let mut names: Vec<_> = self.waiting.lock().values().cloned().collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            self.push(Push::Woken { name });
        }
    }

    pub(super) fn close(&self) {
        if let Some(servers) = self.servers.get() {
            servers.close();
        }
        if let Some(strong) = &self.strong {
            strong.close();
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.close();
    }
}

/// What nodes need of their client.
fn wire_up(me: &Weak<Client>, dialler: Dialler, client: String) -> Arc<Wiring> {
    let (hears, returns) = (me.clone(), me.clone());
    Arc::new(Wiring {
        dialler,
        client,
        runtime: Handle::current(),
        has_waited: AtomicBool::new(false),
        on_push: Box::new(move |info| {
            if let Some(client) = hears.upgrade() {
                client.hear(info);
            }
        }),
        on_loss: learn_anew(me),
        on_return: Box::new(move || {
            if let Some(client) = returns.upgrade() {
                client.wake_all();
            }
        }),
    })
}

/// What the connections of strong mode need: they hear nothing, and whoever waits misses nothing when one is lost.
fn wire_up_lines(me: &Weak<Client>, dialler: Dialler, client: String) -> Arc<Wiring> {
    Arc::new(Wiring {
        dialler,
        client,
        runtime: Handle::current(),
        has_waited: AtomicBool::new(false),
        on_push: Box::new(|_| {}),
        on_loss: learn_anew(me),
        on_return: Box::new(|| {}),
    })
}

/// After a loss: in a cluster another node may have its slots by now.
fn learn_anew(me: &Weak<Client>) -> Box<dyn Fn() + Send + Sync> {
    let me = me.clone();
    Box::new(move || {
        if let Some(servers) = me.upgrade().as_ref().and_then(|client| client.servers.get()) {
            servers.lost();
        }
    })
}

fn is_wait(operation: &Operation) -> bool {
    matches!(operation, Operation::Ask(ask) if ask.if_busy == IfBusy::Queue)
}
