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

use super::{claim::Claim, cohort::Cohort, events::Origin, keeper::Kept};
use crate::{
    Block, Error, Fence, Guard, LostReason, Mode, Name, Token, Value,
    clock::Moment,
    guard::{Danger, OwnerId},
    lease::PackedMode,
    store::{IfBusy, Standing},
};

/// Told shortly before a lease ends because its renewals fail.
pub(crate) type OnDanger = Arc<dyn Fn(Danger) + Send + Sync>;

/// How a lease is to be held. Times are in milliseconds so that a hundred thousand leases stay small.
#[derive(Clone)]
pub(crate) struct Spec {
    pub(crate) mode: PackedMode,
    pub(crate) if_busy: IfBusy,
    pub(crate) ttl_ms: u32,
    /// 0: renewal is off.
    pub(crate) renew_ms: u32,
    /// What few leases have.
    pub(crate) extras: Option<Arc<Extras>>,
}

#[derive(Default)]
pub(crate) struct Extras {
    /// 0: no limit.
    pub(crate) max_hold_ms: u32,
    pub(crate) min_hold_ms: u32,
    pub(crate) lock_delay_ms: u32,
    pub(crate) value: Option<Value>,
    pub(crate) on_danger: Option<OnDanger>,
    pub(crate) trace_id: Option<Arc<str>>,
    /// It waits for a store that is away from the beginning, and not only once it stands in line.
    pub(crate) rides_out: bool,
}

impl Extras {
    /// Whether both ask for the same of the store. Two callbacks never do; a trace and patience are the caller's own.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let plain = |extras: &Self| (extras.max_hold_ms, extras.min_hold_ms, extras.lock_delay_ms);
        plain(self) == plain(other)
            && self.value == other.value
            && self.on_danger.is_none()
            && other.on_danger.is_none()
    }
}

impl Spec {
    pub(crate) fn mode(&self) -> Mode {
        self.mode.get()
    }

    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms.into())
    }

    /// Zero: no limit.
    pub(crate) fn max_hold(&self) -> Duration {
        self.extra_ms(|extras| extras.max_hold_ms)
    }

    pub(crate) fn min_hold(&self) -> Duration {
        self.extra_ms(|extras| extras.min_hold_ms)
    }

    pub(crate) fn lock_delay(&self) -> Duration {
        self.extra_ms(|extras| extras.lock_delay_ms)
    }

    fn extra_ms(&self, which: impl FnOnce(&Extras) -> u32) -> Duration {
        Duration::from_millis(self.extras.as_deref().map_or(0, which).into())
    }

    pub(crate) fn value(&self) -> Option<&Value> {
        self.extras.as_ref().and_then(|extras| extras.value.as_ref())
    }

    pub(crate) fn trace_id(&self) -> Option<&Arc<str>> {
        self.extras.as_ref().and_then(|extras| extras.trace_id.as_ref())
    }

    /// Whether it waits for a store that is away from the beginning.
    pub(crate) fn rides_out(&self) -> bool {
        self.extras.as_ref().is_some_and(|extras| extras.rides_out)
    }

    /// Whether a waiter with this spec may take over a lease held under another: what the store recorded must be true
    /// for it too.
    pub(crate) fn can_inherit(&self, lease: &Self) -> bool {
        let plain = |spec: &Self| (spec.mode, spec.ttl_ms, spec.renew_ms);
        let same_extras = match (&self.extras, &lease.extras) {
            (None, None) => true,
            (Some(mine), Some(theirs)) => Arc::ptr_eq(mine, theirs) || mine.is_same(theirs),
            (Some(extras), None) | (None, Some(extras)) => extras.is_same(&Extras::default()),
        };
        self.mode() == Mode::Exclusive && plain(self) == plain(lease) && same_extras
    }
}

/// What a waiter is told.
pub(crate) enum Outcome {
    Granted(Guard),
    Busy(Standing),
    Failed(Error),
}

/// What a caller hears.
pub(crate) enum Told {
    Outcome(Outcome),
    /// The name is not free: it has to wait. What becomes of that is told here.
    Waits(oneshot::Receiver<Told>),
}

impl From<Outcome> for Told {
    fn from(outcome: Outcome) -> Self {
        Self::Outcome(outcome)
    }
}

/// A caller of this process that asks for a lease.
pub(crate) struct Waiter {
    pub(crate) id: u64,
    pub(crate) owner: Option<OwnerId>,
    pub(crate) spec: Spec,
    /// What the events of its lease are told with.
    pub(crate) origin: Option<Box<Origin>>,
    pub(crate) tell: oneshot::Sender<Told>,
    /// Whether it knows that it has to wait. Who has only asked, in a batch with others perhaps, waits for nobody yet.
    pub(crate) knows_it_waits: bool,
}

