//! One token's way through the engine: from its first ask to its end.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::{claim::Claim, cohort::Cohort, keeper::Kept};
use crate::{
    Error, Fence, Guard, LostReason, Mode, Name, Token, Value,
    clock::Moment,
    guard::{Danger, OwnerId},
    store::{IfBusy, Standing},
};

/// Told shortly before a lease ends because its renewals fail.
pub(crate) type OnDanger = Arc<dyn Fn(Danger) + Send + Sync>;

/// How a lease is to be held. Times are in milliseconds so that a hundred thousand leases stay small.
#[derive(Clone)]
pub(crate) struct Spec {
    pub(crate) mode: Mode,
    pub(crate) if_busy: IfBusy,
    pub(crate) ttl_ms: u32,
    /// 0: renewal is off.
    pub(crate) renew_ms: u32,
    /// 0: no limit.
    pub(crate) max_hold_ms: u32,
    pub(crate) min_hold_ms: u32,
    pub(crate) lock_delay_ms: u32,
    /// What few leases have.
    pub(crate) extras: Option<Arc<Extras>>,
}

#[derive(Clone, Default)]
pub(crate) struct Extras {
    pub(crate) value: Option<Value>,
    pub(crate) on_danger: Option<OnDanger>,
}

impl Spec {
    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms.into())
    }

    pub(crate) fn value(&self) -> Option<&Value> {
        self.extras.as_ref().and_then(|extras| extras.value.as_ref())
    }

    /// Whether a waiter with this spec may take over a lease held under another: what the store recorded must be true
    /// for it too.
    pub(crate) fn can_inherit(&self, lease: &Self) -> bool {
        let plain = |spec: &Self| {
            (
                spec.mode,
                spec.ttl_ms,
                spec.renew_ms,
                spec.max_hold_ms,
                spec.min_hold_ms,
                spec.lock_delay_ms,
            )
        };
        self.mode == Mode::Exclusive && plain(self) == plain(lease) && self.same_extras(lease)
    }

    fn same_extras(&self, other: &Self) -> bool {
        match (&self.extras, &other.extras) {
            (None, None) => true,
            (Some(mine), Some(theirs)) => {
                Arc::ptr_eq(mine, theirs)
                    || (mine.on_danger.is_none()
                        && theirs.on_danger.is_none()
                        && mine.value == theirs.value)
            }
            _ => false,
        }
    }
}

/// What a waiter is told.
pub(crate) enum Outcome {
    Granted(Guard),
    Busy(Standing),
    Failed(Error),
}

/// A caller of this process that waits for a lease.
pub(crate) struct Waiter {
    pub(crate) id: u64,
    pub(crate) owner: Option<OwnerId>,
    pub(crate) spec: Spec,
    /// The caller's span, so that what happens to its lease later is logged inside it.
    pub(crate) span: Option<Box<tracing::Span>>,
    pub(crate) tell: oneshot::Sender<Outcome>,
}

/// One token. Its state is only touched under the lock of the table's shard that holds its name.
pub(crate) struct Bid {
    pub(crate) name: Name,
    pub(crate) token: Token,
    pub(crate) spec: Spec,
    /// What guards read without a lock: the end of the lease in nanoseconds, 0 before it is held.
    deadline: AtomicU64,
    /// The fence of the guard that holds it now, 0 for none: leases of earlier guards are known by it.
    fence: AtomicU64,
    /// 0 while it may be held, then the reason it is not.
    ended: AtomicU8,
    pub(crate) ended_signal: Notify,
    pub(crate) state: Mutex<BidState>,
}

