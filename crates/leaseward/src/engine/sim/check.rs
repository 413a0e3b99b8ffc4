//! What must hold at every step of a history.

use super::client::Client;
use crate::{Fence, Name, clock::Moment, stores::memory::space::Space};

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Violation {
    /// Two clients rely on the lease at one instant.
    TwoHolders { fences: [Fence; 2] },
    /// A hold began with a fence that is not above all before it.
    FenceOrder { fence: Fence, newest: Fence },
    /// The protected resource took a write of an earlier hold after one of a later hold.
    StaleWrite { fence: Fence },
    /// A hold that could no longer be relied on could again, with its old fence.
    Revived { fence: Fence },
    /// A client relies on a lease for longer than the store keeps it.
    BeyondStore { deadline: Moment, expires: Option<Moment> },
    /// A caller waits for ever though everything works.
    Starved { client: usize },
    /// The store has something of a token that its client does not know and has nothing under way for.
    Ghost { token: String },
    /// A token is in a client's table though nothing is left to do about it.
    Leftover { client: usize },
}

/// The resource that the lock protects: takes a fence equal to or above the highest it has seen (R12).
#[derive(Debug, Default)]
struct Register {
    highest: Fence,
    /// The newest hold that wrote.
    start: u64,
}

/// The referee: sees everything, decides nothing.
#[derive(Debug, Default)]
pub(super) struct Check {
    newest: Fence,
    starts: u64,
    register: Register,
    found: Vec<Violation>,
    /// What callers waited for their holds in all, in nanoseconds.
    pub(super) waited_ns: u64,
}

impl Check {
    pub(super) fn found(&self) -> &[Violation] {
        &self.found
    }

    pub(super) fn starts(&self) -> u64 {
        self.starts
    }

    pub(super) fn report(&mut self, violation: Violation) {
        self.found.push(violation);
    }

    /// A caller got the lease, from the store or from its neighbour. Answers which hold it is.
    pub(super) fn started(&mut self, fence: Fence) -> u64 {
        if fence <= self.newest {
            self.report(Violation::FenceOrder { fence, newest: self.newest });
        }
        self.newest = self.newest.max(fence);
        self.starts += 1;
        self.starts
    }

    /// A write reached the resource.
    pub(super) fn written(&mut self, fence: Fence, start: u64) {
        if fence < self.register.highest {
            return;
        }
        if start < self.register.start {
            self.report(Violation::StaleWrite { fence });
        }
        self.register.highest = fence;
        self.register.start = self.register.start.max(start);
    }

    /// Looks at what the clients believe at this moment.
    pub(super) fn look(&mut self, clients: &mut [Client], space: &Space, name: &Name, now: Moment) {
        let mut relying: Option<Fence> = None;
        for client in clients {
            for entry in client.names.iter() {
                let held = entry.acquisition.held().filter(|held| now < held.deadline());
                if let Some(holder) = client.holders.get_mut(&entry.cell.id) {
                    if held.is_some() && holder.lapsed {
                        self.found.push(Violation::Revived { fence: holder.fence });
                    }
                    holder.lapsed = held.is_none();
                }
                let Some(held) = held else { continue };
                if let Some(other) = relying.replace(held.fence()) {
                    self.found.push(Violation::TwoHolders { fences: [other, held.fence()] });
                }
                let (deadline, expires) =
                    (held.deadline(), space.expiry(name, &entry.cell.token, now));
                if expires.is_none_or(|expires| deadline > expires) {
                    self.found.push(Violation::BeyondStore { deadline, expires });
                }
            }
        }
    }
}
