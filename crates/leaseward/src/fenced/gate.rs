//! The check for anything: highest fence seen, per resource, in memory.

use std::{collections::HashMap, fmt, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Pass, StaleFence};
use crate::Fence;

/// Remembers the highest fence that each resource has seen, in this process.
///
/// For a resource that one process owns: a device, a file, a service with one instance. What several processes write needs a
/// memory that they share, a database or Redis. The memory begins empty: a process that restarts accepts any fence first, so
/// where a holder may have been paused since before the restart, [`seen`](FenceGate::seen) tells what to keep and
/// [`check`](FenceGate::check) puts it back.
///
/// **How much it remembers is your choice.** [`new`](FenceGate::new) remembers every resource for ever: right where there are
/// few. [`bounded`](FenceGate::bounded) forgets those with the smallest fences, and stays safe: a resource that it does not
/// remember is held to the largest fence it has forgotten. So it never lets a stale holder in, but may refuse a good one who
/// has held its lease for longer than the gate remembers.
///
/// Cheap to clone; clones share what they remember.
#[derive(Clone)]
pub struct FenceGate {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    remembered_max: usize,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    /// With the standard hasher: over HTTP the names come from strangers.
    resources: HashMap<Box<str>, Resource>,
    /// The largest fence of a resource that was forgotten.
    floor: Fence,
}

#[derive(Default)]
struct Resource {
    seen: Fence,
    /// How many passes are out. All of them have the fence `inside`.
    passes: u32,
    inside: Fence,
    /// Rung when the last pass is given back; there only while somebody waits for that.
    bell: Option<Arc<Notify>>,
}

/// What a request to come in is answered.
pub(super) enum Entry {
    /// One more pass is out.
    In,
    /// A smaller fence is still at work: listen, then ask again.
    Wait(Arc<Notify>),
}

impl FenceGate {
    /// Remembers every resource for ever.
    pub fn new() -> Self {
        Self::bounded(usize::MAX)
    }

    /// Remembers at least half as many resources as this, and at most this many beside those at work.
    pub fn bounded(resources_max: usize) -> Self {
        let memory = Mutex::default();
        Self { inner: Arc::new(Inner { remembered_max: resources_max.max(1), memory }) }
    }

    /// Accepts and records a fence that is at least as large as every one this resource has seen.
    ///
    /// Only the check: between it and what follows, a later holder may come. Use it where writes are one after the other
    /// anyway (one thread owns the device), else [`enter`](FenceGate::enter).
    ///
    /// # Errors
    /// [`StaleFence`] for a smaller one; nothing is recorded.
    pub fn check(&self, resource: &str, fence: Fence) -> Result<(), StaleFence> {
        self.inner.memory.lock().see(resource, fence, self.inner.remembered_max).map(drop)
    }

    /// Lets the holder of a fence in, and keeps later holders waiting until its [`Pass`] is dropped.
    ///
    /// From the moment of the call smaller fences are refused. Those that are still inside are waited for, so that nothing
    /// of theirs is written after something of ours. Passes of one fence are inside together.
    ///
    /// # Errors
    /// [`StaleFence`] for a fence smaller than one this resource has seen, also if that one came while this one waited.
    ///
    /// # Cancel safety
    /// Dropped, it holds nothing; the fence stays recorded.
    pub async fn enter(&self, resource: &str, fence: Fence) -> Result<Pass, StaleFence> {
        while let Entry::Wait(bell) = self.admit(resource, fence)? {
            let rung = bell.notified();
            // Asked again now that it would be heard: the pass may have been given back meanwhile.
            match self.admit(resource, fence)? {
                Entry::In => break,
                Entry::Wait(same) if Arc::ptr_eq(&same, &bell) => rung.await,
                Entry::Wait(_) => {}
            }
        }
        Ok(Pass::new(self.clone(), resource.into(), fence))
    }

    /// The highest fence that a resource has seen, or must be taken to have seen.
    pub fn seen(&self, resource: &str) -> Fence {
        let memory = self.inner.memory.lock();
        memory.resources.get(resource).map_or(memory.floor, |known| known.seen)
    }

