//! From a batch to calls of the script: one for each slot, sent to the node that has it.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use redis::{RedisError, Value};

use super::{
    client::{Client, is_wait},
    error::{self, Reaction},
    keys::Slot,
    node::{self, Link},
    strong::{Line, Strong},
    wire::{By, Call},
};
use crate::{
    Error, Name,
    store::{Batch, Operation},
};

/// How often a call is sent anew because a server did not know the script or sent us elsewhere: more than a slot on the
/// move needs, fewer than a loop.
const RESENDS_MAX: usize = 5;

/// How long and how often a call is tried while its slot is on the move: with a few keys that takes milliseconds, and
/// other slots' calls may wait for this one.
const ASK_AGAIN_FOR: Duration = Duration::from_millis(100);
const ASK_AGAIN_EVERY: Duration = Duration::from_millis(5);

/// Operations of one slot, and where they stood in the batch.
pub(super) struct Part<'a> {
    pub(super) slot: Slot,
    pub(super) places: Vec<usize>,
    call: Call<'a>,
    /// Whether any of them may have to wait for a push.
    waits: bool,
    /// It asks for names of several slots, which the server refuses: no other operation is to suffer from that.
    is_alone: bool,
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
    pub(super) value: Value,
    pub(super) link: Arc<Link>,
    /// What was answered to waiting for replicas, if that was in the same piece.
    pub(super) acknowledged: Option<Value>,
}

impl Client {
    /// Sends a batch, a call for each slot.
    pub(super) async fn carry_out<'a>(
        &'a self,
        batch: &'a Batch,
        via: Via<'_>,
    ) -> (Vec<Part<'a>>, Vec<Result<Called, Error>>) {
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

    /// Puts the operations of each slot into one call.
    fn split<'a>(&'a self, batch: &'a Batch) -> Vec<Part<'a>> {
        let mut parts: Vec<Part<'_>> = Vec::with_capacity(1);
        for (place, operation) in batch.iter().enumerate() {
            let slot = self.keys.slot(operation.name());
            let is_alone =
                matches!(operation, Operation::Ask(ask) if !self.is_one_slot(&ask.names));
            let fits = |part: &Part<'_>| part.slot == slot && !part.is_alone && !is_alone;
            let at = parts.iter().position(fits).unwrap_or_else(|| {
                let call = Call::new(&self.keys, slot);
                parts.push(Part { slot, places: Vec::new(), call, waits: false, is_alone });
                parts.len() - 1
            });
            let part = &mut parts[at];
            part.places.push(place);
            part.waits |= is_wait(operation);
            part.call.operation(operation);
        }
        parts
    }

    /// Whether names share a slot: those that do can be taken together.
    pub(super) fn is_one_slot(&self, names: &[Name]) -> bool {
        if names.len() == 1 {
            return true;
        }
        let mut slots = names.iter().map(|name| self.keys.slot(name));
        let first = slots.next();
        slots.all(|slot| Some(slot) == first)
    }

    /// Carries out one call of the script at the node that has the slot.
    pub(super) async fn call(&self, slot: Slot, call: &Call<'_>) -> Result<Value, Error> {
        self.call_via(slot, call, false, Via::Shared).await.map(|called| called.value)
    }

    async fn call_via(
        &self,
        slot: Slot,
        call: &Call<'_>,
        waits: bool,
        via: Via<'_>,
    ) -> Result<Called, Error> {
        let mut node = self.servers().node_of(slot)?;
        let (mut by, mut asking) = (By::Hash, false);
        let (mut sends, begun) = (0, Instant::now());
        loop {
            let shared = node.link()?;
            // Pushes come over the shared connection, whichever carries the call.
            let command = call.command(by, &shared.sender);
            let (at, link) = match via {
                Via::Shared => (node.clone(), shared),
                Via::Line { strong, line, .. } => {
                    if waits {
                        self.subscribe(&shared).await;
                    }
                    strong.connection(&shared, line).await?
                }
            };
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
                Some(Reaction::AskAgain) if begun.elapsed() < ASK_AGAIN_FOR => {
                    tokio::time::sleep(ASK_AGAIN_EVERY).await;
                    (node, asking, sends) = (self.servers().node_of(slot)?, false, 0);
                }
                Some(Reaction::Tell | Reaction::AskAgain) => return Err(why),
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
            pipeline.add_command(node::subscribe(&link.sender));
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
        if shared.command(&node::subscribe(&shared.sender)).await.is_ok() {
            shared.is_subscribed.store(true, Ordering::Release);
        }
    }
}
