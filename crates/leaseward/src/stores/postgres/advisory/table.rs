//! What the session holds. Pure: the server would let the same session in again and again, so this decides instead.

use std::{collections::HashMap, time::Duration};

use smallvec::SmallVec;

use super::key::Slot;
use crate::{
    Block, Holder, Mode, Name, Token,
    clock::Moment,
    store::{HeldView, Standing},
};

/// One lease.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    pub(super) name: Name,
    pub(super) token: Token,
    pub(super) mode: Mode,
    pub(super) block: Block,
    pub(super) ttl: Duration,
    pub(super) expires: Moment,
    pub(super) since: Moment,
}

/// What an ask needs.
#[derive(Clone, Debug)]
pub(super) enum Chance {
    /// The token has it already, with these fences.
    Yours(Block),
    /// Another task of this client has it.
    Busy(Standing),
    /// Other readers of this client have it: a fence is all that is needed.
    Join,
    /// The server decides.
    Take,
}

/// What is left of a lock in the server when a lease of it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// Other readers of this client.
    Shared,
    /// Nothing: it is to be unlocked.
    Unlock(Mode),
}

#[derive(Debug, Default)]
pub(super) struct Table {
    slots: HashMap<Slot, SmallVec<[Hold; 1]>>,
    /// No lease ends before this; it may be too early.
    earliest: Option<Moment>,
}

impl Table {
    pub(super) fn chance(&self, slot: Slot, token: &Token, mode: Mode, now: Moment) -> Chance {
        let holds = self.slots.get(&slot).map_or(&[][..], |holds| holds);
        if let Some(own) = holds.iter().find(|hold| hold.token == *token) {
            return Chance::Yours(own.block);
        }
        match holds.iter().min_by_key(|hold| hold.expires) {
            None => Chance::Take,
            Some(_) if mode == Mode::Shared && holds.iter().all(|hold| hold.mode == mode) => {
                Chance::Join
            }
            Some(first) => {
                let left = first.expires.since(now);
                Chance::Busy(Standing {
                    holder: Some(Holder::new(first.token.who().clone(), first.mode, Some(left))),
                    free_in: Some(left),
                    ahead: 0,
                })
            }
        }
    }

    pub(super) fn insert(&mut self, slot: Slot, hold: Hold) {
        self.ends(hold.expires);
        self.slots.entry(slot).or_default().push(hold);
    }

    /// Moves the end of a token's lease, never to an earlier moment. `false` if it has none.
    pub(super) fn lengthen(
        &mut self,
        slot: Slot,
        token: &Token,
        ttl: Duration,
        end: Moment,
    ) -> bool {
        let holds = self.slots.get_mut(&slot);
        let Some(hold) = holds.and_then(|holds| holds.iter_mut().find(|hold| hold.token == *token))
        else {
            return false;
        };
        if end > hold.expires {
            (hold.expires, hold.ttl) = (end, ttl);
        }
        true
    }

    pub(super) fn has(&self, slot: Slot, token: &Token) -> bool {
        self.slots.get(&slot).is_some_and(|holds| holds.iter().any(|hold| hold.token == *token))
    }

    pub(super) fn is_held(&self, slot: Slot) -> bool {
        self.slots.contains_key(&slot)
    }

    /// Takes a token's lease out; `None` if it has none.
    pub(super) fn remove(&mut self, slot: Slot, token: &Token) -> Option<Left> {
        let holds = self.slots.get_mut(&slot)?;
        let at = holds.iter().position(|hold| hold.token == *token)?;
        let hold = holds.remove(at);
        if holds.is_empty() {
            self.slots.remove(&slot);
            return Some(Left::Unlock(hold.mode));
        }
        Some(Left::Shared)
    }

    /// Takes out what has expired.
    pub(super) fn expire(&mut self, now: Moment) -> Vec<(Slot, Name, Left)> {
        if self.earliest.is_none_or(|earliest| now < earliest) {
            return Vec::new();
        }
        let over = self.slots.iter().flat_map(|(slot, holds)| {
            let over = holds.iter().filter(|hold| hold.expires <= now);
            over.map(|hold| (*slot, hold.name.clone(), hold.token.clone()))
        });
        let over: Vec<_> = over.collect();
        let mut ended = Vec::with_capacity(over.len());
        for (slot, name, token) in over {
            if let Some(left) = self.remove(slot, &token) {
                ended.push((slot, name, left));
            }
        }
        self.earliest = self.all().map(|(_, hold)| hold.expires).min();
        ended
    }

