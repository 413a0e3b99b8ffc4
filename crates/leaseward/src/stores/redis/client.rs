//! One client: sends batches to the node they belong to, hears pushes.

use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;
use redis::{PushInfo, PushKind, Value};
use tokio::runtime::Handle;

use super::{
    config::{Config, Topology},
    dial::Dialler,
    error::{self, Reaction},
    keys::{Keys, Slot},
    node::{self, Link, Node, Wiring},
    wire::{self, Answers, By, Call, Heard, IsForeign, SCRIPT, Sender},
};
use crate::{
    Error, Name, Token,
    store::{Answer, Batch, IfBusy, OpenContext, Operation, Push, PushSink, Reply},
};

/// How often a call is sent anew because the server did not know the script.
const RESENDS_MAX: usize = 2;

pub(super) struct Client {
    pub(super) config: Config,
    pub(super) keys: Keys,
    pub(super) sender: Sender,
    hash: String,
    wiring: Arc<Wiring>,
    node: Arc<Node>,
    sink: OnceLock<PushSink>,
    /// Who waits, and for what: woken when pushes may have been missed.
    waiting: Mutex<HashMap<Token, Name>>,
}

/// Operations of one slot, and where they stood in the batch.
struct Part {
    slot: Slot,
    places: Vec<usize>,
    call: Call,
}

impl Client {
    /// Connects.
    pub(super) async fn open(config: Config, context: &OpenContext) -> Result<Arc<Self>, Error> {
        let dialler = Dialler::new(&config, &context.who)?;
        let client = format!("{:016x}", rand::random::<u64>());
        let runtime = Handle::current();
        let this = Arc::new_cyclic(|me: &Weak<Self>| {
            let (hears, returns) = (me.clone(), me.clone());
            let wiring = Arc::new(Wiring {
                dialler,
                client: client.clone(),
                runtime,
                has_waited: AtomicBool::new(false),
                on_push: Box::new(move |node, info| {
                    if let Some(client) = hears.upgrade() {
                        client.hear(node, info);
                    }
                }),
                on_return: Box::new(move || {
                    if let Some(client) = returns.upgrade() {
                        client.wake_all();
                    }
                }),
            });
            let is_cluster = matches!(config.topology, Topology::Cluster { .. });
            let Topology::One(address) = config.topology.clone() else { unreachable!() };
            Self {
                keys: Keys::new(config.prefix.clone(), is_cluster),
                sender: Sender { client, handover: config.handover },
                hash: redis::Script::new(SCRIPT).get_hash().to_owned(),
                node: Node::at(wiring.clone(), address),
                wiring,
                sink: OnceLock::new(),
                waiting: Mutex::default(),
                config,
            }
        });
        this.node.open().await?;
        Ok(this)
    }

    pub(super) fn start(&self, sink: PushSink) {
        // Called once; a second sink would only be another way to the same engine.
        let _ = self.sink.set(sink);
    }

    pub(super) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    pub(super) async fn submit(self: Arc<Self>, batch: Batch) -> Vec<Answer> {
        let mut parts = self.split(&batch);
        if let [part] = parts.as_mut_slice() {
            // The usual case: everything in one call, nothing to put back into order.
            let outcome = self.call(part, &batch).await;
            return self.read(&part.places, &batch, outcome);
        }
        unreachable!("one slot")
    }

    /// Puts the operations of each slot into one call.
    fn split(&self, batch: &Batch) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::with_capacity(1);
        for (place, operation) in batch.iter().enumerate() {
            let key = self.keys.lock_key(operation.name());
            let slot = self.keys.slot(&key);
            let at = parts.iter().position(|part| part.slot == slot).unwrap_or_else(|| {
                parts.push(Part { slot, places: Vec::new(), call: Call::new(&self.keys, slot) });
                parts.len() - 1
            });
            let part = &mut parts[at];
            part.places.push(place);
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

    /// Carries out one call of the script.
    async fn call(&self, part: &Part, batch: &Batch) -> Result<Value, Error> {
        let link = self.node.link()?;
        let waits = part.places.iter().any(|place| is_wait(&batch[*place]));
        let mut by = By::Hash(&self.hash);
        for _ in 0..RESENDS_MAX {
            let command = part.call.command(by, &self.sender);
            let sent = if waits && !link.is_subscribed.load(Ordering::Acquire) {
                self.subscribe_and_send(&link, command).await
            } else {
                link.command(&command).await
            };
            let failure = match sent {
                Ok(value) => return Ok(value),
                Err(failure) => failure,
            };
            let why = error::of_call(&failure, &link.address.to_string());
            match error::code_of(&failure).map(error::Code::reaction) {
                Some(Reaction::SendScript) => by = By::Text,
                Some(Reaction::Tell | Reaction::Redirect) => return Err(why),
                // No answer at all, or one that says that this is not the node it was.
                Some(Reaction::Reconnect) | None => {
                    self.node.broken(&link, why.duplicate());
                    return Err(why);
                }
            }
        }
        Err(error::of_operation("NOSCRIPT"))
    }

    /// The first one who waits subscribes, in the same piece: the subscription stands before the script runs, so no push
    /// can be missed, and it costs no round trip.
    async fn subscribe_and_send(
        &self,
        link: &Link,
        command: redis::Cmd,
    ) -> Result<Value, redis::RedisError> {
        self.wiring.has_waited.store(true, Ordering::Release);
        let mut pipeline = redis::pipe();
        pipeline.add_command(node::subscribe(&self.sender.client));
        pipeline.add_command(command);
        let mut answers = link.pipeline(&pipeline).await?;
        let last = answers.pop().unwrap_or_default();
        if !matches!(answers[0], Value::ServerError(_)) {
            link.is_subscribed.store(true, Ordering::Release);
        }
        match last {
            Value::ServerError(error) => Err(error.into()),
            value => Ok(value),
        }
    }

    /// Carries out a call that is no batch.
    pub(super) async fn ask(&self, call: &Call) -> Result<Value, Error> {
        let link = self.node.link()?;
        let mut answer = link.command(&call.command(By::Hash(&self.hash), &self.sender)).await;
        if answer.as_ref().is_err_and(|error| error.code() == Some("NOSCRIPT")) {
            answer = link.command(&call.command(By::Text, &self.sender)).await;
        }
        answer.map_err(|error| error::of_call(&error, &link.address.to_string()))
    }

    /// The same, and what time it is at the server, in microseconds.
    pub(super) async fn ask_with_time(&self, call: &Call) -> Result<(Value, u64), Error> {
        let link = self.node.link()?;
        let time = link.command(&redis::cmd("TIME")).await;
        let time = time.map_err(|error| error::of_call(&error, &link.address.to_string()))?;
        let now_us = match time {
            Value::Array(parts) => match parts.as_slice() {
                [Value::BulkString(seconds), Value::BulkString(micros)] => {
                    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<u64>().ok();
                    number(seconds).unwrap_or(0) * 1_000_000 + number(micros).unwrap_or(0)
                }
                _ => 0,
            },
            _ => 0,
        };
        Ok((self.ask(call).await?, now_us))
    }

    pub(super) async fn ping(&self) -> Result<(), Error> {
        let link = self.node.link()?;
        let pong = link.command(&redis::cmd("PING")).await;
        pong.map(drop).map_err(|error| error::of_call(&error, &link.address.to_string()))
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
    fn hear(&self, _node: &Arc<Node>, info: PushInfo) {
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
        self.node.close();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.close();
    }
}

fn is_wait(operation: &Operation) -> bool {
    matches!(operation, Operation::Ask(ask) if ask.if_busy == IfBusy::Queue)
}