/// One token. Its state is only touched under the lock of the table's shard that holds its name.
pub(crate) struct Bid {
    pub(crate) name: Name,
    pub(crate) token: Token,
    pub(crate) spec: Spec,
    /// What guards read without a lock: the end of the lease in nanoseconds, 0 before it is held.
    deadline: AtomicU64,
    /// The fence of the guard that holds it now, or, marked with [`DONE`], held it last; 0 for none. Leases of earlier guards
    /// are known by it.
    fence: AtomicU64,
    /// 0 while it may be held, then the reason it is not.
    ended: AtomicU8,
    pub(crate) state: Mutex<BidState>,
}

/// Whether somebody in this process has a lease that this process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seat {
    Empty,
    /// A guard holds it.
    Taken,
    /// Nobody does: it goes to the next local waiter once fences have been reserved.
    Passing,
}

/// What changes about a bid.
pub(crate) struct BidState {
    pub(crate) claim: Claim,
    /// What few leases have at any moment.
    pub(crate) crowd: Option<Box<Crowd>>,
    /// Made for the first who wants to hear of its loss.
    ended_signal: Option<Arc<Notify>>,
    /// Who holds it now.
    pub(crate) owner: Option<OwnerId>,
    /// Whether a guard of this process holds it now.
    pub(crate) seat: Seat,
    /// Its caller is at hand, though not among the waiters: it is being asked for the first time.
    pub(crate) has_caller: bool,
    /// Local callers may join it. Not so for tries, attached leases, shared ones and permits.
    pub(crate) is_open: bool,
    /// When it needs looking at next.
    pub(crate) due: Moment,
    /// Where the keeper has it.
    pub(crate) kept: Kept,
    /// Where its present holder comes from.
    pub(crate) origin: Option<Box<Origin>>,
    /// When the last ask or renewal was sent.
    pub(crate) last_sent: Moment,
    /// When its present holder got it.
    pub(crate) since: Moment,
    /// Failed asks or renewals in a row, as far as they are counted.
    pub(crate) failures: u8,
    /// An ask or a renewal of the keeper's is under way.
    pub(crate) is_in_flight: bool,
    /// A grant was pushed that proves nothing yet: ask again as soon as the ask under way is answered.
    pub(crate) ask_again: bool,
    /// It was handed over for a short time and has not been renewed yet.
    pub(crate) is_short: bool,
    pub(crate) danger_told: bool,
}

/// What only leases have that others want too, and a few more: apart, so that a hundred thousand others stay small.
#[derive(Default)]
pub(crate) struct Crowd {
    /// Who waits for this token's lease, in order; the holder is not among them.
    pub(crate) waiters: VecDeque<Waiter>,
    /// Absent as long as nothing was passed on and nothing more than one fence was reserved.
    pub(crate) cohort: Option<Cohort>,
    pub(crate) slot: Option<u32>,
    /// Who was in the way when it was last asked.
    pub(crate) standing: Option<Box<Standing>>,
    /// The store has answered an ask for these waiters, or those before them.
    pub(crate) was_answered: bool,
    /// Why its last ask failed, while it waits for the store.
    pub(crate) trouble: Option<Error>,
}

const LIVE: u8 = 0;

/// Marks the fence of a guard that is done. Fences stay far below it.
const DONE: u64 = 1 << 63;

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
            state: Mutex::new(state),
        }
    }

    pub(crate) fn deadline(&self) -> Moment {
        Moment::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    pub(crate) fn set_deadline(&self, deadline: Moment) {
        self.deadline.store(deadline.as_nanos(), Ordering::Release);
    }

    /// The fence of the guard that holds it now; zero if none does.
    pub(crate) fn fence(&self) -> Fence {
        let fence = self.fence.load(Ordering::Acquire);
        Fence::new(if fence & DONE == 0 { fence } else { 0 })
    }

    /// Why the lease of the guard with this fence is lost, if it is known to be.
    pub(crate) fn ended_for(&self, fence: Fence) -> Option<LostReason> {
        let last = self.fence.load(Ordering::Acquire) & !DONE;
        self.ended().filter(|_| last == fence.get())
    }

    pub(crate) fn set_fence(&self, fence: Fence) {
        self.fence.store(fence.get(), Ordering::Release);
    }

    /// The guard with this fence is done; its successor's fence stays. `false` if it was done before.
    pub(crate) fn clear_fence(&self, fence: Fence) -> bool {
        let (held, done) = (fence.get(), fence.get() | DONE);
        self.fence.compare_exchange(held, done, Ordering::AcqRel, Ordering::Acquire).is_ok()
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
        // Under the lock: who asked for the signal before this is notified, who asks later sees the reason.
        let signal = self.state.lock().ended_signal.clone();
        if let Some(signal) = signal {
            signal.notify_waiters();
        }
    }

    /// Notified when it ends. Look at [`Bid::ended`] once notifications are being received, not before.
    pub(crate) fn ended_signal(&self) -> Arc<Notify> {
        self.state.lock().ended_signal.get_or_insert_default().clone()
    }

    /// When its present holder got it.
    pub(crate) fn held_since(&self) -> Moment {
        self.state.lock().since
    }

    pub(crate) fn slot(&self) -> Option<u32> {
        self.state.lock().crowd.as_ref()?.slot
    }

    /// Whether it may be relied on at this moment.
    pub(crate) fn is_held_at(&self, now: Moment) -> bool {
        self.ended.load(Ordering::Acquire) == LIVE && now < self.deadline()
    }
}

