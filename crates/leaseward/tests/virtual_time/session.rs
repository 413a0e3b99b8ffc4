//! What stores with sessions say, which the memory store never does: a session that ends at the worst moment, a deadline
//! that counts from long before the request.

use std::{sync::Arc, time::Duration};

use leaseward::{
    Error, Locks, LostReason, MultiAttempt,
    clock::{BoxFuture, Clock, VirtualClock},
    store::{
        Answer, Batch, Break, Broken, Capability, Completion, Evidence, Guarantee, LockView,
        Operation, Push, PushSink, Query, Reply, Store, answer_later,
    },
    stores::memory::Memory,
};
use parking_lot::Mutex;

/// What befalls the next ask.
#[derive(Clone, Copy, Debug)]
enum Twist {
    /// The session ends while it is being sent.
    SessionLost,
    /// What it is granted counts from so long before it.
    Earlier(Duration),
    /// It is told that its token will never be served.
    Gone,
}

/// A memory store with a twist.
#[derive(Debug)]
struct Twisted {
    inner: Memory,
    clock: Arc<VirtualClock>,
    next: Mutex<Option<Twist>>,
    sink: Mutex<Option<Sink>>,
}

struct Sink(PushSink);

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sink")
    }
}

impl Twisted {
    fn locks(twist: Twist) -> Locks {
        let clock = Arc::new(VirtualClock::new());
        let inner = Memory::new(clock.clone());
        let (next, sink) = (Mutex::new(Some(twist)), Mutex::default());
        let store = Self { inner, clock: clock.clone(), next, sink };
        Locks::builder().clock(clock).over(Arc::new(store)).expect("a client")
    }
}

impl Store for Twisted {
    fn capability(&self) -> &Capability {
        self.inner.capability()
    }

    fn guarantee(&self) -> Guarantee {
        self.inner.guarantee()
    }

    fn location(&self) -> String {
        "memory: with a twist".into()
    }

    fn start(&self, sink: PushSink) {
        *self.sink.lock() = Some(Sink(sink.clone()));
        self.inner.start(sink);
    }

    fn submit(&self, batch: Batch, reply: Completion) {
        let asks = batch.iter().any(|operation| matches!(operation, Operation::Ask(_)));
        let Some(twist) = self.next.lock().take_if(|_| asks) else {
            return self.inner.submit(batch, reply);
        };
        let sent = self.clock.now();
        match twist {
            Twist::SessionLost => {
                let sink = self.sink.lock().as_ref().map(|sink| sink.0.clone());
                sink.expect("it has started")(Push::SessionLost);
            }
            Twist::Gone => {
                let gone = |_| Ok(Reply::Gone(LostReason::SessionEnded));
                return reply.answer_all(batch.iter().map(gone));
            }
            Twist::Earlier(_) => {}
        }
        let carried_out = self.inner.carry_out(batch);
        let answers = async move {
            let twisted = |answer: Answer| match (answer, twist) {
                (Ok(Reply::Granted(mut grant)), Twist::Earlier(by)) => {
                    grant.evidence = Evidence::Sent(sent.before(by));
                    Ok(Reply::Granted(grant))
                }
                (answer, _) => answer,
            };
            carried_out.await.into_iter().map(twisted).collect()
        };
        answer_later(answers, reply);
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

#[tokio::test(start_paused = true)]
async fn a_session_that_ends_while_it_is_asked_for_is_asked_for_again() {
    let locks = Twisted::locks(Twist::SessionLost);
    let lock = locks.lock("x");
    let waits = tokio::time::timeout(Duration::from_secs(3600), lock.acquire());
    let guard = waits.await.expect("it waits for ever").expect("the store answers");
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_lease_counts_from_what_the_store_says() {
    let (ttl, by) = (Duration::from_secs(10), Duration::from_secs(3));
    let locks = Twisted::locks(Twist::Earlier(by));
    let held = locks.lock("x").ttl(ttl).acquire().await.expect("the store answers");
    assert!(held.remaining() <= ttl - by, "{:?} are left", held.remaining());
}

#[tokio::test(start_paused = true)]
async fn several_names_that_ended_before_they_were_held_are_asked_for_again() {
    let locks = Twisted::locks(Twist::Gone);
    let taken = locks.all(["x", "y"]).try_acquire().await.expect("the store answers");
    let MultiAttempt::Granted(guard) = taken else { panic!("nothing was left behind") };
    assert!(guard.is_held());
}
