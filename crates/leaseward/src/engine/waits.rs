//! The wait-for graph of this process: a cycle of owners that wait for each other never ends by itself.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use smallvec::SmallVec;

use super::{Engine, caller::Waiter, names::Entry};
use crate::{Error, ErrorKind, Mode, Name, guard::OwnerId};

/// Who waits for what.
pub(crate) struct Waits {
    is_on: bool,
    waiting: Mutex<Waiting>,
}

/// What each owner waits for; nearly always one name.
type Waiting = HashMap<OwnerId, SmallVec<[(u64, Name); 1]>, RandomState>;

/// A wait in the graph; leaves it when dropped.
pub(crate) struct InGraph {
    engine: Arc<Engine>,
    owner: OwnerId,
    id: u64,
}

impl Drop for InGraph {
    fn drop(&mut self) {
        let mut waiting = self.engine.waits.waiting.lock();
        if let Some(waits) = waiting.get_mut(&self.owner) {
            waits.retain(|(id, _)| *id != self.id);
            if waits.is_empty() {
                waiting.remove(&self.owner);
            }
        }
    }
}

impl Waits {
    pub(crate) fn new(is_on: bool) -> Self {
        Self { is_on, waiting: Mutex::default() }
    }
}

impl Engine {
    /// Notes that an owner waits, unless that would close a cycle.
    ///
    /// The last one to wait closes a cycle, so looking once, when a wait begins, finds every cycle.
    pub(super) fn begin_wait(
        self: &Arc<Self>,
        owner: Option<&OwnerId>,
        (hash, name): (u64, &Name),
        id: u64,
    ) -> Result<Option<InGraph>, Error> {
        let (Some(owner), true) = (owner, self.waits.is_on) else { return Ok(None) };
        let mut waiting = self.waits.waiting.lock();
        if self.holder_is_held_up(&waiting, owner, (hash, name)) {
            let mut path = vec![name.clone()];
            // The lease may have come while we looked: a cycle through a wait that is over is none.
            if self.leads_back(&waiting, owner, name, &mut path, &mut HashSet::default())
                && self.still_waits(hash, name, id)
            {
                return Err(deadlock(owner, &path));
            }
        }
        waiting.entry(owner.clone()).or_default().push((id, name.clone()));
        Ok(Some(InGraph { engine: self.clone(), owner: owner.clone(), id }))
    }

    /// Whether a holder of a name is `owner` itself or waits for another name: else there is nothing to search, which is
    /// nearly always so. A holder still noted as waiting for this very name has just been given it.
    fn holder_is_held_up(
        &self,
        waiting: &Waiting,
        owner: &OwnerId,
        (hash, name): (u64, &Name),
    ) -> bool {
        let shard = self.table.lock(hash);
        shard.names.on(hash, name).iter().any(|entry| {
            let Some(holder) = owner_of(entry) else { return false };
            holder == owner
                || waiting
                    .get(holder)
                    .is_some_and(|waits| waits.iter().any(|(_, other)| other != name))
        })
    }

    /// Whether waiting for a name means waiting for `owner`, through any number of others.
    fn leads_back(
        &self,
        waiting: &Waiting,
        owner: &OwnerId,
        name: &Name,
        path: &mut Vec<Name>,
        visited: &mut HashSet<Name, RandomState>,
    ) -> bool {
        if !visited.insert(name.clone()) {
            return false;
        }
        let holders = self.owners_of(name);
        // A permit comes free as soon as any of its holders goes on, so all of them must be stuck.
        let needs_all = holders.iter().any(|(_, mode)| matches!(mode, Mode::Permit { .. }));
        if let Some((_, Mode::Permit { capacity })) = holders.first()
            && usize::try_from(*capacity).is_ok_and(|capacity| holders.len() < capacity)
        {
            return false;
        }
        let mut stuck = 0;
        for (holder, _) in &holders {
            let is_stuck = match holder {
                None => false,
                Some(holder) if holder == owner => true,
                Some(holder) => waiting.get(holder).is_some_and(|waits| {
                    waits.iter().any(|(_, next)| {
                        path.push(next.clone());
                        let found = self.leads_back(waiting, owner, next, path, visited);
                        if !found {
                            path.pop();
                        }
                        found
                    })
                }),
            };
            if is_stuck && !needs_all {
                return true;
            }
            stuck += usize::from(is_stuck);
        }
        needs_all && !holders.is_empty() && stuck == holders.len()
    }

    fn still_waits(&self, hash: u64, name: &Name, id: u64) -> bool {
        let shard = self.table.lock(hash);
        shard.names.on(hash, name).iter().any(|entry| entry.has_caller(id))
    }

    /// The owners in this process that hold a name; `None` for a holder without one.
    fn owners_of(&self, name: &Name) -> Vec<(Option<OwnerId>, Mode)> {
        let hash = self.table.hash(name);
        let shard = self.table.lock(hash);
        let held = shard.names.on(hash, name).iter().filter(|entry| entry.acquisition.is_held());
        held.map(|entry| (owner_of(entry).cloned(), entry.cell.spec.mode())).collect()
    }
}

fn owner_of(entry: &Entry<Waiter>) -> Option<&OwnerId> {
    entry.holder.as_ref().filter(|_| entry.acquisition.is_held())?.owner.as_ref()
}

fn deadlock(owner: &OwnerId, path: &[Name]) -> Error {
    let cycle: Vec<_> = path.iter().map(|name| format!("`{name}`")).collect();
    let message = match cycle.as_slice() {
        [one] => format!("{owner} waits for {one}, which it holds itself"),
        many => format!("{owner} waits for itself through {}", many.join(" → ")),
    };
    Error::new(ErrorKind::Deadlock, message).hint(
        "take names in one order or together with `all`; if the guard was moved to another task, \
         give its acquisition an `.owner(…)` of its own",
    )
}
