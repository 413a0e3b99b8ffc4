//! What this process has in etcd, or may have: every token it has asked for and not seen the end of.
//!
//! etcd's leases end with the process; a token of a living process that is not renewed ends here, and its key is deleted.

use std::{collections::HashMap, sync::Arc, time::Duration};

use super::{keys::Keys, leases::ClassLease, seats::Seats};
use crate::{Fence, LostReason, Mode, Name, Token, clock::Moment, store::Standing};

/// Nothing is on its way for longer than this.
const LATE_MAX: Duration = Duration::from_secs(60);

/// How a token stands, as far as is known.
#[derive(Clone, Debug)]
pub(super) enum State {
    /// Asked for, not answered: its key may or may not be there.
    Asked,
    Queued {
        last_fence: Fence,
        standing: Standing,
    },
    Held {
        fence: Fence,
    },
    /// Lost, and its owner does not know yet.
    Ended(LostReason),
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) name: Name,
    pub(super) token: Token,
    pub(super) mode: Mode,
    pub(super) ttl: Duration,
    /// When it ends if nobody asks for it or renews it.
    pub(super) expires: Moment,
    pub(super) lease: Arc<ClassLease>,
    /// When the lease had last been confirmed before the cluster agreed that the key is there: a member that was cut off
    /// may confirm for a moment what the others no longer know (etcd issue 15247).
    pub(super) agreed: Moment,
    /// Zero until it is known.
    pub(super) create: i64,
    /// How many fences it was asked for with; never fewer later, so that a grant told twice is the same.
    pub(super) block: u32,
    pub(super) slot: Option<u32>,
    /// Nothing that was sent for its key can arrive after its release: the key may be used again.
    pub(super) is_plain: bool,
    /// Asks for it that were sent and are not answered yet.
    pub(super) under_way: u32,
    /// Something that was sent for it has no answer, and may still arrive.
    pub(super) is_doubtful: bool,
    /// Released or expired, and until then what may still arrive for it is deleted.
    pub(super) late_until: Option<Moment>,
    pub(super) state: State,
}

impl Entry {
    /// Whether it is this token's. A key that was looked at may be somebody else's when the answer comes.
    pub(super) fn is_of(&self, token: &Token) -> bool {
        self.token.random() == token.random()
    }

    /// Whether an ask that was sent for its key may come to etcd yet, and make it again.
    pub(super) fn may_arrive(&self) -> bool {
        self.is_doubtful || self.under_way > 0
    }

    /// Its token has ended, and something may arrive for it: it stays known, and what comes within a minute is deleted.
    /// Nobody else would end that while this process lives.
    pub(super) fn ends_late(&mut self, why: LostReason, again: Moment) {
        self.is_plain = false;
        // Whatever is made from here on is made at another revision.
        self.create = 0;
        self.state = State::Ended(why);
        self.late_until.get_or_insert(again + LATE_MAX);
        self.expires = again;
    }
}

/// What a release left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Released {
    /// The token had none, or no longer.
    Before,
    /// Nothing.
    Over,
    /// Something may be there, or still arrive.
    MayArrive,
}

#[derive(Default)]
pub(super) struct Table {
    entries: HashMap<Vec<u8>, Entry>,
    /// Where each token stands.
    places: HashMap<(Name, u128), Vec<u8>>,
    seats: Seats,
    /// Nothing ends before this; it may be too early.
    earliest: Option<Moment>,
}

impl Table {
    pub(super) fn get(&self, key: &[u8]) -> Option<&Entry> {
        self.entries.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &[u8]) -> Option<&mut Entry> {
        self.entries.get_mut(key)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&Vec<u8>, &Entry)> {
        self.entries.iter()
    }

    /// The key of a token.
    pub(super) fn key_of(&self, name: &Name, token: &Token) -> Option<&Vec<u8>> {
        self.places.get(&(name.clone(), token.random()))
    }

    /// A key for a token that has none.
    pub(super) fn seat(&mut self, keys: &Keys, name: &Name) -> Vec<u8> {
        self.seats.take(keys, name)
    }

