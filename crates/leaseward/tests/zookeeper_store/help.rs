//! What the tests are written with.

use std::{sync::Arc, time::Duration};

use leaseward::{
    Attempt, Guard, Lock, Locks, Name,
    clock::SystemClock,
    store::{self, LockView, OpenContext, Query, Store},
};

/// Longer than any test: what comes free sooner did not come free by expiry.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// Short, but so long that a busy machine does not end it.
pub(crate) const SHORT: Duration = Duration::from_secs(2);

const LOOK_EVERY: Duration = Duration::from_millis(10);
const LOOKS_MAX: u32 = 6_000;

/// A client that passes nothing on by itself: each waiter stands in the store's line.
pub(crate) async fn client(url: &str, who: &str) -> Locks {
    over(store(url, who).await, who)
}

pub(crate) async fn store(url: &str, who: &str) -> Arc<dyn Store> {
    let context = OpenContext { clock: Arc::new(SystemClock), who: Arc::from(who) };
    store::open(url, context).await.expect("the servers are reached")
}

pub(crate) fn over(store: Arc<dyn Store>, who: &str) -> Locks {
    Locks::builder().who(who).cohorts(false).over(store).expect("a client can be made")
}

pub(crate) async fn take(lock: &Lock) -> Guard {
    match lock.try_acquire().await.expect("the store answers") {
        Attempt::Granted(guard) => guard,
        Attempt::Busy(busy) => panic!("it must be free, but is {busy}"),
    }
}

pub(crate) async fn is_busy(lock: &Lock) -> bool {
    matches!(lock.try_acquire().await.expect("the store answers"), Attempt::Busy(_))
}

pub(crate) async fn view(locks: &Locks, name: &str) -> LockView {
    let name = Name::new(name).expect("a good name");
    let views = locks.inspect(Query::Name(name.clone())).await.expect("the store answers");
    views.into_iter().next().unwrap_or(LockView { name, holders: vec![], waiters: vec![] })
}

/// Asks again and again until there is an answer.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut ask: impl FnMut() -> F,
) -> T {
    for _ in 0..LOOKS_MAX {
        if let Some(answer) = ask().await {
            return answer;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    panic!("never came to be so: {what}");
}

pub(crate) async fn queue_of(locks: &Locks, name: &str, len: usize) {
    until(&format!("{len} wait for `{name}`"), || async {
        // A look may fall into an election.
        let name = Name::new(name).expect("a good name");
        let views = locks.inspect(Query::Name(name)).await.ok()?;
        let waiters = views.first().map_or(0, |view| view.waiters.len());
        (waiters == len).then_some(())
    })
    .await;
}
