//! Sees two holders at once, and fences out of order.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use leaseward::Fence;

/// Watches what only one at a time may do.
#[derive(Debug, Default)]
pub struct Witness {
    is_inside: AtomicBool,
    last_fence: AtomicU64,
    entered: AtomicU32,
}

/// Somebody is inside until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Inside<'a>(&'a Witness);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.is_inside.store(false, Ordering::SeqCst);
    }
}

impl Witness {
    /// Somebody comes in.
    ///
    /// # Panics
    /// If somebody is inside, or has been with this fence or a larger one.
    pub fn enter(&self, fence: Fence) -> Inside<'_> {
        assert!(!self.is_inside.swap(true, Ordering::SeqCst), "two hold it at once");
        let last = self.last_fence.swap(fence.get(), Ordering::SeqCst);
        assert!(last < fence.get(), "fence {fence} came after {last}");
        self.entered.fetch_add(1, Ordering::SeqCst);
        Inside(self)
    }

    /// How many have been inside.
    pub fn entered(&self) -> u32 {
        self.entered.load(Ordering::SeqCst)
    }
}

/// Watches what a few at a time may do, each in a slot of its own.
#[derive(Debug)]
pub struct Crowd {
    slots: Vec<Witness>,
}

impl Crowd {
    /// Room for so many.
    pub fn of(capacity: u32) -> Self {
        Self { slots: (0..capacity).map(|_| Witness::default()).collect() }
    }

    /// Somebody comes in at a slot.
    ///
    /// # Panics
    /// If the slot does not exist or is taken, or its fences do not grow.
    pub fn enter(&self, slot: Option<u32>, fence: Fence) -> Inside<'_> {
        let slot = usize::try_from(slot.expect("a permit has a slot")).expect("an index");
        self.slots.get(slot).expect("slots are below the capacity").enter(fence)
    }
}
