//! What a client says about itself.

use std::sync::Arc;

use leaseward::{Event, EventKind, Locks};
use tokio::sync::watch;

/// The events of one client.
#[derive(Clone, Debug)]
pub struct Heard(Arc<watch::Sender<Vec<Event>>>);

impl Heard {
    /// Listens to a client from now on.
    pub fn of(locks: &Locks) -> Self {
        let events = Arc::new(watch::Sender::new(Vec::new()));
        let sink = events.clone();
        locks.on_event(move |event| sink.send_modify(|all| all.push(event.clone())));
        Self(events)
    }

    /// What was heard so far.
    pub fn all(&self) -> Vec<Event> {
        self.0.borrow().clone()
    }

    /// Waits for the first event of a kind.
    pub async fn first(&self, kind: EventKind) -> Event {
        self.nth(kind, 1).await
    }

    /// Waits for the so-many-th event of a kind.
    pub async fn nth(&self, kind: EventKind, count: usize) -> Event {
        let of_kind = |events: &[Event]| {
            events.iter().filter(|event| event.kind == kind).nth(count - 1).cloned()
        };
        let mut events = self.0.subscribe();
        let events = events.wait_for(|events| of_kind(events).is_some()).await;
        of_kind(&events.expect("BUG: the channel is ours")).expect("BUG: waited for")
    }
}
