//! How leases are given back by their holders.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{
    Engine,
    acquisition::Event,
    caller::Waiter,
    cell::TokenCell,
    events::{Hold, Origin},
    names::Visit,
};
use crate::{Error, ErrorKind, Fence, LostReason, Release};

/// How a lease stands when its guard is done with it.
enum Left {
    /// It had ended before, and its holder was told: it was lost, or given back by a shutdown.
    Ended,
    /// Its deadline has passed, which had not been noticed yet.
    Expired,
    /// It goes to the next caller here, or to the store.
    GivenBack,
}

impl Engine {
    /// A guard is done with its lease.
    fn give_back(
        self: &Arc<Self>,
        cell: &Arc<TokenCell>,
        fence: Fence,
        event: Event<Waiter>,
    ) -> (Left, Hold) {
        self.visit(cell.hash, |visit| {
            let held = cell.held_for(visit.around.now());
            let Some(origin) = self.take_holder(visit, cell) else {
                return (Left::Ended, Hold { fence, held, origin: None });
            };
            let is_over = cell.deadline() <= visit.around.now();
            visit.on(cell, event);
            let left = if is_over { Left::Expired } else { Left::GivenBack };
            (left, Hold { fence, held, origin })
        })
    }

    /// Takes note that the holder of a token lets go; `None` if it holds nothing any more. The origin is dropped once no lock
    /// is held: its span is code of the user's.
    pub(super) fn take_holder(
        &self,
        visit: &mut Visit<'_, Waiter>,
        cell: &Arc<TokenCell>,
    ) -> Option<Option<Arc<Origin>>> {
        let entry = visit.names.find(cell).filter(|entry| entry.acquisition.is_held())?;
        let holder = entry.holder.take();
        self.order.released(holder.as_ref().and_then(|holder| holder.owner.as_ref()), &cell.name);
        Some(holder.and_then(|holder| holder.origin))
    }

    /// Gives a lease back and says what became of it.
    ///
    /// Cancelled, it still goes back, but nobody is told.
    pub(crate) async fn release(
        self: &Arc<Self>,
        cell: &Arc<TokenCell>,
        fence: Fence,
    ) -> Result<Release, Error> {
        let (tell, mut told) = oneshot::channel();
        let (left, hold) = self.give_back(cell, fence, Event::Released(Some(tell)));
        self.tell_left(cell, &left, &hold);
        if let Left::Ended | Left::Expired = left {
            return Ok(Release::AlreadyExpired);
        }
        let outcome = match told.try_recv() {
            Ok(outcome) => outcome,
            Err(_) => told.await.unwrap_or_else(|_| Err(unknown())),
        };
        match &outcome {
            Ok(Release::Released) => self.events.released(cell, &hold),
            Ok(Release::AlreadyExpired) => self.events.expired_before_release(cell, &hold, true),
            Err(_) => {}
        }
        outcome
    }

    /// Gives a lease back in the background.
    pub(crate) fn release_unseen(self: &Arc<Self>, cell: &Arc<TokenCell>, fence: Fence) {
        self.release_as(cell, fence, Event::Released(None));
    }

    /// The same for a lease that was never put to use: without its minimum hold.
    pub(crate) fn release_unused(self: &Arc<Self>, cell: &Arc<TokenCell>, fence: Fence) {
        self.release_as(cell, fence, Event::Unused);
    }

    fn release_as(self: &Arc<Self>, cell: &Arc<TokenCell>, fence: Fence, event: Event<Waiter>) {
        let (left, hold) = self.give_back(cell, fence, event);
        self.tell_left(cell, &left, &hold);
        if let Left::GivenBack = left {
            self.events.released(cell, &hold);
        }
    }

    /// Tells what is known of a hold before the store is asked.
    fn tell_left(&self, cell: &TokenCell, left: &Left, hold: &Hold) {
        if cell.ended() != Some(LostReason::ShutDown) {
            self.events.hold_ended(cell, hold);
        }
        if let Left::Expired = left {
            self.events.expired_before_release(cell, hold, false);
        }
    }

    /// Forgets a lease without giving it back: another process takes it over by a handle. Callers that wait here ask for
    /// themselves.
    pub(crate) fn detach(self: &Arc<Self>, cell: &Arc<TokenCell>) {
        let _origin = self.visit(cell.hash, |visit| {
            let holder = self.take_holder(visit, cell);
            if holder.is_some() {
                visit.on(cell, Event::Detached);
            }
            holder
        });
    }
}

fn unknown() -> Error {
    Error::new(ErrorKind::Indeterminate, "the runtime that gives leases back has shut down")
        .hint("the lease ends by itself when its TTL is over")
}
