//! What the engine asks of a store.

use std::time::Duration;

use crate::{Mode, Name, Token, Value};

/// Operations that go to the store together, sorted by name; they may be carried out as one script, one transaction or one by one.
pub type Batch = Vec<Operation>;

/// One atomic operation.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Acquire, retry, or keep a place in the queue: the same idempotent request.
    Ask(Ask),
    /// Keep a lease alive.
    Renew(Renew),
    /// Give back a lease or a place in the queue.
    Release(Release),
}

impl Operation {
    /// The name it is about.
    pub fn name(&self) -> &Name {
        match self {
            Self::Ask(ask) => &ask.name,
            Self::Renew(renew) => &renew.name,
            Self::Release(release) => &release.name,
        }
    }
}

/// What to do when the name is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfBusy {
    /// Answer [`Busy`](super::Reply::Busy) and forget the token.
    Tell,
    /// Take or keep a place in the queue under this token; answer [`Queued`](super::Reply::Queued).
    Queue,
}

/// Asks for a name.
///
/// - The token owns the live lease: `Granted`, same fence, expiry moved to now + ttl unless it is later (rule R4).
/// - The name is free and nobody is before us: `Granted` with the next fence.
/// - Else, as [`IfBusy`] says. A place is kept for [`place_ttl`](super::timing::place_ttl) after the last ask.
#[derive(Clone, Debug)]
pub struct Ask {
    /// What is asked for.
    pub name: Name,
    /// Who asks.
    pub token: Token,
    /// How it will be held.
    pub mode: Mode,
    /// How long the lease lasts without renewal.
    pub ttl: Duration,
    /// Whether to queue.
    pub if_busy: IfBusy,
    /// How many fences to reserve: 1 for this token and, where [`blocks`](super::Capability::blocks) are known, 1 for each
    /// further waiter inside this process. No other operation reserves any.
    pub block: u32,
    /// What is shown to whoever looks.
    pub value: Option<Value>,
}

/// Moves the expiry of a live lease to now + ttl, unless it is later already. Never revives one that has expired.
///
/// Never an earlier moment: the holder counts on what it was promised by an earlier renewal, whose answer may have
/// overtaken this one's.
#[derive(Clone, Debug)]
pub struct Renew {
    /// The name held.
    pub name: Name,
    /// The token it is held under.
    pub token: Token,
    /// How long from now.
    pub ttl: Duration,
}

/// Gives back a lease, or leaves the queue: whichever place the token has. May be repeated at any time.
#[derive(Clone, Debug)]
pub struct Release {
    /// The name held or waited for.
    pub name: Name,
    /// The token to look for; nothing else is compared.
    pub token: Token,
    /// Keep the name blocked for this long yet (minimum hold); zero hands it on at once.
    pub keep: Duration,
}
