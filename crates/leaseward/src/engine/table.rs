//! The names this process holds or waits for, and the bids on each.

use std::{collections::HashMap, hash::BuildHasher, sync::Arc};

use foldhash::fast::RandomState;
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use super::bid::Bid;
use crate::{Name, Token};

/// Enough that two cores seldom meet in one.
const SHARDS: usize = 16;

pub(crate) type Bids = SmallVec<[Arc<Bid>; 1]>;

/// Bids by name, in shards. Every change of a bid's state happens under the lock of its name's shard.
pub(crate) struct Table {
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
}

#[derive(Default)]
pub(crate) struct Shard {
    names: HashMap<Name, Bids, RandomState>,
}

impl Table {
    pub(crate) fn new() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()), hasher: RandomState::default() }
    }

    pub(crate) fn lock(&self, name: &Name) -> MutexGuard<'_, Shard> {
        let hash = self.hasher.hash_one(name.as_str());
        let at = usize::try_from(hash % SHARDS as u64).expect("BUG: below the number of shards");
        self.shards[at].lock()
    }

    /// All bids there are, for shutdown and session loss.
    pub(crate) fn all(&self) -> Vec<Arc<Bid>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(shard.lock().names.values().flatten().cloned());
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// All bids on one name.
    pub(crate) fn on(&self, name: &Name) -> Bids {
        self.lock(name).bids(name).iter().cloned().collect()
    }
}

impl Shard {
    pub(crate) fn bids(&self, name: &Name) -> &[Arc<Bid>] {
        self.names.get(name).map_or(&[], |bids| bids.as_slice())
    }

    pub(crate) fn find(&self, name: &Name, token: &Token) -> Option<&Arc<Bid>> {
        self.bids(name).iter().find(|bid| bid.token == *token)
    }

    pub(crate) fn insert(&mut self, bid: Arc<Bid>) {
        self.names.entry(bid.name.clone()).or_default().push(bid);
    }

    pub(crate) fn remove(&mut self, bid: &Arc<Bid>) {
        if let Some(bids) = self.names.get_mut(&bid.name) {
            bids.retain(|other| !Arc::ptr_eq(other, bid));
            if bids.is_empty() {
                self.names.remove(&bid.name);
            }
        }
    }
}
