//! The value a caller holds while it holds a lease.

use std::{fmt, future::Future, sync::Arc, task::Poll, time::Duration};

use crate::{
    Error, ErrorKind, Fence, Handle, LostReason, Mode, Name,
    clock::Moment,
    engine::{Engine, cell::TokenCell},
};

/// Between looks at a deadline that is near, by a clock that may not go as the runtime's does.
const NAP_MIN: Duration = Duration::from_millis(1);

/// What became of a lease that was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// It was ours to the end.
    Released,
    /// It had ended before: somebody else may have held the name meanwhile.
    AlreadyExpired,
}

/// Who waits and holds, for the detection of deadlocks: a task, a thread, or whatever the caller names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnerId(Owner);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Owner {
    Task(tokio::task::Id),
    Thread(std::thread::ThreadId),
    // Twice boxed: the owner of a lease is kept with it, and most are of the other kinds.
    Named(Arc<Box<str>>),
}

impl OwnerId {
    /// The tokio task this is called from, if it is one.
    pub fn current_task() -> Option<Self> {
        tokio::task::try_id().map(|id| Self(Owner::Task(id)))
    }

    /// The thread this is called from.
    pub fn current_thread() -> Self {
        Self(Owner::Thread(std::thread::current().id()))
    }
}

impl From<&str> for OwnerId {
    fn from(name: &str) -> Self {
        Self(Owner::Named(Arc::new(name.into())))
    }
}

impl From<String> for OwnerId {
    fn from(name: String) -> Self {
        Self(Owner::Named(Arc::new(name.into())))
    }
}

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Owner::Task(id) => write!(f, "task {id}"),
            Owner::Thread(id) => write!(f, "{id:?}"),
            Owner::Named(name) => write!(f, "`{name}`"),
        }
    }
}

/// A lease whose renewals fail and that ends soon.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Danger {
    /// Its name.
    pub name: Name,
    /// How long it can be relied on yet.
    pub remaining: Duration,
}

/// What work done under a lease needs to know: its fence, and whether it still holds. Cheap to clone.
#[derive(Clone)]
pub struct Lease {
    engine: Arc<Engine>,
    cell: Arc<TokenCell>,
    fence: Fence,
}

impl Lease {
    /// The name held.
    pub fn name(&self) -> &Name {
        &self.cell.name
    }

    /// The number to send along with every write, so that the protected resource can refuse late ones.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// Whether it may be relied on at this moment.
    pub fn is_held(&self) -> bool {
        self.cell.fence() == self.fence && self.cell.is_held_at(self.engine.clock.now())
    }

    /// How long it can be relied on without another renewal; zero once it cannot.
    pub fn remaining(&self) -> Duration {
        if self.is_held() {
            self.cell.deadline().since(self.engine.clock.now())
        } else {
            Duration::ZERO
        }
    }

    /// When it ends without another renewal, on the clock of its `Locks`.
    pub fn deadline(&self) -> Moment {
        self.cell.deadline()
    }

    /// Resolves when the lease is lost, with the reason; never if it is released in time.
    ///
    /// It resolves before the lease can have ended in the store.
    ///
    /// # Cancel safety
    /// Cancel safe: ask again at any time.
    pub async fn lost(&self) -> LostReason {
        let signal = self.cell.ended_signal();
        loop {
            let mut ended = std::pin::pin!(signal.notified());
            ended.as_mut().enable();
            if let Some(reason) = self.lost_now() {
                return reason;
            }
            // The signal comes from one task for all leases. Should that stand still, because somebody blocks its thread,
            // the deadline passes all the same: so it is minded here too.
            let mut passed = std::pin::pin!(self.deadline_passed());
            std::future::poll_fn(|cx| {
                if ended.as_mut().poll(cx).is_ready() {
                    Poll::Ready(())
                } else {
                    passed.as_mut().poll(cx)
                }
            })
            .await;
        }
    }

    /// Sleeps until the deadline as it is now. Never wakes for a lease that somebody else has meanwhile.
    async fn deadline_passed(&self) {
        if self.cell.fence() != self.fence {
            return std::future::pending().await;
        }
        let left = self.cell.deadline().since(self.engine.clock.now());
        let slept = {
            // On the caller's runtime: that of the engine may be the one that stands still. Outside of any, there is no
            // other.
            let is_inside = tokio::runtime::Handle::try_current().is_ok();
            let _there = (!is_inside).then(|| self.engine.runtime.enter());
            tokio::time::sleep(left.max(NAP_MIN))
        };
        slept.await;
    }

    /// Why it is lost, if it is.
    pub(crate) fn lost_now(&self) -> Option<LostReason> {
        if let Some(reason) = self.cell.ended_for(self.fence) {
            return Some(reason);
        }
        let is_over =
            self.cell.fence() == self.fence && self.engine.clock.now() >= self.cell.deadline();
        is_over.then_some(LostReason::Expired)
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("name", self.name())
            .field("fence", &self.fence)
            .field("is_held", &self.is_held())
            .finish_non_exhaustive()
    }
}

/// A lease that is held. Owned, not tied to a task or thread.
///
/// Dropping it releases the lease in the background, never blocks and never panics, inside a runtime or out of it; to
/// know what became of it, [`release`](Guard::release) it. (`release::dropping_gives_it_back`)
#[must_use = "the lease is released when this is dropped"]
pub struct Guard {
    lease: Lease,
}

impl Guard {
    pub(crate) fn new(engine: Arc<Engine>, cell: Arc<TokenCell>, fence: Fence) -> Self {
        Self { lease: Lease { engine, cell, fence } }
    }

