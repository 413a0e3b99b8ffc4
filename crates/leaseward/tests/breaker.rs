//! A store that goes away and comes back: asks fail at once, renewals are tried, everything recovers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use leaseward::{
    Error, ErrorKind, EventKind, Locks,
    clock::{BoxFuture, SystemClock},
    store::{
        Batch, Break, Broken, Capability, Completion, Guarantee, LockView, PushSink, Query, Store,
    },
    stores::memory::Memory,
};

/// A memory store behind a plug that can be pulled.
#[derive(Debug)]
struct Plugged {
    store: Memory,
    is_down: AtomicBool,
    asked: AtomicUsize,
}

impl Plugged {
    fn new() -> Arc<Self> {
        let store = Memory::new(Arc::new(SystemClock));
        Arc::new(Self { store, is_down: AtomicBool::new(false), asked: AtomicUsize::new(0) })
    }

    fn pull(&self, down: bool) {
        self.is_down.store(down, Ordering::SeqCst);
    }
}

impl Store for Plugged {
    fn capability(&self) -> &Capability {
        self.store.capability()
    }
    fn guarantee(&self) -> Guarantee {
        self.store.guarantee()
    }
    fn location(&self) -> String {
        self.store.location()
    }
    fn start(&self, sink: PushSink) {
        self.store.start(sink);
    }
    fn submit(&self, batch: Batch, reply: Completion) {
        self.asked.fetch_add(batch.len(), Ordering::SeqCst);
        if !self.is_down.load(Ordering::SeqCst) {
            return self.store.submit(batch, reply);
        }
        let down = || Err(Error::new(ErrorKind::Unavailable, "the plug was pulled"));
        reply.answer_all(batch.iter().map(|_| down()));
    }
    fn inspect(&self, query: Query) -> BoxFuture<'static, Result<Vec<LockView>, Error>> {
        self.store.inspect(query)
    }
    fn break_lease(&self, order: Break) -> BoxFuture<'static, Result<Broken, Error>> {
        self.store.break_lease(order)
    }
    fn ping(&self) -> BoxFuture<'static, Result<Duration, Error>> {
        self.store.ping()
    }
}

/// Fails until the breaker is open.
async fn trip(locks: &Locks) {
    for _ in 0..5 {
        let error = locks.lock("other").acquire().await.expect_err("the store is down");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
    assert!(!locks.health().await.is_good());
}

#[tokio::test]
async fn an_open_breaker_answers_without_asking_and_says_why() {
    let store = Plugged::new();
    let locks = Locks::over(store.clone()).expect("a runtime");
    store.pull(true);
    trip(&locks).await;
    let asked = store.asked.load(Ordering::SeqCst);
    let error = locks.lock("other").acquire().await.expect_err("not asked");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().contains("the plug was pulled"), "{error}");
    assert_eq!(store.asked.load(Ordering::SeqCst), asked, "the store was asked");
}

#[tokio::test]
async fn a_caller_refused_beside_a_lease_it_cannot_join_is_told() {
    let store = Plugged::new();
    let locks = Locks::over(store.clone()).expect("a runtime");
    let handle = locks.lock("x").acquire().await.expect("free").detach();
    let _attached = locks.attach(&handle).await.expect("still live");
    store.pull(true);
    trip(&locks).await;
    let error = locks.lock("x").owner("another").acquire().await.expect_err("not asked");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn recovers_by_a_renewal_that_gets_through() {
    let store = Plugged::new();
    let locks = Locks::over(store.clone()).expect("a runtime");
    let (closed, mut closings) = tokio::sync::mpsc::unbounded_channel();
    locks.on_event(move |event| {
        if event.kind == EventKind::BreakerClosed {
            let _ = closed.send(());
        }
    });
    let guard = locks.lock("x").ttl(Duration::from_secs(3)).acquire().await.expect("free");
    store.pull(true);
    trip(&locks).await;
    store.pull(false);
    closings.recv().await.expect("a renewal is always tried, and closes it");
    assert!(guard.is_held());
    locks.lock("other").acquire().await.expect("asked again").release().await.expect("ours");
}

#[tokio::test]
async fn warns_before_a_lease_that_cannot_be_renewed_ends() {
    let store = Plugged::new();
    let locks = Locks::over(store.clone()).expect("a runtime");
    let (told, mut dangers) = tokio::sync::mpsc::unbounded_channel();
    let guard = locks
        .lock("x")
        .ttl(Duration::from_millis(400))
        .on_danger(move |danger| {
            let _ = told.send(danger);
        })
        .acquire()
        .await
        .expect("free");
    store.pull(true);
    let danger = dangers.recv().await.expect("told");
    assert_eq!(danger.name.as_str(), "x");
    assert!(danger.remaining <= Duration::from_millis(100), "told too early");
    assert_eq!(guard.lost().await, leaseward::LostReason::Expired);
}
