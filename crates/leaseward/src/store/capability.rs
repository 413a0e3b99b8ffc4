//! What a store is, as data.

use std::{ops::RangeInclusive, time::Duration};

use serde::Serialize;

use crate::lease::{TTL_MAX, TTL_MIN};

/// How leases end when nobody renews them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseKind {
    /// Each lease has its own time.
    Timed,
    /// All leases of a client live and die with its session.
    Session,
}

/// How a waiter learns that it is its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// The store queues tokens and gives the lease to the next one itself.
    HandedOver,
    /// The client has its own place in the store and watches it.
    OwnPlace,
    /// The store does not queue: woken or timed, the client asks again.
    AskAgain,
}

/// Which modes a store knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modes {
    /// Readers and writers.
    pub shared: bool,
    /// Counting semaphores.
    pub permits: bool,
}

/// Whether several fences can be reserved at once, for hand-over inside a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// One fence a grant.
    Single,
    /// A grant may reserve more.
    AtGrant,
    /// A grant may, and a renewal may reserve the next ones without giving the lease back.
    AtGrantAndRenewal,
}

/// How far the exclusion reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// Tasks of one process.
    Process,
    /// Processes of one machine.
    Machine,
    /// Machines that reach the store.
    Network,
}

/// How other clients' doings are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observing {
    /// The store pushes them.
    Pushed,
    /// They are derived by comparing snapshots.
    Derived,
}

/// What a store is and can do. The engine has one path for all stores and decides by this alone.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Capability {
    /// How leases end.
    pub lease: LeaseKind,
    /// How waiters are served.
    pub waiting: Waiting,
    /// How far exclusion reaches.
    pub reach: Reach,
    /// Which modes there are beside exclusive.
    pub modes: Modes,
    /// Why it lacks a mode, for whoever asks for it.
    pub why_not: Option<&'static str>,
    /// The TTLs it can keep; a shorter one is raised and reported, a longer one refused.
    pub ttl: RangeInclusive<Duration>,
    /// The longest that a name may stay taken after its holder was last heard of, by TTL and lock delay together or by a
    /// minimum hold; what is longer is refused. `None` if nothing but [`TTL_MAX`] limits each.
    pub taken_max: Option<Duration>,
    /// Whether a try for several names is atomic, whichever they are. See also
    /// [`takes_together`](super::Store::takes_together).
    pub several_names: bool,
    /// Whether a release may keep the name blocked (minimum hold).
    pub min_hold: bool,
    /// Whether a name can stay blocked after its holder vanished.
    pub lock_delay: bool,
    /// Whether a value travels with a lease.
    pub value: bool,
    /// Whether the store keeps a record of each lease, which other clients can read, take over by a handle and break.
    pub records: bool,
    /// How many fences can be reserved.
    pub blocks: Blocks,
    /// How other clients are observed.
    pub observing: Observing,
    /// How many batches may be in flight at once.
    pub lanes: usize,
    /// The most operations in a batch.
    pub batch_max: usize,
    /// Into how many parts what is under way is divided at least: no batch has more than one of them, few operations
    /// apart. With one, whatever has gathered goes out together.
    pub shares: usize,
    /// Whether a sender steps aside once before it sends, when others are about, so that their operations gather: for
    /// stores where a batch costs little more than one operation.
    pub gathers: bool,
}

impl Capability {
    /// A store with everything, on one lane: adjust what differs.
    pub fn full(reach: Reach) -> Self {
        Self {
            lease: LeaseKind::Timed,
            waiting: Waiting::HandedOver,
            reach,
            modes: Modes { shared: true, permits: true },
            why_not: None,
            ttl: TTL_MIN..=TTL_MAX,
            taken_max: None,
            several_names: true,
            min_hold: true,
            lock_delay: true,
            value: true,
            records: true,
            blocks: Blocks::AtGrantAndRenewal,
            observing: Observing::Derived,
            lanes: 1,
            batch_max: 256,
            shares: 1,
            gathers: false,
        }
    }
}
