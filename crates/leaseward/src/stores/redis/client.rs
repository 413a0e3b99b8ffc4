//! One client: sends batches to the node they belong to, hears pushes.

use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
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
    wire::{self, Answers, By, Call, Heard, IsForeign, SCRIPT},
};
use crate::{
    Error, Name, Token,
    store::{Answer, Batch, IfBusy, OpenContext, Operation, Push, PushSink, Reply},
};

/// How often a call is sent anew because a server did not know the script or sent us elsewhere: more than a slot on the
/// move needs, fewer than a loop.
const RESENDS_MAX: usize = 5;

/// How long and how often a call is tried while its slot is on the move: with a few keys that takes milliseconds, and
/// other slots' calls may wait for this one.
const ASK_AGAIN_FOR: Duration = Duration::from_millis(100);
const ASK_AGAIN_EVERY: Duration = Duration::from_millis(5);

pub(super) struct Client {
    pub(super) config: Config,
    pub(super) keys: Keys,
    hash: String,
    wiring: Arc<Wiring>,
    /// Set once it is open.
    servers: OnceLock<Servers>,
    sink: OnceLock<PushSink>,
    /// Who waits, and for what: woken when pushes may have been missed.
    waiting: Mutex<HashMap<Token, Name>>,
}

/// Operations of one slot, and where they stood in the batch.
struct Part {
    slot: Slot,
    places: Vec<usize>,
    call: Call,
    /// Whether any of them may have to wait for a push.
    waits: bool,
    /// It asks for names of several slots, which the server refuses: no other operation is to suffer from that.
    is_alone: bool,
}

impl Client {
    /// Connects.
    pub(super) async fn open(config: Config, context: &OpenContext) -> Result<Arc<Self>, Error> {
        let dialler = Dialler::new(&config, &context.who)?;
        let is_cluster = matches!(config.topology, Topology::Cluster { .. });
        let this = Arc::new_cyclic(|me| Self {
            keys: Keys::new(config.prefix.clone(), is_cluster),
            hash: redis::Script::new(SCRIPT).get_hash().to_owned(),
            wiring: wire_up(me, dialler, config.handover),
            servers: OnceLock::new(),
            sink: OnceLock::new(),
            waiting: Mutex::default(),
            config,
        });
        let servers = Servers::open(&this.config, this.wiring.clone()).await?;
        assert!(this.servers.set(servers).is_ok(), "BUG: opened twice");
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
        let parts = self.split(&batch);
        if let [part] = parts.as_slice() {
            // The usual case: everything in one call, nothing to put back into order.
            let outcome = self.call(part.slot, &part.call, part.waits).await;
            return self.read(part, &batch, outcome);
        }
        let outcomes =
            join_all(parts.iter().map(|part| self.call(part.slot, &part.call, part.waits))).await;
        let mut answers: Vec<Option<Answer>> = batch.iter().map(|_| None).collect();
        for (part, outcome) in parts.iter().zip(outcomes) {
            let read = self.read(part, &batch, outcome);
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
            let is_alone =
                matches!(operation, Operation::Ask(ask) if !self.is_one_slot(&ask.names));
            let fits = |part: &Part| part.slot == slot && !part.is_alone && !is_alone;
            let at = parts.iter().position(fits).unwrap_or_else(|| {
                let call = Call::new(&self.keys, slot);
                parts.push(Part { slot, places: Vec::new(), call, waits: false, is_alone });
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

    /// Whether names share a slot: those that do can be taken together.
    pub(super) fn is_one_slot(&self, names: &[Name]) -> bool {
        let mut slots = names.iter().map(|name| self.keys.slot(&self.keys.lock_key(name)));
        let first = slots.next();
        slots.all(|slot| Some(slot) == first)
    }

    /// Carries out one call of the script at the node that has the slot.
    pub(super) async fn call(&self, slot: Slot, call: &Call, waits: bool) -> Result<Value, Error> {
        let mut node = self.servers().node_of(slot)?;
        let (mut by, mut asking) = (By::Hash(&self.hash), false);
        let (mut sends, begun) = (0, Instant::now());
        loop {
            let link = node.link()?;
            let command = call.command(by, &link.sender);
            let failure = match self.send(&link, command, waits, asking).await {
                Ok(value) => return Ok(value),
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
                Some(Reaction::AskAgain) if begun.elapsed() < ASK_AGAIN_FOR => {
                    tokio::time::sleep(ASK_AGAIN_EVERY).await;
                    (node, asking, sends) = (self.servers().node_of(slot)?, false, 0);
                }
                Some(Reaction::Tell | Reaction::AskAgain) => return Err(why),
                // No answer at all, or one that says that this is not the node it was.
                Some(Reaction::Reconnect) | None => {
                    node.broken(&link, why.duplicate());
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
    ) -> Result<Value, RedisError> {
        let subscribes = waits && !link.is_subscribed.load(Ordering::Acquire);
        if !subscribes && !asking {
            return link.command(&command).await;
        }
        let mut pipeline = redis::pipe();
        if subscribes {
            self.wiring.has_waited.store(true, Ordering::Release);
            pipeline.add_command(node::subscribe(&link.sender));
        }
        if asking {
            pipeline.add_command(redis::cmd("ASKING"));
        }
        pipeline.add_command(command);
        let mut answers = link.pipeline(&pipeline).await?;
        let last = answers.pop().unwrap_or_default();
        if subscribes && !matches!(answers[0], Value::ServerError(_)) {
            link.is_subscribed.store(true, Ordering::Release);
        }
        match last {
            Value::ServerError(error) => Err(error.into()),
            value => Ok(value),
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

    /// The answers to the operations of a part, in their order.
    fn read(&self, part: &Part, batch: &Batch, outcome: Result<Value, Error>) -> Vec<Answer> {
        let places = &part.places;
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
        if let Some(why) = answers.misplaced() {
            self.leave(part.slot, why);
        }
        read
    }

    /// Gives up a node that says it is not the one it was. A script runs on a replica too, until it writes.
    fn leave(&self, slot: Slot, why: Error) {
        if let Ok(node) = self.servers().node_of(slot)
            && let Ok(link) = node.link()
        {
            node.broken(&link, why);
        }
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
            Some(Heard::Push(push)) => {
                if let Push::Granted { token, .. } = &push {
                    self.waiting.lock().remove(token);
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

    fn wake_after(&self, name: Name, delay: Duration) {
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
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.close();
    }
}

/// What nodes need of their client.
fn wire_up(me: &Weak<Client>, dialler: Dialler, handover: &'static str) -> Arc<Wiring> {
    let (hears, loses, returns) = (me.clone(), me.clone(), me.clone());
    Arc::new(Wiring {
        dialler,
        handover,
        runtime: Handle::current(),
        has_waited: AtomicBool::new(false),
        on_push: Box::new(move |info| {
            if let Some(client) = hears.upgrade() {
                client.hear(info);
            }
        }),
        on_loss: Box::new(move || {
            if let Some(servers) = loses.upgrade().as_ref().and_then(|client| client.servers.get())
            {
                servers.lost();
            }
        }),
        on_return: Box::new(move || {
            if let Some(client) = returns.upgrade() {
                client.wake_all();
            }
        }),
    })
}

fn is_wait(operation: &Operation) -> bool {
    matches!(operation, Operation::Ask(ask) if ask.if_busy == IfBusy::Queue)
}
