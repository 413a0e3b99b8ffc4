//! What other clients do is seen.

use leaseward::{
    Fence, Locks,
    store::{Observation, Observed},
};
use tokio::sync::mpsc;

use crate::{
    Case, Fixture, Need,
    case::case,
    support::{LONG, SHORT, asking, cancel, granted, queue_of, take},
};

pub(super) const CASES: &[Case] = &[
    case!(sees_what_another_client_does, Need::Queue),
    case!(sees_a_lease_end, Need::Records, Need::OwnTime).timed(),
    case!(sees_a_break, Need::Records),
    case!(sees_another_process, Need::Records, Need::Processes),
];

/// What happens to one name, as one client sees it.
struct Watch(mpsc::UnboundedReceiver<Observation>);

impl Watch {
    /// Starts to watch; once this is done, nothing is missed.
    async fn start(observer: &Locks, name: &'static str) -> Self {
        let (tell, watched) = mpsc::unbounded_channel();
        let mut observed = observer.observe().await.expect("the store answers");
        tokio::spawn(async move {
            // A server that ends with its case ends this too; a case that still listens fails at that.
            while let Ok(Some(seen)) = observed.next().await {
                if seen.name.as_str() == name && tell.send(seen).is_err() {
                    return;
                }
            }
        });
        Self(watched)
    }

    /// Waits for a happening; others may come before it.
    async fn sees(&mut self, what: Observed, fence: Option<Fence>) -> Observation {
        loop {
            let seen = self.0.recv().await.expect("the observer goes on");
            if seen.what == what {
                assert_eq!(seen.fence, fence, "{seen:?}");
                return seen;
            }
        }
    }
}

async fn sees_what_another_client_does(fixture: &Fixture) {
    let observer = fixture.client().await;
    let one = fixture.client_with(|builder| builder.who("first")).await;
    let other = fixture.client_with(|builder| builder.who("second")).await;
    let mut watch = Watch::start(&observer, "x").await;
    let guard = take(&one.lock("x").ttl(LONG)).await;
    let seen = watch.sees(Observed::Granted, Some(guard.fence())).await;
    assert_eq!(&*seen.who, "first");
    let waiting = asking(other.lock("x").ttl(LONG));
    assert_eq!(&*watch.sees(Observed::Queued, None).await.who, "second");
    let fence = guard.fence();
    guard.release().await.expect("given back");
    assert_eq!(&*watch.sees(Observed::Released, Some(fence)).await.who, "first");
    let next = granted(waiting).await;
    let seen = watch.sees(Observed::HandedOver, Some(next.fence())).await;
    assert_eq!(&*seen.who, "second");
    let waiting = asking(one.lock("x").ttl(LONG));
    watch.sees(Observed::Queued, None).await;
    cancel(waiting).await;
    queue_of(&observer, "x", 0).await;
    assert_eq!(&*watch.sees(Observed::Left, None).await.who, "first");
    let fence = next.fence();
    next.release().await.expect("given back");
    watch.sees(Observed::Released, Some(fence)).await;
}

async fn sees_a_lease_end(fixture: &Fixture) {
    let observer = fixture.client().await;
    let (gone, line) = fixture.faulty().await;
    let mut watch = Watch::start(&observer, "x").await;
    let guard = take(&gone.lock("x").ttl(SHORT * 2)).await;
    watch.sees(Observed::Granted, Some(guard.fence())).await;
    // Not before it was seen: where snapshots are compared, a short lease may begin and end between two.
    line.cut();
    fixture.until(guard.deadline() + SHORT).await;
    // A store ends what has expired when somebody asks.
    let next = take(&observer.lock("x")).await;
    watch.sees(Observed::Expired, Some(guard.fence())).await;
    assert!(next.fence() > guard.fence());
}

async fn sees_a_break(fixture: &Fixture) {
    let (observer, one) = (fixture.client().await, fixture.client().await);
    let mut watch = Watch::start(&observer, "x").await;
    let guard = take(&one.lock("x").ttl(LONG)).await;
    watch.sees(Observed::Granted, Some(guard.fence())).await;
    observer.break_lease("x", false).await.expect("broken");
    watch.sees(Observed::Broken, Some(guard.fence())).await;
}

async fn sees_another_process(fixture: &Fixture) {
    let observer = fixture.client().await;
    let mut taker = fixture.taker().await;
    let mut watch = Watch::start(&observer, "x").await;
    let fence = taker.hold("x", 3_600_000).await;
    watch.sees(Observed::Granted, Some(fence)).await;
    taker.tell("release x").await;
    watch.sees(Observed::Released, Some(fence)).await;
}
