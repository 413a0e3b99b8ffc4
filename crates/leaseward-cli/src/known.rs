//! What is known of a lease: the store says zero where it does not know, and people and programs are told that it does not.
//!
//! A client of another library has no fence, and says neither since when it holds a name nor how long it meant to.

use std::time::Duration;

use leaseward::{Fence, store::HeldView};

use crate::units;

/// Its fence, if it has one.
pub(crate) fn fence(held: &HeldView) -> Option<Fence> {
    Some(held.fence).filter(|fence| *fence != Fence::ZERO)
}

/// How long each renewal lasts.
pub(crate) fn ttl(held: &HeldView) -> Option<Duration> {
    fence(held).map(|_| held.ttl).filter(|ttl| !ttl.is_zero())
}

/// How long it has been held.
pub(crate) fn held_for(held: &HeldView) -> Option<Duration> {
    let is_told = !held.held.is_zero() || !held.ttl.is_zero();
    fence(held).filter(|_| is_told).map(|_| held.held)
}

/// Since when it is held and under which fence, behind its holder in a sentence.
pub(crate) fn behind(held: &HeldView) -> String {
    match (held_for(held), fence(held)) {
        (Some(long), Some(fence)) => format!("for {}, fence {fence}", units::shown(long)),
        _ => String::new(),
    }
}

/// A cell of a table.
pub(crate) fn cell<T>(known: Option<T>, shown: impl FnOnce(T) -> String) -> String {
    known.map_or_else(|| "-".to_owned(), shown)
}