impl BidState {
    pub(crate) fn asking(is_open: bool, now: Moment) -> Self {
        Self {
            claim: Claim::new(),
            crowd: None,
            ended_signal: None,
            owner: None,
            seat: Seat::Empty,
            has_caller: false,
            is_open,
            due: Moment::NEVER,
            kept: Kept::Nowhere,
            origin: None,
            last_sent: now,
            since: now,
            failures: 0,
            is_in_flight: true,
            ask_again: false,
            is_short: false,
            danger_told: false,
        }
    }

    /// A lease that is known to be held already: from a handle, or one of several names granted together.
    pub(crate) fn held(fence: Fence, deadline: Moment, sent: Moment, now: Moment) -> Self {
        Self {
            claim: Claim::held(fence, deadline),
            seat: Seat::Taken,
            is_in_flight: false,
            last_sent: sent,
            since: now,
            ..Self::asking(false, now)
        }
    }

    pub(crate) fn crowd(&mut self) -> &mut Crowd {
        self.crowd.get_or_insert_default()
    }

    /// How many wait behind it in this process.
    pub(crate) fn waiting(&self) -> usize {
        self.crowd.as_ref().map_or(0, |crowd| crowd.waiters.len())
    }

    pub(crate) fn waiters(&self) -> impl Iterator<Item = &Waiter> {
        self.crowd.iter().flat_map(|crowd| &crowd.waiters)
    }

    pub(crate) fn take_waiters(&mut self) -> VecDeque<Waiter> {
        self.crowd.as_mut().map(|crowd| std::mem::take(&mut crowd.waiters)).unwrap_or_default()
    }

    /// Forgets waiters that no longer listen; how many are left.
    pub(crate) fn still_waiting(&mut self) -> usize {
        if let Some(crowd) = &mut self.crowd {
            crowd.waiters.retain(|waiter| !waiter.tell.is_closed());
        }
        self.waiting()
    }

    /// Those who have only asked so far: the name is not free, and each has yet to be told that it waits.
    pub(crate) fn tell_to_wait(
        &mut self,
    ) -> impl Iterator<Item = (oneshot::Sender<Told>, Told)> + use<'_> {
        let waiters = self.crowd.iter_mut().flat_map(|crowd| &mut crowd.waiters);
        waiters.filter(|waiter| !waiter.knows_it_waits).map(|waiter| {
            let (tell, told) = oneshot::channel();
            waiter.knows_it_waits = true;
            (std::mem::replace(&mut waiter.tell, tell), Told::Waits(told))
        })
    }

    /// Takes the next waiter that still listens.
    pub(crate) fn next_waiter(&mut self) -> Option<Waiter> {
        let waiters = &mut self.crowd.as_mut()?.waiters;
        std::iter::from_fn(|| waiters.pop_front()).find(|waiter| !waiter.tell.is_closed())
    }

    /// Whether it waits until a store that is away is back: one that stands in line does, one that has just begun to ask
    /// does not, unless a waiter said so.
    pub(crate) fn rides_out(&self) -> bool {
        self.crowd.as_ref().is_some_and(|crowd| crowd.was_answered)
            || self.waiters().any(|waiter| waiter.spec.rides_out())
    }

    /// The fences of the lease and its turn among processes.
    pub(crate) fn cohort(&mut self) -> &mut Cohort {
        // Nothing was passed on yet, so the lease began when its present holder got it.
        let (first, since) = (self.fence(), self.since);
        let first = Block { first, len: 1 };
        self.crowd().cohort.get_or_insert_with(|| Cohort::new(first, 0, since))
    }

    /// The fence of whoever holds it now.
    pub(crate) fn fence(&self) -> Fence {
        let cohort = self.crowd.as_ref().and_then(|crowd| crowd.cohort.as_ref());
        cohort.map_or_else(|| self.claim.fence(), Cohort::fence)
    }

    /// Gives back the memory of a crowd that has gone.
    pub(crate) fn shrink(&mut self) {
        let is_needed = |crowd: &Crowd| {
            !crowd.waiters.is_empty() || crowd.cohort.is_some() || crowd.slot.is_some()
        };
        self.crowd = self.crowd.take().filter(|crowd| is_needed(crowd));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Half a kilobyte a lease is promised, and a bid is the largest part of it.
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn stays_small() {
        assert!(size_of::<Bid>() <= 216, "a bid takes {} bytes", size_of::<Bid>());
        assert!(size_of::<Guard>() <= 24, "a guard takes {} bytes", size_of::<Guard>());
    }
}