    /// The name held.
    pub fn name(&self) -> &Name {
        self.lease.name()
    }

    /// The number to send along with every write, so that the protected resource can refuse late ones.
    pub fn fence(&self) -> Fence {
        self.lease.fence
    }

    /// Which permit of a semaphore this is, 0 to capacity − 1.
    pub fn slot(&self) -> Option<u32> {
        self.lease.cell.slot()
    }

    /// How the name is held.
    pub fn mode(&self) -> Mode {
        self.lease.cell.spec.mode()
    }

    /// How long each renewal lasts: what was asked for, or the store's minimum if that is longer.
    pub fn ttl(&self) -> Duration {
        self.lease.cell.spec.ttl()
    }

    /// Whether it may be relied on at this moment.
    pub fn is_held(&self) -> bool {
        self.lease.is_held()
    }

    /// How long it can be relied on without another renewal; zero once it cannot.
    pub fn remaining(&self) -> Duration {
        self.lease.remaining()
    }

    /// When it ends without another renewal, on the clock of its `Locks`.
    pub fn deadline(&self) -> Moment {
        self.lease.cell.deadline()
    }

    /// What work under this lease needs to know; cheap, and useful where the guard itself stays elsewhere.
    pub fn lease(&self) -> Lease {
        self.lease.clone()
    }

    /// The store that keeps it, if it is of this type, and the token it is held under.
    #[cfg(feature = "etcd")]
    pub(crate) fn kept_in<S: crate::store::Store>(&self) -> Option<(&S, &crate::Token)> {
        let store: &dyn std::any::Any = &*self.lease.engine.store;
        Some((store.downcast_ref()?, &self.lease.cell.token))
    }

    /// When it was acquired.
    pub(crate) fn since(&self) -> Moment {
        self.lease.cell.since()
    }

    pub(crate) fn clock(&self) -> &Arc<dyn crate::clock::Clock> {
        &self.lease.engine.clock
    }

    pub(crate) fn token_prefix(&self) -> String {
        self.lease.cell.token.prefix()
    }

    /// Resolves when the lease is lost, with the reason; never if it is released in time.
    ///
    /// # Cancel safety
    /// Cancel safe: ask again at any time.
    pub async fn lost(&self) -> LostReason {
        self.lease.lost().await
    }

    /// Renews now, beside the renewals in the background.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if the lease is no longer ours; [`ErrorKind::Unavailable`] or
    /// [`ErrorKind::Indeterminate`] if the store did not say so: the lease still lasts until its deadline.
    ///
    /// # Cancel safety
    /// Cancel safe: the renewal may or may not be carried out.
    pub async fn renew(&self) -> Result<(), Error> {
        self.extend(self.ttl()).await
    }

    /// Makes this renewal last for another time than the TTL; later ones last for the TTL again. Never ends the lease
    /// sooner than it would have ended.
    ///
    /// # Errors
    /// As [`renew`](Guard::renew); [`ErrorKind::InvalidInput`] or [`ErrorKind::Unsupported`] if the store cannot keep
    /// that long.
    ///
    /// # Cancel safety
    /// As [`renew`](Guard::renew).
    pub async fn extend(&self, ttl: Duration) -> Result<(), Error> {
        let Lease { engine, cell, .. } = &self.lease;
        let ttl = crate::options::checked_ttl(ttl, engine.store.capability())?;
        engine.renew_now(cell, ttl).await
    }

    /// Gives the lease back.
    ///
    /// # Errors
    /// [`ErrorKind::Indeterminate`] if the store did not say whether it happened, [`ErrorKind::Unavailable`] if it was
    /// not reached: the lease then ends by its TTL. Never hangs.
    ///
    /// # Cancel safety
    /// Cancelled, the lease is still given back, but nobody learns what became of it; one that the store could not be told
    /// of by then ends by its TTL.
    pub async fn release(self) -> Result<Release, Error> {
        let Lease { engine, cell, fence } = &self.lease;
        cell.clear_fence(*fence);
        engine.release(cell, *fence).await
    }

    /// Releases in the background a lease that was never put to use: no minimum hold keeps its name blocked.
    pub(crate) fn give_up(self) {
        let Lease { engine, cell, fence } = &self.lease;
        if cell.clear_fence(*fence) {
            engine.release_unused(cell, *fence);
        }
    }

    /// Lets go of the lease without releasing it, and answers with what another process needs to take it over.
    ///
    /// Nobody renews it from here on: [`attach`](crate::Locks::attach) before it ends. The handle is a secret.
    pub fn detach(self) -> Handle {
        let Lease { engine, cell, fence } = &self.lease;
        let (name, token) = (cell.name.clone(), cell.token.clone());
        let handle = Handle::new(name, token, *fence, cell.spec.ttl(), cell.spec.mode());
        let handle = handle.with_slot(cell.slot());
        cell.clear_fence(*fence);
        engine.detach(cell);
        handle
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Lease { engine, cell, fence } = &self.lease;
        // If it is still there, it was neither released nor detached.
        if cell.clear_fence(*fence) {
            engine.release_unseen(cell, *fence);
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", self.name())
            .field("fence", &self.fence())
            .field("mode", &self.mode())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

pub(crate) fn lost_error(name: &Name, reason: LostReason) -> Error {
    Error::new(ErrorKind::Lost, format!("the lease on `{name}` was lost: {reason}"))
        .hint(
            "stop touching what it protects: a resource that checks fences refuses late writes only once it has seen the fence of the next holder",
        )
}