    /// When something may have expired.
    pub(super) fn next_end(&self) -> Moment {
        self.earliest.unwrap_or(Moment::NEVER)
    }

    /// The longest TTL of all leases.
    pub(super) fn longest(&self) -> Duration {
        self.all().map(|(_, hold)| hold.ttl).max().unwrap_or_default()
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Every lease.
    pub(super) fn all(&self) -> impl Iterator<Item = (Slot, &Hold)> {
        self.slots.iter().flat_map(|(slot, holds)| holds.iter().map(|hold| (*slot, hold)))
    }

    fn ends(&mut self, at: Moment) {
        self.earliest = Some(self.earliest.map_or(at, |earliest| earliest.min(at)));
    }
}

impl Hold {
    /// As people see it.
    pub(super) fn view(&self, now: Moment) -> HeldView {
        HeldView {
            who: self.token.who().clone(),
            token_prefix: self.token.prefix().to_owned(),
            mode: self.mode,
            fence: self.block.first,
            slot: None,
            ttl: self.ttl,
            remaining: Some(self.expires.since(now)),
            held: now.since(self.since),
            value: None,
            ending: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Fence;

    fn hold(token: &Token, mode: Mode, expires: u64) -> Hold {
        Hold {
            name: Name::new("x").expect("good"),
            token: token.clone(),
            mode,
            block: Block { first: Fence::new(1), len: 1 },
            ttl: Duration::from_nanos(expires),
            expires: Moment::from_nanos(expires),
            since: Moment::from_nanos(0),
        }
    }

    #[test]
    fn one_session_does_not_let_itself_in_twice() {
        let [a, b, c] = [1, 2, 3].map(|number| Token::new(number, Arc::from("me")));
        let (mut table, slot) = (Table::default(), Slot::One(7));
        let at = Moment::from_nanos(5);
        assert!(matches!(table.chance(slot, &a, Mode::Exclusive, at), Chance::Take));
        table.insert(slot, hold(&a, Mode::Exclusive, 10));
        assert!(matches!(table.chance(slot, &a, Mode::Exclusive, at), Chance::Yours(_)));
        for mode in [Mode::Exclusive, Mode::Shared] {
            assert!(matches!(table.chance(slot, &b, mode, at), Chance::Busy(_)));
        }
        assert_eq!(table.remove(slot, &b), None, "a token that has nothing frees nothing");
        assert_eq!(table.remove(slot, &a), Some(Left::Unlock(Mode::Exclusive)));
        table.insert(slot, hold(&a, Mode::Shared, 10));
        assert!(matches!(table.chance(slot, &b, Mode::Shared, at), Chance::Join));
        table.insert(slot, hold(&b, Mode::Shared, 20));
        assert!(matches!(table.chance(slot, &c, Mode::Exclusive, at), Chance::Busy(_)));
        assert_eq!(table.remove(slot, &a), Some(Left::Shared));
        assert_eq!(table.remove(slot, &b), Some(Left::Unlock(Mode::Shared)));
    }

    #[test]
    fn what_has_expired_goes_and_the_rest_stays() {
        let [a, b] = [1, 2].map(|number| Token::new(number, Arc::from("me")));
        let mut table = Table::default();
        table.insert(Slot::One(1), hold(&a, Mode::Exclusive, 10));
        table.insert(Slot::One(2), hold(&b, Mode::Exclusive, 30));
        assert!(table.expire(Moment::from_nanos(9)).is_empty());
        let ended = table.expire(Moment::from_nanos(10));
        assert_eq!(ended.len(), 1);
        assert_eq!((ended[0].0, ended[0].2), (Slot::One(1), Left::Unlock(Mode::Exclusive)));
        assert_eq!(table.next_end(), Moment::from_nanos(30));
        let end = Moment::from_nanos(20);
        assert!(table.lengthen(Slot::One(2), &b, Duration::from_nanos(5), end));
        assert_eq!(table.next_end(), Moment::from_nanos(30), "never an earlier end");
        assert!(
            !table.lengthen(Slot::One(1), &a, Duration::from_nanos(5), end),
            "nothing is revived"
        );
        assert_eq!(table.longest(), Duration::from_nanos(30));
    }
}
