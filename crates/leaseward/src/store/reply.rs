//! What a store answers and pushes.

use std::{sync::Arc, time::Duration};

use crate::{Block, Error, Fence, Holder, LostReason, Name, Token, clock::Moment};

/// The outcome of one operation.
///
/// An error's kind says what is known: [`Unavailable`](crate::ErrorKind::Unavailable) means nothing changed,
/// [`Indeterminate`](crate::ErrorKind::Indeterminate) that it may have.
pub type Answer = Result<Reply, Error>;

/// What a store answers when nothing went wrong.
#[derive(Clone, Debug)]
pub enum Reply {
    /// To an ask: the lease is yours.
    Granted(Grant),
    /// To an ask that may queue: you have a place.
    Queued(Place),
    /// To an ask that may not queue, and from stores without a queue: somebody has it.
    Busy(Standing),
    /// To an ask: this token will never be served; take a new one.
    Gone(LostReason),
    /// To a renewal.
    Renewed(Renewal),
    /// To a release: the lease was yours, or the place, and now is not.
    Released,
    /// To a renewal or release: the token owns nothing here.
    NotYours(LostReason),
}

/// A lease given.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The fences reserved.
    pub block: Block,
    /// Which permit it is, 0 to capacity − 1.
    pub slot: Option<u32>,
    /// How long the store gave, counted from what `evidence` names.
    pub ttl: Duration,
    /// From which sent request the deadline counts.
    pub evidence: Evidence,
    /// How many wait for this name in the store.
    pub waiters: u32,
}

impl Grant {
    /// The holder's fence: the first of those reserved.
    pub fn fence(&self) -> Fence {
        self.block.first
    }
}

/// From which sent request a deadline may be counted: the store's statement, never the engine's assumption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// From the sending of the request that this answers.
    ThisRequest,
    /// From the latest-sent ask that was answered with a `last_fence` below this grant's fence (rule R1).
    LargerFence,
    /// From this moment, which the store itself observed before the grant was known to be live.
    Sent(Moment),
    /// From no request so far: the token is to ask again and counts from that ask (rule R4). For a push that tells of a
    /// grant before it is certain to last.
    Unproven,
}

/// A place in the queue.
#[derive(Clone, Debug)]
pub struct Place {
    /// The newest fence given out when the ask ran: a grant with a larger one was made after it.
    pub last_fence: Fence,
    /// How things stand.
    pub standing: Standing,
}

/// Why a name is not free.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// Who holds it; one of them if there are several; `None` if it is only promised to earlier waiters.
    pub holder: Option<Holder>,
    /// When asking again makes sense even if nothing is pushed: the end of the earliest lease in the way.
    pub free_in: Option<Duration>,
    /// How many wait before us, or in all where the store cannot tell.
    pub ahead: u32,
}

/// A lease kept.
#[derive(Clone, Debug)]
pub struct Renewal {
    /// How long from the evidence.
    pub ttl: Duration,
    /// From which sent request the deadline counts.
    pub evidence: Evidence,
    /// How many wait for this name in the store: a lease that is passed on inside a process goes back when others wait.
    pub waiters: u32,
}

/// What a store tells without being asked.
#[derive(Clone, Debug)]
pub enum Push {
    /// A queued token was given the lease.
    Granted {
        /// The name given.
        name: Name,
        /// To whom.
        token: Token,
        /// What was given.
        grant: Grant,
    },
    /// Something changed about this name: ask again.
    Woken {
        /// The name.
        name: Name,
    },
    /// A lease is over, though this client's others are not.
    Lost {
        /// Its name.
        name: Name,
        /// Whose it was.
        token: Token,
        /// Why.
        reason: LostReason,
    },
    /// The session that carries all leases of this client is over.
    SessionLost,
}

/// Where pushes go.
pub type PushSink = Arc<dyn Fn(Push) + Send + Sync>;
