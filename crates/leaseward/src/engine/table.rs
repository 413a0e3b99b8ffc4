//! The names this process holds or waits for, and the bids on each.

use std::{hash::BuildHasher, sync::Arc};

use foldhash::fast::RandomState;
use hashbrown::{HashTable, hash_table::Entry};
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use super::bid::Bid;
use crate::{Name, Token};

/// Enough that two cores seldom meet in one.
const SHARDS: usize = 16;

/// Bids by name, in shards. Every change of a bid's state happens under the lock of its name's shard.
pub(crate) struct Table {
    shards: [Mutex<Names>; SHARDS],
    hasher: RandomState,
}

/// The name itself is in the bids, so that a name takes two words here.
type Names = HashTable<Bids>;

/// The bids on one name, in the order they came.
enum Bids {
    One(Arc<Bid>),
    /// Never empty.
    Many(Box<SmallVec<[Arc<Bid>; 4]>>),
}

impl Bids {
    fn as_slice(&self) -> &[Arc<Bid>] {
        match self {
            Self::One(bid) => std::slice::from_ref(bid),
            Self::Many(bids) => bids,
        }
    }

    fn name(&self) -> &Name {
        &self.as_slice()[0].name
    }

    fn push(&mut self, bid: Arc<Bid>) {
        match self {
            Self::Many(bids) => bids.push(bid),
            Self::One(first) => {
                *self = Self::Many(Box::new(SmallVec::from_iter([first.clone(), bid])));
            }
        }
    }
}

/// A name's shard under its lock.
pub(crate) struct Shard<'a> {
    names: MutexGuard<'a, Names>,
    /// Of the name it was locked for: all that is done under one lock is about one name.
    hash: u64,
    hasher: &'a RandomState,
}

impl Table {
    pub(crate) fn new() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()), hasher: RandomState::default() }
    }

    pub(crate) fn lock(&self, name: &Name) -> Shard<'_> {
        let hash = self.hasher.hash_one(name.as_str());
        // The shards' own tables look at the lowest and the highest bits.
        let at = usize::try_from((hash >> 32) % SHARDS as u64).expect("BUG: below the number");
        Shard { names: self.shards[at].lock(), hash, hasher: &self.hasher }
    }

    /// All bids there are, for shutdown and session loss.
    pub(crate) fn all(&self) -> Vec<Arc<Bid>> {
        self.select(|_| true)
    }

    /// The bids that are wanted, by name: the order does not depend on how names hash.
    pub(crate) fn select(&self, mut wanted: impl FnMut(&Bid) -> bool) -> Vec<Arc<Bid>> {
        let mut bids = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            bids.extend(shard.iter().flat_map(Bids::as_slice).filter(|bid| wanted(bid)).cloned());
        }
        bids.sort_by(|a, b| a.name.cmp(&b.name));
        bids
    }

    /// All bids on one name.
    pub(crate) fn on(&self, name: &Name) -> Vec<Arc<Bid>> {
        self.lock(name).bids(name).to_vec()
    }
}

impl Shard<'_> {
    pub(crate) fn bids(&self, name: &Name) -> &[Arc<Bid>] {
        self.names.find(self.hash, |bids| bids.name() == name).map_or(&[], Bids::as_slice)
    }

    pub(crate) fn find(&self, name: &Name, token: &Token) -> Option<&Arc<Bid>> {
        self.bids(name).iter().find(|bid| bid.token == *token)
    }

    pub(crate) fn insert(&mut self, bid: Arc<Bid>) {
        let hash_of = |bids: &Bids| self.hasher.hash_one(bids.name().as_str());
        match self.names.entry(self.hash, |bids| *bids.name() == bid.name, hash_of) {
            Entry::Occupied(mut bids) => bids.get_mut().push(bid),
            Entry::Vacant(free) => {
                free.insert(Bids::One(bid));
            }
        }
    }

    pub(crate) fn remove(&mut self, bid: &Arc<Bid>) {
        let Ok(mut entry) = self.names.find_entry(self.hash, |bids| *bids.name() == bid.name)
        else {
            return;
        };
        let is_last = match entry.get_mut() {
            Bids::One(one) => Arc::ptr_eq(one, bid),
            Bids::Many(bids) => {
                bids.retain(|other| !Arc::ptr_eq(other, bid));
                bids.is_empty()
            }
        };
        if is_last {
            entry.remove();
        }
    }
}
