//! Waiting for something to be so, without guessing how long it takes.

use std::{pin::Pin, task::Poll, time::Duration};

use leaseward::{
    Fence, Locks, Name,
    store::{LockView, Query, Waiting},
};

/// How often the store is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// After so many looks it will never be so.
const LOOKS_MAX: u32 = 6_000;

/// Waits until something is so.
///
/// # Panics
/// If it never is.
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    for _ in 0..LOOKS_MAX {
        if is_so().await {
            return;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    panic!("never came to be so: {what}");
}

/// Who holds a name and who waits for it, nobody if nobody does.
pub async fn view(locks: &Locks, name: &str) -> LockView {
    let name = Name::new(name).expect("a good name");
    let views = locks.inspect(Query::Name(name.clone())).await.expect("the store answers");
    let found = views.into_iter().find(|view| view.name == name);
    found.unwrap_or(LockView { name, holders: vec![], waiters: vec![] })
}

/// Checks that one lease holds a name, with this fence where the store keeps records of leases.
pub async fn held_with(locks: &Locks, name: &str, fence: Fence) {
    let seen = view(locks, name).await;
    let [holder] = seen.holders.as_slice() else { panic!("one holder, not {seen:?}") };
    if locks.capability().records {
        assert_eq!(holder.fence, fence);
    }
}

/// Waits until so many wait for a name in the store. One without a queue does not show them.
pub async fn queue_of(locks: &Locks, name: &str, len: usize) {
    if locks.capability().waiting == Waiting::AskAgain {
        return;
    }
    eventually(&format!("{len} wait for `{name}`"), || async {
        view(locks, name).await.waiters.len() == len
    })
    .await;
}

/// Polls something once.
pub async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|cx| {
        Poll::Ready(match Pin::new(&mut *future).poll(cx) {
            Poll::Ready(out) => Some(out),
            Poll::Pending => None,
        })
    })
    .await
}
