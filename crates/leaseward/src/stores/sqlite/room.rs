//! One name as a turn sees it: who holds it, how many wait.

use smallvec::SmallVec;

use super::row::{Hold, Place};
use crate::{Name, Token};

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
}
