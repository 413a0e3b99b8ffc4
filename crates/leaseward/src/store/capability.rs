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
    /// The TTLs it can keep; a shorter one is raised and reported, a longer one refused, and so is a longer minimum hold.
    pub ttl: RangeInclusive<Duration>,
    /// Whether a release may keep the name blocked (minimum hold).
    pub min_hold: bool,
    /// Whether a value travels with a lease.
    pub value: bool,
    /// Whether the store keeps a record of each lease, which other clients can read, take over by a handle and break.
    pub records: bool,
    /// Whether a grant can reserve several fences, for hand-over inside a process.
    pub blocks: bool,
    /// The most operations in a batch.
    pub batch_max: usize,
    /// Whether the store gains nothing from a second batch while one is under way: the next one then gathers.
    pub one_batch_at_a_time: bool,
}

impl Capability {
    /// A store with everything: adjust what differs.
    pub fn full(reach: Reach) -> Self {
        Self {
            lease: LeaseKind::Timed,
            waiting: Waiting::HandedOver,
            reach,
            modes: Modes { shared: true, permits: true },
            why_not: None,
            ttl: TTL_MIN..=TTL_MAX,
            min_hold: true,
            value: true,
            records: true,
            blocks: true,
            batch_max: 256,
            one_batch_at_a_time: false,
        }
    }
}
