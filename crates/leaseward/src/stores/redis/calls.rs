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
    keys::{Keys, Slot},
    node::{self, Link},
    plain,
    strong::{Line, Strong},
    wire::{By, Call, Care},
};
use crate::{Error, store::Batch};

/// How often a call is sent anew because a server did not know the script or sent us elsewhere: more than a slot on the
/// move needs, fewer than a loop.
const RESENDS_MAX: usize = 5;

/// How long and how often a call is tried while its slot is on the move: with a few keys that takes milliseconds, and
/// other slots' calls may wait for this one.
const ASK_AGAIN_FOR: Duration = Duration::from_millis(100);
const ASK_AGAIN_EVERY: Duration = Duration::from_millis(5);

/// From how many on operations on different names are sorted by their kind, so that there are long runs of them: fewer gain
/// nothing by it, and are carried out in their order.
const SORTED_FROM: usize = 4;

/// Operations of one slot: where they stand in the batch, in the order in which they are carried out.
pub(super) struct Part {
    pub(super) slot: Slot,
    pub(super) places: Vec<usize>,
    pub(super) care: Care,
    /// Whether any of them may have to wait for a push.
    waits: bool,
}

impl Part {
    /// Has the small script do it, if it is of the usual kind. Operations on one name keep their order.
    pub(super) fn prefer_plain(&mut self, batch: &Batch) {
        if !self.places.iter().all(|place| plain::is_plain(&batch[*place])) {
            return;
        }
        // Batches are sorted by name.
        let name = |place: usize| batch[place].name();
        let is_distinct = self.places.len() >= SORTED_FROM
            && self.places.windows(2).all(|pair| name(pair[0]) < name(pair[1]));
        if is_distinct {
            self.places.sort_by_key(|place| plain::rank(&batch[*place]));
        }
        self.care = Care::Plain { is_distinct };
    }

    fn call<'a>(&self, keys: &'a Keys, batch: &'a Batch) -> Call<'a> {
        Call::of(keys, self.slot, self.care, self.places.iter().map(|place| &batch[*place]))
    }
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
    /// Sends parts of a batch, a call for each.
    pub(super) async fn carry_out(
        &self,
        batch: &Batch,
        parts: &[Part],
        via: Via<'_>,
    ) -> Vec<Result<Called, Error>> {
        let call = |part: &Part, via| {
            let (call, slot, waits) = (part.call(&self.keys, batch), part.slot, part.waits);
            async move { self.call_via(slot, &call, waits, via).await }
        };
        match parts {
            // The usual case.
            [part] => vec![call(part, via).await],
            parts => {
                let via = via.without_waiting();
                join_all(parts.iter().map(|part| call(part, via))).await
            }
        }
    }

    /// Puts operations together by their slots.
    pub(super) fn split(&self, batch: &Batch, places: impl Iterator<Item = usize>) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::with_capacity(1);
        for place in places {
            let operation = &batch[place];
            let slot = self.keys.slot(operation.name());
            let fits = |part: &Part| part.slot == slot;
            let at = parts.iter().position(fits).unwrap_or_else(|| {
                let (places, care) = (Vec::with_capacity(batch.len() - place), Care::Careful);
                parts.push(Part { slot, places, care, waits: false });
                parts.len() - 1
            });
            let part = &mut parts[at];
            part.places.push(place);
            part.waits |= is_wait(operation);
        }
        parts
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
                Some(Reaction::LookElsewhere) => {
                    self.servers().lost();
                    return Err(why);
                }
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
