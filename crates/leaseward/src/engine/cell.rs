//! What a guard reads of its lease without a lock.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::spec::Spec;
use crate::{Fence, LostReason, Name, Token, clock::Moment};

/// A token, and what guards read of its lease. All decisions are made elsewhere, under the lock of the name's shard.
pub(crate) struct TokenCell {
    /// Tells tokens apart that are in use, for the timer.
    pub(crate) id: u64,
    /// Of the name, for the table.
    pub(crate) hash: u64,
    pub(crate) name: Name,
    pub(crate) token: Token,
    pub(crate) spec: Spec,
    /// The end of the lease in nanoseconds; 0 before it is held.
    deadline: AtomicU64,
    /// The fence of the guard that holds it now, or, marked with [`DONE`], held it last; 0 for none. Leases of earlier
    /// guards are known by it.
    fence: AtomicU64,
    /// When its present holder got it, in nanoseconds.
    since: AtomicU64,
    /// Which permit of a semaphore it is; [`NO_SLOT`] if it is none.
    slot: AtomicU32,
    /// When the timer wakes for it, in nanoseconds. Touched under the timer's lock alone.
    pub(super) wakes_at: AtomicU64,
    /// 0 while it may be held, then the reason it is not.
    ended: AtomicU8,
    /// Made for the first listener to its loss.
    ended_signal: Mutex<Option<Arc<Notify>>>,
}

/// No secret: the token shows its first digits.
impl fmt::Debug for TokenCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenCell")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}

const LIVE: u8 = 0;

const NO_SLOT: u32 = u32::MAX;

/// Marks the fence of a guard that is done. Fences stay far below it.
const DONE: u64 = 1 << 63;

impl TokenCell {
    pub(crate) fn new(id: u64, hash: u64, name: Name, token: Token, spec: Spec) -> Self {
        Self {
            id,
            hash,
            name,
            token,
            spec,
            deadline: AtomicU64::new(0),
            fence: AtomicU64::new(0),
            since: AtomicU64::new(0),
            slot: AtomicU32::new(NO_SLOT),
            wakes_at: AtomicU64::new(Moment::NEVER.as_nanos()),
            ended: AtomicU8::new(LIVE),
            ended_signal: Mutex::new(None),
        }
    }

    pub(crate) fn deadline(&self) -> Moment {
        Moment::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    pub(super) fn set_deadline(&self, deadline: Moment) {
        self.deadline.store(deadline.as_nanos(), Ordering::Release);
    }

    /// The lease has a new holder.
    pub(super) fn set_holder(&self, fence: Fence, slot: Option<u32>, since: Moment) {
        self.slot.store(slot.unwrap_or(NO_SLOT), Ordering::Relaxed);
        self.since.store(since.as_nanos(), Ordering::Relaxed);
        self.fence.store(fence.get(), Ordering::Release);
    }

    /// Which permit of a semaphore it is.
    pub(crate) fn slot(&self) -> Option<u32> {
        Some(self.slot.load(Ordering::Relaxed)).filter(|slot| *slot != NO_SLOT)
    }

    /// When its present holder got it.
    pub(crate) fn since(&self) -> Moment {
        Moment::from_nanos(self.since.load(Ordering::Relaxed))
    }

    /// The fence of the guard that holds it now; zero if none does.
    pub(crate) fn fence(&self) -> Fence {
        let fence = self.fence.load(Ordering::Acquire);
        Fence::new(if fence & DONE == 0 { fence } else { 0 })
    }

    /// The guard with this fence is done; its successor's fence stays. `false` if it was done before.
    pub(crate) fn clear_fence(&self, fence: Fence) -> bool {
        let (held, done) = (fence.get(), fence.get() | DONE);
        self.fence.compare_exchange(held, done, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Why the lease of the guard with this fence is lost, if it is known to be.
    pub(crate) fn ended_for(&self, fence: Fence) -> Option<LostReason> {
        let last = self.fence.load(Ordering::Acquire) & !DONE;
        self.ended().filter(|_| last == fence.get())
    }

    /// Why it is lost, if it is known to be.
    pub(crate) fn ended(&self) -> Option<LostReason> {
        match self.ended.load(Ordering::Acquire) {
            1 => Some(LostReason::Expired),
            2 => Some(LostReason::NotOurs),
            3 => Some(LostReason::Broken),
            4 => Some(LostReason::SessionEnded),
            5 => Some(LostReason::ShutDown),
            _ => None,
        }
    }

    /// Marks it lost; the first reason stays. Answers with the listeners to be notified once no lock is held.
    #[must_use]
    pub(super) fn end(&self, reason: LostReason) -> Option<Arc<Notify>> {
        let code = match reason {
            LostReason::Expired => 1,
            LostReason::NotOurs => 2,
            LostReason::Broken => 3,
            LostReason::SessionEnded => 4,
            LostReason::ShutDown => 5,
        };
        let _ = self.ended.compare_exchange(LIVE, code, Ordering::AcqRel, Ordering::Acquire);
        // Under the lock: a listener that asked for the signal before this is notified, a later one sees the reason.
        self.ended_signal.lock().clone()
    }

    /// Notified when it ends. Look at [`TokenCell::ended`] once notifications are being received, not before.
    pub(crate) fn ended_signal(&self) -> Arc<Notify> {
        self.ended_signal.lock().get_or_insert_default().clone()
    }

    /// Whether it may be relied on at this moment.
    pub(crate) fn is_held_at(&self, now: Moment) -> bool {
        self.ended.load(Ordering::Acquire) == LIVE && now < self.deadline()
    }

    /// When the timer wakes for it.
    pub(super) fn wakes_at(&self) -> Moment {
        Moment::from_nanos(self.wakes_at.load(Ordering::Relaxed))
    }

    /// How long its present holder has had it.
    pub(super) fn held_for(&self, now: Moment) -> Duration {
        now.since(self.since())
    }
}
