//! What a case needs of a store, as data: a case that does not apply is listed with the reason, never skipped silently.

use std::fmt;

use leaseward::store::{Capability, LeaseKind, Reach, Waiting};

use crate::fixture::Fault;

/// Something not every store has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Readers and writers.
    Shared,
    /// Counting semaphores.
    Permits,
    /// A release that keeps the name held.
    MinHold,
    /// A value that travels with a lease.
    Value,
    /// A record of each lease that other clients can read, take over and break.
    Records,
    /// Leases with a time of their own, which others can see run out.
    OwnTime,
    /// A queue in the store.
    Queue,
    /// Several fences reserved at once.
    Blocks,
    /// Clients in other processes.
    Processes,
    /// A place that can be broken in this way.
    Fault(Fault),
}

impl Need {
    /// Whether a store has it.
    pub fn is_met_by(self, capability: &Capability, faults: &[Fault]) -> bool {
        match self {
            Self::Shared => capability.modes.shared,
            Self::Permits => capability.modes.permits,
            Self::MinHold => capability.min_hold,
            Self::Value => capability.value,
            Self::Records => capability.records,
            Self::OwnTime => capability.lease == LeaseKind::Timed,
            Self::Queue => capability.waiting != Waiting::AskAgain,
            Self::Blocks => capability.blocks,
            Self::Processes => capability.reach > Reach::Process,
            Self::Fault(fault) => faults.contains(&fault),
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shared => "shared mode",
            Self::Permits => "permits",
            Self::MinHold => "a minimum hold",
            Self::Value => "a value on a lease",
            Self::Records => "records of leases",
            Self::OwnTime => "leases with a time of their own",
            Self::Queue => "a queue in the store",
            Self::Blocks => "blocks of fences",
            Self::Processes => "clients in other processes",
            Self::Fault(Fault::Restart) => "a store that can be restarted",
            Self::Fault(Fault::Wipe) => "a store that can be wiped",
        })
    }
}
