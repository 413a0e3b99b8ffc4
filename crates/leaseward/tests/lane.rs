//! What goes to the store when: batches, withdrawals, lost completions.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

use leaseward::{
    Error, Guard, Locks,
    clock::{BoxFuture, SystemClock},
    store::{
        Batch, Break, Broken, Capability, Completion, Guarantee, LockView, Operation, PushSink,
        Query, Store,
    },
    stores::memory::Memory,
};
use parking_lot::Mutex;

/// A memory store that keeps the batches it gets until it is told to carry them out.
#[derive(Debug)]
struct Keeping {
    inner: Arc<Memory>,
    capability: Capability,
    keeps: AtomicBool,
    kept: Mutex<Vec<(Batch, Completion)>>,
    seen: Mutex<Vec<Batch>>,
}

impl Keeping {
    fn new(one_batch_at_a_time: bool) -> Arc<Self> {
        let inner = Arc::new(Memory::new(Arc::new(SystemClock)));
        let mut capability = inner.capability().clone();
        capability.one_batch_at_a_time = one_batch_at_a_time;
        let (keeps, kept, seen) = (AtomicBool::new(false), Mutex::default(), Mutex::default());
        Arc::new(Self { inner, capability, keeps, kept, seen })
    }

    fn keep(&self) {
        self.keeps.store(true, Ordering::SeqCst);
        self.seen.lock().clear();
    }

    /// Carries out what it has kept, and what comes from here on.
    fn let_go(&self) {
        self.keeps.store(false, Ordering::SeqCst);
        for (batch, reply) in self.take() {
            self.inner.submit(batch, reply);
        }
    }

    fn take(&self) -> Vec<(Batch, Completion)> {
        std::mem::take(&mut self.kept.lock())
    }

    fn sizes(&self) -> Vec<usize> {
        self.seen.lock().iter().map(Vec::len).collect()
    }

    fn has_seen(&self, wanted: impl Fn(&Operation) -> bool) -> bool {
        self.seen.lock().iter().flatten().any(wanted)
    }
}

impl Store for Keeping {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    fn guarantee(&self) -> Guarantee {
        self.inner.guarantee()
    }

    fn location(&self) -> String {
        "memory: that keeps".into()
    }

    fn start(&self, sink: PushSink) {
        self.inner.start(sink);
    }

    fn submit(&self, batch: Batch, reply: Completion) {
        self.seen.lock().push(batch.clone());
        if self.keeps.load(Ordering::SeqCst) {
            self.kept.lock().push((batch, reply));
        } else {
            self.inner.submit(batch, reply);
        }
    }

    fn inspect(&self, query: Query) -> BoxFuture<'static, Result<Vec<LockView>, Error>> {
        self.inner.inspect(query)
    }

    fn break_lease(&self, order: Break) -> BoxFuture<'static, Result<Broken, Error>> {
        self.inner.break_lease(order)
    }

    fn ping(&self) -> BoxFuture<'static, Result<Duration, Error>> {
        self.inner.ping()
    }
}

type Asking = Pin<Box<dyn Future<Output = Result<Guard, Error>> + Send>>;

/// Asks for a name, so far that what is sent at once has been sent.
async fn asking(locks: &Locks, name: &str) -> Asking {
    let lock = locks.lock(name).ttl(Duration::from_secs(60));
    let mut asking: Asking = Box::pin(async move { lock.acquire().await });
    std::future::poll_fn(|cx| {
        assert!(asking.as_mut().poll(cx).is_pending(), "the store has kept it");
        Poll::Ready(())
    })
    .await;
    asking
}

async fn asking_for(locks: &Locks, count: usize) -> Vec<Asking> {
    let mut all = Vec::new();
    for at in 0..count {
        all.push(asking(locks, &format!("n{at}")).await);
    }
    all
}

async fn until(mut is_so: impl FnMut() -> bool) {
    let waits = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waits).await.expect("it comes to be so");
}

