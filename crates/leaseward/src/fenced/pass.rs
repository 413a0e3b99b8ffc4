//! The right to write, for as long as it is held.

use std::fmt;

use super::FenceGate;
use crate::Fence;

/// The right to write to a resource, from [`FenceGate::enter`]. While it lives, no later holder is let in: do the write,
/// await its end, then drop it.
#[must_use = "later holders wait only while this lives"]
pub struct Pass {
    gate: FenceGate,
    resource: Box<str>,
    fence: Fence,
}

impl Pass {
    pub(super) fn new(gate: FenceGate, resource: Box<str>, fence: Fence) -> Self {
        Self { gate, resource, fence }
    }

    /// The fence it was given for.
    pub fn fence(&self) -> Fence {
        self.fence
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.gate.leave(&self.resource);
    }
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass")
            .field("resource", &self.resource)
            .field("fence", &self.fence)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::yield_now;

    use super::*;
    use crate::fenced::StaleFence;

    fn fence(number: u64) -> Fence {
        Fence::new(number)
    }

    #[tokio::test]
    async fn a_later_holder_waits_for_the_write_in_flight() {
        let gate = FenceGate::new();
        let first = gate.enter("a", fence(1)).await.expect("the first");
        let second = gate.enter("a", fence(1)).await.expect("the same holder");
        let other = gate.clone();
        let later = tokio::spawn(async move { other.enter("a", fence(2)).await });
        while gate.seen("a") != fence(2) {
            yield_now().await;
        }
        // Already on its way: the earlier holder may finish, and begin nothing.
        let stale = StaleFence { given: fence(1), seen: fence(2) };
        assert_eq!(gate.enter("a", fence(1)).await.map(drop), Err(stale));
        drop(first);
        for _ in 0..20 {
            yield_now().await;
        }
        assert!(!later.is_finished(), "one write is still in flight");
        drop(second);
        let pass = later.await.expect("no panic").expect("all have left");
        assert_eq!(pass.fence(), fence(2));
    }

    #[tokio::test]
    async fn who_waits_is_refused_when_a_still_later_one_comes() {
        let gate = FenceGate::new();
        let inside = gate.enter("a", fence(1)).await.expect("the first");
        let enter = |number| {
            let gate = gate.clone();
            tokio::spawn(async move { gate.enter("a", fence(number)).await })
        };
        let second = enter(2);
        while gate.seen("a") != fence(2) {
            yield_now().await;
        }
        let third = enter(3);
        while gate.seen("a") != fence(3) {
            yield_now().await;
        }
        drop(inside);
        let stale = StaleFence { given: fence(2), seen: fence(3) };
        assert_eq!(second.await.expect("no panic").map(drop), Err(stale));
        assert!(third.await.expect("no panic").is_ok());
    }

    #[tokio::test]
    async fn a_dropped_wait_leaves_nothing_behind() {
        let gate = FenceGate::new();
        let inside = gate.enter("a", fence(1)).await.expect("the first");
        let other = gate.clone();
        let waiting = tokio::spawn(async move { other.enter("a", fence(2)).await.map(drop) });
        while gate.seen("a") != fence(2) {
            yield_now().await;
        }
        waiting.abort();
        assert!(waiting.await.is_err(), "it was cancelled");
        drop(inside);
        gate.enter("a", fence(2)).await.map(drop).expect("nobody is inside");
    }
}