    /// How many resources are remembered.
    pub fn remembered(&self) -> usize {
        self.inner.memory.lock().resources.len()
    }

    fn admit(&self, resource: &str, fence: Fence) -> Result<Entry, StaleFence> {
        let mut memory = self.inner.memory.lock();
        let known = memory.see(resource, fence, self.inner.remembered_max)?;
        if known.passes > 0 && known.inside != fence {
            return Ok(Entry::Wait(known.bell.get_or_insert_default().clone()));
        }
        known.inside = fence;
        known.passes += 1;
        Ok(Entry::In)
    }

    /// One pass less.
    pub(super) fn leave(&self, resource: &str) {
        let mut memory = self.inner.memory.lock();
        let Some(known) = memory.resources.get_mut(resource) else { return };
        known.passes -= 1;
        if known.passes == 0
            && let Some(bell) = known.bell.take()
        {
            bell.notify_waiters();
        }
    }
}

impl Memory {
    fn see(&mut self, name: &str, fence: Fence, max: usize) -> Result<&mut Resource, StaleFence> {
        let seen = self.resources.get(name).map_or(self.floor, |known| known.seen);
        if fence < seen {
            return Err(StaleFence { given: fence, seen });
        }
        if !self.resources.contains_key(name) {
            if self.resources.len() >= max {
                self.forget(max / 2);
            }
            self.resources.insert(name.into(), Resource::default());
        }
        let known = self.resources.get_mut(name).expect("BUG: it was put there just now");
        known.seen = fence;
        Ok(known)
    }

    /// Keeps so many with the largest fences, and those at work. Called once in as many new resources as it forgets.
    fn forget(&mut self, keep: usize) {
        let mut fences: Vec<_> = self.resources.values().map(|known| known.seen).collect();
        let drop = fences.len().saturating_sub(keep).max(1);
        let (_, last, _) = fences.select_nth_unstable(drop - 1);
        let floor = *last;
        self.resources.retain(|_, known| known.seen > floor || known.passes > 0);
        self.floor = self.floor.max(floor);
    }
}

impl Default for FenceGate {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for FenceGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FenceGate").field("remembered", &self.remembered()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fence(number: u64) -> Fence {
        Fence::new(number)
    }

    #[test]
    fn accepts_what_is_not_smaller_and_refuses_the_rest() {
        let gate = FenceGate::new();
        for good in [3, 3, 5] {
            gate.check("a", fence(good)).expect("not smaller");
        }
        let stale = StaleFence { given: fence(4), seen: fence(5) };
        assert_eq!(gate.check("a", fence(4)), Err(stale));
        assert_eq!(gate.seen("a"), fence(5));
        gate.check("b", fence(1)).expect("resources have nothing to do with each other");
    }

    #[test]
    fn a_bounded_memory_forgets_the_oldest_and_never_lets_a_stale_one_in() {
        let gate = FenceGate::bounded(10);
        for number in 1..=100 {
            gate.check(&format!("r{number}"), fence(number)).expect("larger than all");
            assert!(gate.remembered() <= 10);
        }
        assert!(gate.remembered() >= 5, "{} of 10", gate.remembered());
        for number in 1..=100 {
            let name = format!("r{number}");
            assert!(gate.check(&name, fence(number - 1)).is_err(), "{name} was let in");
        }
        gate.check("new", fence(101)).expect("larger than all");
    }

    #[test]
    fn equal_fences_of_many_resources_are_forgotten_too() {
        let gate = FenceGate::bounded(4);
        for number in 0..50 {
            gate.check(&format!("r{number}"), fence(7)).expect("never smaller");
            assert!(gate.remembered() <= 4);
        }
    }

    #[tokio::test]
    async fn what_is_at_work_is_not_forgotten() {
        let gate = FenceGate::bounded(2);
        let pass = gate.enter("slow", fence(1)).await.expect("the first");
        for number in 2..20 {
            gate.check(&format!("r{number}"), fence(number)).expect("larger");
        }
        let again = gate.enter("slow", fence(1)).await.expect("still inside");
        drop((pass, again));
    }
}