    /// Whoever inserts has the keeper look by its end.
    pub(super) fn insert(&mut self, key: Vec<u8>, entry: Entry) {
        self.places.insert((entry.name.clone(), entry.token.random()), key.clone());
        self.entries.insert(key, entry);
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> Option<Entry> {
        let entry = self.entries.remove(key)?;
        self.places.remove(&(entry.name.clone(), entry.token.random()));
        Some(entry)
    }

    /// Something was sent for a key that may arrive at any time.
    pub(super) fn in_doubt(&mut self, key: &[u8]) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.is_plain = false;
            entry.is_doubtful = true;
        }
    }

    /// A token's key, made at this revision as far as was known then, was released, or not there to be; answers whether it
    /// may be there all the same, or be made again.
    pub(super) fn released(
        &mut self,
        key: Vec<u8>,
        token: &Token,
        create: i64,
        is_deleted: bool,
        again: Moment,
    ) -> Released {
        // Of two releases of one token the second may be answered when the key is another's already.
        let Some(entry) = self.entries.get_mut(&key).filter(|entry| entry.is_of(token)) else {
            return Released::Before;
        };
        let may_arrive = entry.may_arrive();
        if may_arrive || entry.create != create {
            entry.ends_late(LostReason::NotOurs, again);
            if !may_arrive {
                // An ask came between, and was answered: what it made is all there is.
                entry.late_until = Some(again);
            }
            return Released::MayArrive;
        }
        if let Some(entry) = self.remove(&key).filter(|entry| is_deleted && entry.is_plain) {
            self.seats.give_back(&entry.name, key);
        }
        Released::Over
    }

    /// What an ask put was deleted, if that is `done`; nobody will ask for it again, or release it.
    pub(super) fn undone(&mut self, key: &[u8], done: bool, again: Moment) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        // The ask that is being undone is under way itself.
        if done && !entry.is_doubtful && entry.under_way <= 1 {
            self.remove(key);
        } else {
            entry.ends_late(LostReason::NotOurs, again);
        }
    }

    /// An ask for a key was answered. `true` if its token had ended meanwhile, and what the ask made is to be deleted now.
    pub(super) fn answered(&mut self, key: &[u8], token: &Token, now: Moment) -> bool {
        let Some(entry) = self.entries.get_mut(key).filter(|entry| entry.is_of(token)) else {
            return false;
        };
        entry.under_way = entry.under_way.saturating_sub(1);
        if entry.late_until.is_none() {
            return false;
        }
        if entry.under_way == 0 && !entry.is_doubtful {
            // That was all that could come.
            entry.late_until = Some(now);
        }
        entry.expires = now;
        true
    }

    /// Moves an end, never to an earlier moment.
    pub(super) fn lengthen(&mut self, key: &[u8], until: Moment) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.expires = entry.expires.max(until);
        }
    }

    /// Sets an end, also an earlier one; whoever does has the keeper look by then.
    pub(super) fn ends_at(&mut self, key: &[u8], at: Moment) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.expires = at;
        }
    }

    /// The keys whose time is over, and when to look again.
    pub(super) fn expired(&mut self, now: Moment) -> Vec<Vec<u8>> {
        if self.earliest.is_none_or(|earliest| now < earliest) {
            return Vec::new();
        }
        let over = self.entries.iter().filter(|(_, entry)| entry.expires <= now);
        let over: Vec<_> = over.map(|(key, _)| key.clone()).collect();
        let alive = self.entries.values().map(|entry| entry.expires).filter(|at| *at > now);
        self.earliest = alive.min();
        over
    }

    /// When something may have expired.
    pub(super) fn next_end(&self) -> Moment {
        self.earliest.unwrap_or(Moment::NEVER)
    }

    pub(super) fn uses(&self, lease: &Arc<ClassLease>) -> bool {
        self.entries.values().any(|entry| Arc::ptr_eq(&entry.lease, lease))
    }

    /// What a lease carries.
    pub(super) fn of_lease(&self, lease: &Arc<ClassLease>) -> Vec<Vec<u8>> {
        let carried = self.entries.iter().filter(|(_, entry)| Arc::ptr_eq(&entry.lease, lease));
        carried.map(|(key, _)| key.clone()).collect()
    }

    /// The places in queues.
    pub(super) fn waiting(&self) -> Vec<Vec<u8>> {
        let waits = |entry: &Entry| matches!(entry.state, State::Queued { .. });
        self.entries.iter().filter(|(_, entry)| waits(entry)).map(|(key, _)| key.clone()).collect()
    }

    /// Looks again by this moment at the latest.
    pub(super) fn ends(&mut self, at: Moment) {
        self.earliest = Some(self.earliest.map_or(at, |earliest| earliest.min(at)));
    }
}
