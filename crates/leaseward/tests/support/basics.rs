//! Clients, and short forms of what is asked of a store. Shared by the tests of the stores.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use leaseward::{
    Attempt, Error, Guard, Lock, Locks, Mode,
    clock::SystemClock,
    store::{self, Answer, Ask, Grant, IfBusy, OpenContext, Operation, Reply, Store},
};

use crate::names::{name, token};

pub(crate) async fn try_open(url: &str) -> Result<Arc<dyn Store>, Error> {
    let context = OpenContext { clock: Arc::new(SystemClock), who: Arc::from("test:1") };
    store::open(url, context).await
}

pub(crate) async fn connect(url: &str) -> Locks {
    leaseward::connect(url).await.expect("the server can be reached")
}

pub(crate) async fn one(store: &dyn Store, operation: Operation) -> Answer {
    store.carry_out(vec![operation]).await.remove(0)
}

pub(crate) fn granted(answer: Answer) -> Grant {
    match answer {
        Ok(Reply::Granted(grant)) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

/// A lease that must be free.
pub(crate) async fn take(lock: Lock) -> Guard {
    match lock.try_acquire().await.expect("the server answers") {
        Attempt::Granted(guard) => guard,
        Attempt::Busy(busy) => panic!("it must be free, but is {busy}"),
    }
}

pub(crate) fn ask(what: &str, who: u128, if_busy: IfBusy, ttl: Duration) -> Ask {
    Ask {
        name: name(what),
        token: token(who),
        mode: Mode::Exclusive,
        ttl,
        if_busy,
        block: 1,
        value: None,
    }
}

/// Asks again and again until there is an answer, without holding up the runtime.
pub(crate) async fn until<T, F>(what: &str, patience: Duration, mut ask: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let begin = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(begin.elapsed() < patience, "not within {patience:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
