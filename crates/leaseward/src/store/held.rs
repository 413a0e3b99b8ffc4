//! What follows from who holds a name: decided once, for every store that decides in this process.

use smallvec::SmallVec;

use super::Standing;
use crate::{Holder, LostReason, Mode, Token, clock::Moment};

/// How a lease stands with its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Renewable.
    Sound,
    /// An operator broke it: it runs out.
    Broken,
    /// Its holder gave it back, but it stays for its minimum hold.
    Kept,
}

/// A lease as a store keeps it.
pub trait Held {
    /// Whose it is.
    fn token(&self) -> &Token;
    /// How the name is held.
    fn mode(&self) -> Mode;
    /// Which permit it is.
    fn slot(&self) -> Option<u32>;
    /// How it stands with its holder.
    fn condition(&self) -> Condition;
    /// When it ends without renewal, and the name is free of it.
    fn expires(&self) -> Moment;

    /// Whether it has not ended yet.
    fn is_live(&self, now: Moment) -> bool {
        now < self.expires()
    }

    /// Whether the owner of a live lease may lengthen it, by a renewal or by asking again (R4); else why not (R5).
    ///
    /// # Errors
    /// Why it is no longer its owner's.
    fn lengthen(&self) -> Result<(), LostReason> {
        match self.condition() {
            Condition::Broken => Err(LostReason::Broken),
            Condition::Kept => Err(LostReason::NotOurs),
            Condition::Sound => Ok(()),
        }
    }
}

/// Whether the present holders leave room for one more of this mode.
pub fn admits<H: Held>(holds: &[H], mode: Mode) -> bool {
    match mode {
        Mode::Exclusive => holds.is_empty(),
        Mode::Shared => holds.iter().all(|hold| hold.mode() == Mode::Shared),
        Mode::Permit { capacity } => {
            holds.iter().all(|hold| hold.mode() == mode)
                && holds.len() < usize::try_from(capacity).unwrap_or(usize::MAX)
        }
    }
}

/// The capacity in force, if it is another than the one asked for.
pub fn other_capacity<H: Held>(holds: &[H], mode: Mode) -> Option<u32> {
    let Mode::Permit { capacity: asked } = mode else { return None };
    holds.iter().find_map(|hold| match hold.mode() {
        Mode::Permit { capacity } if capacity != asked => Some(capacity),
        _ => None,
    })
}

/// The smallest permit nobody has.
pub fn free_slot<H: Held>(holds: &[H], mode: Mode) -> Option<u32> {
    let Mode::Permit { capacity } = mode else { return None };
    // Sorted once: looking every slot up among all holders would be quadratic in a large semaphore.
    let mut taken: SmallVec<[u32; 8]> = holds.iter().filter_map(Held::slot).collect();
    taken.sort_unstable();
    let free = taken.iter().zip(0..).find(|(slot, at)| **slot != *at).map(|(_, at)| at);
    free.or_else(|| u32::try_from(taken.len()).ok()).filter(|slot| *slot < capacity)
}

/// Why the name is not free for somebody with so many before them.
pub fn standing<H: Held>(holds: &[H], ahead: u32, now: Moment) -> Standing {
    let first = holds.iter().min_by_key(|hold| hold.expires());
    Standing {
        holder: first.map(|hold| {
            let left = hold.expires().since(now);
            Holder::new(hold.token().who().clone(), hold.mode(), Some(left))
        }),
        free_in: first.map(|hold| hold.expires().since(now)),
        ahead,
    }
}
