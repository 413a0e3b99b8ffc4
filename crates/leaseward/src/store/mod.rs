//! The seam: what a store does for the engine.
//!
//! Stores are dumb and atomic; the engine is clever and store-blind. A store carries out batches of four small
//! operations, each with an answer of its own, pushes what waiters need to hear, and says as data what it is. Waiting,
//! renewal, loss, cohorts, breaker, metrics and shutdown are written once, in the engine.

mod capability;
mod completion;
#[cfg(any(feature = "etcd", feature = "postgres", feature = "redis", feature = "zookeeper"))]
mod driver;
mod guarantee;
pub mod held;
mod operation;
mod registry;
mod reply;
mod site;
pub mod timing;
mod view;
#[cfg(all(
    test,
    any(feature = "etcd", feature = "postgres", feature = "redis", feature = "zookeeper")
))]
pub(crate) mod written;

use std::{any::Any, fmt, sync::Arc, time::Duration};

pub use capability::{Capability, LeaseKind, Modes, Reach, Waiting};
pub use completion::{Completion, answer_later};
#[cfg(any(feature = "etcd", feature = "postgres", feature = "redis", feature = "zookeeper"))]
pub(crate) use driver::Driver;
pub use guarantee::{Guarantee, Level};
pub use operation::{Ask, Batch, IfBusy, Operation, Release, Renew};
pub use registry::{OpenContext, Scheme, StoreUrl, open, schemes};
pub use reply::{Answer, Evidence, Grant, Place, Push, PushSink, Renewal, Reply, Standing};
pub use site::Site;
pub use view::{
    Break, Broken, Finding, HeldView, LockView, Observation, Observed, Query, Severity, WaiterView,
};

use crate::{Error, ErrorKind, Name, clock::BoxFuture};

/// Grants, extends and ends leases on names kept in one place.
///
/// One value is one client: the engine that owns it is the only one that submits to it. What a store offers beyond this is
/// reached through its own type, hence [`Any`]. The name after each promise
/// is the conformance case that shows it.
/// - At most one unexpired exclusive lease per name. (`exclusion::one_holder_under_contention`)
/// - A later grant has a greater fence. (`fencing::grows_with_every_acquisition`)
/// - Any operation on a name first ends what has expired and hands the name to the next live waiter.
///   (`waiting::a_dead_holder_is_followed_by_the_next_in_line`)
/// - An ask whose token owns the live lease is granted again, with the same fence and a fresh expiry.
///   (`idempotence::asking_again_is_granted_again`)
/// - Nothing is answered from a record of past grants. (`idempotence::an_expired_grant_is_never_revived`)
/// - Releasing compares the token, never the name alone. (`release::never_frees_another_holders_lease`)
pub trait Store: Any + fmt::Debug + Send + Sync {
    /// What this store is and can do, as data.
    fn capability(&self) -> &Capability;

    /// What this store, as it is set up, promises.
    fn guarantee(&self) -> Guarantee;

    /// Where this store is, safe to show: no password.
    fn location(&self) -> String;

    /// Takes the place where pushes go. Called once, before the first batch.
    ///
    /// The sink may be called from any thread, also inside of `submit`, but never while the store holds a lock that `submit`
    /// needs.
    fn start(&self, sink: PushSink);

    /// Carries out a batch. Answers go to `reply`, each when it is known, perhaps before this returns.
    ///
    /// Never waits: neither for a lease nor on the caller's thread. Operations of one batch on the same name are carried
    /// out in their order. No order between answers and pushes is promised. Every completion is dropped within the store's
    /// time limit, whatever happens: one that is kept for ever holds up the client.
    fn submit(&self, batch: Batch, reply: Completion);

    /// Submits a batch, and waits for its answers, in the order of its operations: for users of a store that are no engine.
    ///
    /// # Cancel safety
    /// Not cancel safe: a dropped call may still be carried out. Ask again with the same tokens, or release them.
    fn carry_out(&self, batch: Batch) -> BoxFuture<'static, Vec<Answer>> {
        let (reply, answers) = completion::collected(batch.len());
        self.submit(batch, reply);
        Box::pin(async { answers.await.expect("BUG: a completion that is dropped answers") })
    }

    /// What is held and who waits, as of one moment, sorted by name.
    fn inspect(&self, query: Query) -> BoxFuture<'static, Result<Vec<LockView>, Error>>;

    /// Starts to report what all clients of this store do, if it can push that.
    ///
    /// `None` where it cannot: the engine then compares snapshots and marks what it reports as derived.
    fn observe(&self) -> Option<tokio::sync::broadcast::Receiver<Arc<Observation>>> {
        None
    }

    /// Ends leases on a name against their holders' will.
    fn break_lease(&self, order: Break) -> BoxFuture<'static, Result<Broken, Error>>;

    /// One cheap round trip; answers how long it took. Where [`fence_lead`](Self::fence_lead) is told from memory, the
    /// newest fence is learnt here.
    fn ping(&self) -> BoxFuture<'static, Result<Duration, Error>>;

    /// Checks what silently breaks locks in this store. The fence lead is judged by the caller.
    fn diagnose(&self) -> BoxFuture<'static, Result<Vec<Finding>, Error>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// How far the newest fence runs ahead of the store's clock, if it is known: above zero for long, a rebuilt store
    /// could give out a fence twice.
    fn fence_lead(&self) -> Option<Duration> {
        None
    }

    /// Lets go of connections, threads and watches. Leases are not released by this.
    fn close(&self) -> BoxFuture<'static, ()> {
        Box::pin(async {})
    }
}

/// The answer to an ask for permits while the name is held with another capacity.
pub fn capacity_error(name: &Name, capacity: u32) -> Error {
    Error::new(
        ErrorKind::Capacity,
        format!("`{name}` is in use as a semaphore with {capacity} permits"),
    )
    .hint(
        "all users of a semaphore give the same capacity; it can change once nobody holds a permit",
    )
}
