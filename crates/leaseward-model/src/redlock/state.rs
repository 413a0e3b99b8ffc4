//! What there is, at one moment.

use smallvec::SmallVec;

/// A token: one for each lease that somebody wants.
pub type Token = u8;

/// Attempts, by the first fence of each.
pub type Firsts = SmallVec<[u64; 2]>;

/// A block of fences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Block {
    /// The first fence.
    pub first: u64,
    /// The last one.
    pub last: u64,
}

/// A lock at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lock {
    /// Whose.
    pub token: Token,
    /// Under which ballot.
    pub block: Block,
    /// At which tick it ends by itself.
    pub until: u8,
}

/// What a node is asked to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// To grant, after taking back what earlier attempts were granted.
    Ask {
        /// The ballot.
        block: Block,
        /// The first fences of those attempts.
        undo: Firsts,
    },
    /// To take back what attempts were granted.
    Undo(Firsts),
    /// To take a lease that a majority has, if it is free for it.
    Heal(Block),
    /// To lengthen.
    Renew,
    /// To give back.
    Release,
}

/// A request under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Request {
    /// For whom.
    pub token: Token,
    /// What.
    pub operation: Operation,
    /// Whether the client still wants to know.
    pub is_awaited: bool,
}

/// What a node says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Answer {
    /// Nothing, for the client to count as a vote.
    Absent,
    /// Granted, under this ballot.
    Granted(Block),
    /// Free, above this.
    Low(u64),
    /// Held by another.
    Busy(Token),
    /// Lengthened.
    Renewed,
    /// Not this token's; whether it is free.
    NotYours(bool),
    /// Given back.
    Released,
}

/// What a client knows of one node's part in the round that it is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Slot {
    /// No round, or the node takes no part.
    #[default]
    Idle,
    /// Asked, and not answered, or the answer was lost.
    Open,
    /// Answered.
    Answered(Answer),
}

/// What is between one client and one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Wire {
    /// Requests under way, oldest first.
    pub requests: SmallVec<[Request; 2]>,
    /// The present round.
    pub slot: Slot,
}

/// A node, and what is between it and each client.
///
/// Nodes have no names: states that differ only in which is which are the same state.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Column {
    /// The lock key.
    pub lock: Option<Lock>,
    /// The end of the newest block it has granted, if it remembers any.
    pub record: Option<u64>,
    /// When it began without a memory, if it ever did.
    pub begun: Option<u8>,
    /// One a client.
    pub wires: SmallVec<[Wire; 2]>,
}

/// An ask that is put to the vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attempt {
    /// Its ballot.
    pub block: Block,
    /// When the first of its rounds was sent.
    pub sent: u8,
}

/// What a holder is doing besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Doing {
    /// Nothing.
    Nothing,
    /// Renewing, since then.
    Renewing(u8),
    /// Asking once more.
    Asking(Attempt),
}

/// Where a client is with its present token.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// It has none.
    Idle,
    /// It asks.
    Asking(Attempt),
    /// It asked in vain, and may again; perhaps with something of before to take back first.
    Refused(Firsts),
    /// It holds.
    Holding {
        /// Its fences.
        block: Block,
        /// Until when it may believe so.
        until: u8,
        /// What it is doing.
        doing: Doing,
    },
    /// It gives back.
    Releasing,
}

/// One client.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Client {
    /// Where it is.
    pub phase: Phase,
    /// Its present token, or its last.
    pub token: Token,
    /// The largest fence that somebody had got when this token began.
    pub above: u64,
    /// The last ballot that it proposed by the clock alone.
    pub proposed: u64,
    /// How many more leases it takes.
    pub acquisitions: u8,
    /// How many more times it asks with this token.
    pub asks: u8,
    /// How many more times it renews.
    pub renewals: u8,
    /// How many more times it asks for what it holds.
    pub repeats: u8,
}

impl Client {
    /// Whether it will never hold again.
    pub(crate) fn is_done(&self) -> bool {
        self.phase == Phase::Idle && self.acquisitions == 0
    }
}

/// What must never be, and cannot be seen from a state alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Wrong {
    /// A fence was given to two.
    Twice,
    /// A fence is not larger than one that was complete before its token began.
    Order,
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The tick.
    pub now: u8,
    /// The nodes, sorted.
    pub columns: SmallVec<[Column; 3]>,
    /// The clients.
    pub clients: SmallVec<[Client; 2]>,
    /// Fences that were got, by whom, sorted.
    pub complete: Vec<(Block, Token)>,
    /// How many more connections break.
    pub cuts: u8,
    /// How many more nodes restart without a memory.
    pub restarts: u8,
    /// How many more requests arrive twice.
    pub twice: u8,
    /// What went wrong.
    pub wrong: Option<Wrong>,
}

impl State {
    /// The fences that a token got.
    pub(crate) fn block_of(&self, token: Token) -> Option<Block> {
        self.complete.iter().find(|(_, whose)| *whose == token).map(|(block, _)| *block)
    }

    /// Whether a client may believe that it holds.
    pub fn holds(&self, client: usize) -> bool {
        matches!(self.clients[client].phase, Phase::Holding { until, .. } if self.now < until)
    }
}