#[tokio::test]
async fn a_batch_goes_once_it_is_at_least_half_of_what_is_under_way() {
    let store = Keeping::new(false);
    let locks = Locks::over(store.clone()).expect("a runtime");
    store.keep();
    let all = asking_for(&locks, 10).await;
    assert_eq!(store.sizes(), [1, 1, 1, 2, 3], "two of ten wait: eight are under way");
    store.let_go();
    for asked in all {
        drop(asked.await.expect("granted"));
    }
}

#[tokio::test]
async fn a_store_that_wants_one_batch_at_a_time_gets_one() {
    let store = Keeping::new(true);
    let locks = Locks::over(store.clone()).expect("a runtime");
    store.keep();
    let all = asking_for(&locks, 10).await;
    assert_eq!(store.sizes(), [1]);
    store.let_go();
    assert_eq!(store.sizes(), [1, 9]);
    for asked in all {
        drop(asked.await.expect("granted"));
    }
}

#[tokio::test]
async fn a_release_does_not_stand_behind_batches_that_hang() {
    for one_batch_at_a_time in [false, true] {
        let store = Keeping::new(one_batch_at_a_time);
        let locks = Locks::over(store.clone()).expect("a runtime");
        let held = locks.lock("held").acquire().await.expect("free");
        store.keep();
        let _all = asking_for(&locks, 8).await;
        drop(held);
        let is_release = |operation: &Operation| matches!(operation, Operation::Release(_));
        assert!(!store.has_seen(is_release), "it waits at first");
        until(|| store.has_seen(is_release)).await;
    }
}

#[tokio::test]
async fn an_ask_that_was_not_sent_is_withdrawn_and_nothing_follows() {
    let store = Keeping::new(true);
    let locks = Locks::over(store.clone()).expect("a runtime");
    store.keep();
    let first = asking(&locks, "first").await;
    let gives_up = asking(&locks, "unsent").await;
    drop(gives_up);
    store.let_go();
    first.await.expect("granted").release().await.expect("ours");
    assert!(!store.has_seen(|operation| operation.name().as_str() == "unsent"));
}

/// Whatever becomes of a completion, the same token asks again.
#[tokio::test]
async fn an_ask_whose_completion_is_dropped_is_asked_again() {
    let store = Keeping::new(false);
    let locks = Locks::over(store.clone()).expect("a runtime");
    store.keep();
    let asked = tokio::spawn(asking(&locks, "x").await);
    drop(store.take());
    until(|| store.sizes().len() == 2).await;
    let tokens: Vec<_> = store.seen.lock().iter().flatten().map(token_of).collect();
    assert_eq!(tokens[0], tokens[1], "another token asked while the first may hold the name");
    store.let_go();
    drop(asked.await.expect("no panic").expect("granted"));
}

fn token_of(operation: &Operation) -> String {
    match operation {
        Operation::Ask(ask) => ask.token.reveal(),
        Operation::Renew(renew) => renew.token.reveal(),
        Operation::Release(release) => release.token.reveal(),
    }
}

/// Callers that give up anywhere leave nothing: not in the store, not in the table.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_callers_that_give_up_leave_nothing_behind() {
    let store = Keeping::new(false);
    let locks = Locks::over(store.clone()).expect("a runtime");
    let mut tasks = Vec::new();
    for at in 0..10_000_u64 {
        let lock = locks.lock(format!("n{}", at % 7));
        tasks.push(tokio::spawn(async move {
            let patience = Duration::from_micros(at * 7_919 % 3_000);
            drop(tokio::time::timeout(patience, lock.acquire()).await);
        }));
    }
    for task in tasks {
        task.await.expect("no panic");
    }
    until(|| format!("{locks:?}").contains("tokens: []")).await;
    let left = store.inspect(Query::all()).await.expect("memory answers");
    assert!(left.is_empty(), "{left:?}");
}
