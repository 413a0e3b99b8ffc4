//! The end: everything held is given back, every caller that waits is told.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use super::{Engine, acquire::until, acquisition::Event, cell::TokenCell, events::Hold};

/// How long the store may take to answer the last releases; what it did not hear of ends by its TTL.
const SHUTDOWN_MAX: Duration = Duration::from_secs(10);

/// How often the table is looked at in the end.
const LOOK_EVERY: Duration = Duration::from_millis(1);

impl Engine {
    /// Gives back all leases in as few batches as they fit in, then closes the store. Never hangs.
    pub(crate) async fn shut_down(self: &Arc<Self>) {
        self.closed.store(true, Ordering::SeqCst);
        // A second caller waits for the first, and goes on where that one was cancelled.
        let mut is_done = self.is_shut_down.lock().await;
        if *is_done {
            return;
        }
        self.end_all();
        let limit = self.clock.now() + SHUTDOWN_MAX;
        until(&self.clock, Some(limit), self.all_given_back()).await;
        self.store.close().await;
        self.events.all_written().await;
        *is_done = true;
    }

    /// The runtime that minds leases has ended, or its task has: nothing is renewed any more, so nothing may be held.
    pub(super) fn orphan(self: &Arc<Self>) {
        self.closed.store(true, Ordering::SeqCst);
        self.lane.close();
        self.end_all();
        self.timer.lets_go();
    }

    /// Ends every token, and tells its holder and its callers. What is sent goes out together.
    fn end_all(self: &Arc<Self>) {
        let gathering = self.begin_sending();
        for cell in self.table.select(|_| true) {
            self.end(&cell);
        }
        if let Some(gathering) = gathering {
            self.send_all_due(gathering);
        }
    }

    fn end(self: &Arc<Self>, cell: &Arc<TokenCell>) {
        let hold = self.visit(cell.hash, |visit| {
            let now = visit.around.now();
            // What has expired is reported as lost, with its holder.
            let is_over = cell.deadline() <= now;
            let holder = if is_over { None } else { self.take_holder(visit, cell) };
            let hold =
                holder.map(|origin| Hold { fence: cell.fence(), held: cell.held_for(now), origin });
            visit.on(cell, Event::Closing);
            hold
        });
        if let Some(hold) = hold {
            self.events.hold_ended(cell, &hold);
            self.events.released(cell, &hold);
        }
    }

    /// Waits until the store has answered for every token. Looked at, not signalled: a signal would cost every token
    /// something for the sake of the last one.
    async fn all_given_back(&self) {
        while self.table.any(|entry| entry.acquisition.is_releasing()) || !self.lane.is_idle() {
            self.clock.sleep_until(self.clock.now() + LOOK_EVERY).await;
        }
    }
}
