//! One name as a turn sees it: who holds it, how many wait. Pure: the same decisions as the memory store's rooms.

use smallvec::SmallVec;

use super::row::{Hold, Place};
use crate::{Holder, Mode, Name, Token, clock::Moment, store::Standing};

/// A name; a free one without waiters has no rows.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) name: Name,
    /// Oldest first.
    pub(super) holds: SmallVec<[Hold; 1]>,
    /// Places in the queue, dead ones behind the front included.
    pub(super) waiters: u32,
    /// The first place, once it was looked up.
    pub(super) front: Option<Place>,
}

impl Room {
    pub(super) fn hold_of(&mut self, token: &Token) -> Option<&mut Hold> {
        self.holds.iter_mut().find(|hold| hold.token == *token)
    }

    /// Whether the present holders leave room for one more of this mode.
    pub(super) fn admits(&self, mode: Mode) -> bool {
        match mode {
            Mode::Exclusive => self.holds.is_empty(),
            Mode::Shared => self.holds.iter().all(|hold| hold.mode == Mode::Shared),
            Mode::Permit { capacity } => {
                self.holds.iter().all(|hold| hold.mode == mode)
                    && self.holds.len() < usize::try_from(capacity).unwrap_or(usize::MAX)
            }
        }
    }

    /// The capacity in force, if it is another than the one asked for.
    pub(super) fn other_capacity(&self, mode: Mode) -> Option<u32> {
        let Mode::Permit { capacity: asked } = mode else { return None };
        self.holds.iter().find_map(|hold| match hold.mode {
            Mode::Permit { capacity } if capacity != asked => Some(capacity),
            _ => None,
        })
    }

    /// The smallest permit nobody has.
    pub(super) fn free_slot(&self, mode: Mode) -> Option<u32> {
        let Mode::Permit { capacity } = mode else { return None };
        // Sorted once: looking every slot up among all holders would be quadratic in a large semaphore.
        let mut taken: SmallVec<[u32; 8]> =
            self.holds.iter().filter_map(|hold| hold.slot).collect();
        taken.sort_unstable();
        let free = taken.iter().zip(0..).find(|(slot, at)| **slot != *at).map(|(_, at)| at);
        free.or_else(|| u32::try_from(taken.len()).ok()).filter(|slot| *slot < capacity)
    }

    /// Why the name is not free for somebody with so many before them.
    pub(super) fn standing(&self, ahead: u32, now: Moment) -> Standing {
        let first = self.holds.iter().min_by_key(|hold| hold.blocks_until());
        Standing {
            holder: first.map(|hold| {
                Holder::new(hold.token.who().clone(), hold.mode, Some(hold.expires.since(now)))
            }),
            free_in: first.map(|hold| hold.blocks_until().since(now)),
            ahead,
        }
    }
}
