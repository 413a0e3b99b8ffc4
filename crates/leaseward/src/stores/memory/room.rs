//! One name: who holds it, who waits. Pure; the reference for every store.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::hold::{Hold, Holds};
use crate::{
    Name, Token,
    clock::Moment,
    rules::{self, Rule},
    store::{
        Ask, WaiterView,
        held::{self, Held},
        timing,
    },
};

/// Which client of the space a waiter belongs to.
pub(crate) type ClientId = u32;

/// A place in the queue.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) ask: Ask,
    pub(super) client: ClientId,
    pub(super) since: Moment,
    pub(super) expires: Moment,
}

impl Place {
    pub(super) fn new(ask: Ask, client: ClientId, now: Moment) -> Self {
        let expires = now + timing::place_ttl(ask.ttl);
        Self { ask, client, since: now, expires }
    }

    pub(super) fn view(&self, now: Moment) -> WaiterView {
        WaiterView {
            who: self.ask.token.who().clone(),
            token_prefix: self.ask.token.prefix(),
            mode: self.ask.mode,
            waited: now.since(self.since),
        }
    }
}

/// A name in use. A free name without waiters has no room.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) name: Name,
    pub(super) holds: Holds,
    #[expect(clippy::box_collection, reason = "most rooms never have a queue and must stay small")]
    queue: Option<Box<VecDeque<Place>>>,
}

impl Room {
    pub(super) fn new(name: Name) -> Self {
        Self { name, holds: Holds::default(), queue: None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.holds.is_empty() && self.queue.as_ref().is_none_or(|queue| queue.is_empty())
    }

    pub(super) fn waiters(&self) -> u32 {
        self.queue.as_ref().map_or(0, |queue| u32::try_from(queue.len()).unwrap_or(u32::MAX))
    }

    pub(super) fn places(&self) -> impl Iterator<Item = &Place> {
        self.queue.iter().flat_map(|queue| queue.iter())
    }

    pub(super) fn hold_of(&mut self, token: &Token) -> Option<&mut Hold> {
        self.holds.iter_mut().find(|hold| hold.token == *token)
    }

    /// The lease that a release of this token is about: its own, never another of the same process (R8).
    pub(super) fn hold_to_release(&self, token: &Token) -> Option<usize> {
        self.holds.iter().position(|hold| {
            hold.token == *token || (!rules::on(Rule::R8) && hold.token.who() == token.who())
        })
    }

    pub(super) fn enqueue(&mut self, place: Place) {
        self.queue.get_or_insert_default().push_back(place);
    }

    /// The place of a token and how many stand before it.
    pub(super) fn place_of(&mut self, token: &Token) -> Option<(u32, &mut Place)> {
        let queue = self.queue.as_mut()?;
        let at = queue.iter().position(|place| place.ask.token == *token)?;
        Some((u32::try_from(at).unwrap_or(u32::MAX), &mut queue[at]))
    }

    pub(super) fn remove_place(&mut self, token: &Token) -> Option<Place> {
        let queue = self.queue.as_mut()?;
        let at = queue.iter().position(|place| place.ask.token == *token)?;
        queue.remove(at)
    }

    /// Takes out leases that no longer block the name.
    pub(super) fn take_expired(&mut self, now: Moment) -> SmallVec<[Hold; 1]> {
        let mut expired = SmallVec::new();
        let mut at = 0;
        while at < self.holds.len() {
            if !self.holds[at].is_live(now) {
                expired.push(self.holds.remove(at));
            } else {
                at += 1;
            }
        }
        expired
    }

    /// Takes out the next waiter if it is alive and the name is free for it; drops dead ones before it into `dead`.
    pub(super) fn take_next(&mut self, now: Moment, dead: &mut Vec<Place>) -> Option<Place> {
        loop {
            let front = self.queue.as_ref()?.front()?;
            let is_dead = front.expires <= now;
            if !is_dead && !held::admits(&self.holds, front.ask.mode) {
                return None;
            }
            let place = self.queue.as_mut()?.pop_front()?;
            if !is_dead {
                return Some(place);
            }
            dead.push(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Part of the half kilobyte a lease may take.
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn stays_small() {
        assert!(size_of::<Room>() <= 104, "a room takes {} bytes", size_of::<Room>());
    }
}