/// What changes about a bid.
pub(crate) struct BidState {
    pub(crate) claim: Claim,
    pub(crate) cohort: Option<Cohort>,
    /// Who waits for this token's lease, in order; the holder is not among them.
    pub(crate) waiters: VecDeque<Waiter>,
    /// Who holds it now.
    pub(crate) owner: Option<OwnerId>,
    /// Whether a guard of this process holds it now.
    pub(crate) is_taken: bool,
    /// Its caller is at hand, though not among the waiters: it is being asked for the first time.
    pub(crate) has_caller: bool,
    /// Local callers may join it. Not so for tries, attached leases, shared ones and permits.
    pub(crate) is_open: bool,
    pub(crate) slot: Option<u32>,
    /// When it needs looking at next.
    pub(crate) due: Moment,
    /// Where the keeper has it.
    pub(crate) kept: Kept,
    /// The span of its present holder.
    pub(crate) span: Option<Box<tracing::Span>>,
    /// When the last ask or renewal was sent.
    pub(crate) last_sent: Moment,
    /// When its present holder got it.
    pub(crate) since: Moment,
    /// Failed asks or renewals in a row.
    pub(crate) failures: u32,
    /// An ask or a renewal of the keeper's is under way.
    pub(crate) is_in_flight: bool,
    /// A grant was pushed that proves nothing yet: ask again as soon as the ask under way is answered.
    pub(crate) ask_again: bool,
    /// Nobody here holds it: it goes to the next local waiter once fences have been reserved.
    pub(crate) is_passing: bool,
    pub(crate) danger_told: bool,
    /// Who was in the way when it was last asked.
    pub(crate) standing: Option<Box<Standing>>,
}

const LIVE: u8 = 0;

impl Bid {
    pub(crate) fn new(name: Name, token: Token, spec: Spec, state: BidState) -> Self {
        let deadline = state.claim.deadline().map_or(0, Moment::as_nanos);
        Self {
            name,
            token,
            spec,
            deadline: AtomicU64::new(deadline),
            fence: AtomicU64::new(0),
            ended: AtomicU8::new(LIVE),
            ended_signal: Notify::new(),
            state: Mutex::new(state),
        }
    }

    pub(crate) fn deadline(&self) -> Moment {
        Moment::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    pub(crate) fn set_deadline(&self, deadline: Moment) {
        self.deadline.store(deadline.as_nanos(), Ordering::Release);
    }

    pub(crate) fn fence(&self) -> Fence {
        Fence::new(self.fence.load(Ordering::Acquire))
    }

    pub(crate) fn set_fence(&self, fence: Fence) {
        self.fence.store(fence.get(), Ordering::Release);
    }

    /// The guard with this fence is done; its successor's fence stays.
    pub(crate) fn clear_fence(&self, fence: Fence) {
        let _ = self.fence.compare_exchange(fence.get(), 0, Ordering::AcqRel, Ordering::Acquire);
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

    /// Marks it lost and wakes who listens; the first reason stays.
    pub(crate) fn end(&self, reason: LostReason) {
        let code = match reason {
            LostReason::Expired => 1,
            LostReason::NotOurs => 2,
            LostReason::Broken => 3,
            LostReason::SessionEnded => 4,
            LostReason::ShutDown => 5,
        };
        let _ = self.ended.compare_exchange(LIVE, code, Ordering::AcqRel, Ordering::Acquire);
        self.ended_signal.notify_waiters();
    }

    /// Whether it may be relied on at this moment.
    pub(crate) fn is_held_at(&self, now: Moment) -> bool {
        self.ended.load(Ordering::Acquire) == LIVE && now < self.deadline()
    }
}

impl BidState {
    pub(crate) fn asking(waiters: VecDeque<Waiter>, is_open: bool, now: Moment) -> Self {
        Self {
            claim: Claim::new(),
            cohort: None,
            waiters,
            owner: None,
            is_taken: false,
            has_caller: false,
            is_open,
            slot: None,
            due: Moment::NEVER,
            kept: Kept::Nowhere,
            span: None,
            last_sent: now,
            since: now,
            failures: 0,
            is_in_flight: true,
            ask_again: false,
            is_passing: false,
            danger_told: false,
            standing: None,
        }
    }

    /// A lease that is known to be held already: from a handle, or one of several names granted together.
    pub(crate) fn held(fence: Fence, deadline: Moment, sent: Moment, now: Moment) -> Self {
        Self {
            claim: Claim::held(fence, deadline),
            is_taken: true,
            is_in_flight: false,
            last_sent: sent,
            since: now,
            ..Self::asking(VecDeque::new(), false, now)
        }
    }

    /// Takes the next waiter that still listens.
    pub(crate) fn next_waiter(&mut self) -> Option<Waiter> {
        while let Some(waiter) = self.waiters.pop_front() {
            if !waiter.tell.is_closed() {
                return Some(waiter);
            }
        }
        None
    }
}
