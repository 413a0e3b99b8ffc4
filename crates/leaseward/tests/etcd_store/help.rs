//! What the tests share.

use std::{future::Future, time::Duration};

use leaseward::{
    Attempt, Busy, Error, Fence, Guard, Lock, Locks, Name,
    store::{LockView, Query},
};
use leaseward_testkit::PATIENCE;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

pub(crate) use crate::basics::{connect, take, try_open};

/// Longer than any test.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// A client whose waiters all stand in the store's queue.
pub(crate) async fn lone(url: &str) -> Locks {
    Locks::builder().cohorts(false).connect(url).await.expect("the server can be reached")
}

pub(crate) async fn busy(lock: Lock) -> Busy {
    match lock.try_acquire().await.expect("the server answers") {
        Attempt::Granted(guard) => panic!("it must be busy, but was granted: {guard:?}"),
        Attempt::Busy(busy) => busy,
    }
}

pub(crate) fn asking(lock: Lock) -> JoinHandle<Result<Guard, Error>> {
    tokio::spawn(async move { lock.acquire().await })
}

pub(crate) async fn granted(asked: JoinHandle<Result<Guard, Error>>) -> Guard {
    asked.await.expect("the task lives").expect("the lease is granted")
}

pub(crate) async fn view(locks: &Locks, name: &str) -> LockView {
    let name = Name::new(name).expect("a good name");
    let seen = locks.inspect(Query::Name(name.clone())).await.expect("the server answers");
    seen.into_iter().next().unwrap_or(LockView { name, holders: vec![], waiters: vec![] })
}

pub(crate) async fn queue_of(locks: &Locks, name: &str, len: usize) {
    until(&format!("{len} wait for `{name}`"), || async {
        (view(locks, name).await.waiters.len() == len).then_some(())
    })
    .await;
}

/// Asks again and again until there is an answer.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(
    what: &str,
    ask: impl FnMut() -> F,
) -> T {
    crate::basics::until(what, PATIENCE * 3, ask).await
}

/// Sees two holders at once, and fences out of order.
#[derive(Default)]
pub(crate) struct Witness {
    inside: Mutex<(bool, u64, u32)>,
}

impl Witness {
    pub(crate) fn enter(&self, fence: Fence) {
        let mut inside = self.inside.lock();
        assert!(!inside.0, "two hold it at once");
        assert!(inside.1 < fence.get(), "fence {fence} came after {}", inside.1);
        *inside = (true, fence.get(), inside.2 + 1);
    }

    pub(crate) fn leave(&self) {
        self.inside.lock().0 = false;
    }

    pub(crate) fn entered(&self) -> u32 {
        self.inside.lock().2
    }
}
