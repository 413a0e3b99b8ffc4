//! The end: everything held is given back, everybody who waits is told.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::sync::oneshot;

use super::{
    Engine,
    bid::{Bid, Outcome},
    enter::until,
    lane::{Job, Target, Which},
};
use crate::{
    LostReason,
    store::{Operation, Release},
};

/// How long the store may take to answer the last releases; what it did not hear of ends by its TTL.
const SHUTDOWN_MAX: Duration = Duration::from_secs(10);

/// How often it is looked whether the lanes are empty: they are, unless something was dropped a moment before.
const DRAIN_GLANCE: Duration = Duration::from_millis(1);

impl Engine {
    /// Gives back all leases in as few batches as they fit in, then closes the store. Never hangs.
    pub(crate) async fn shut_down(self: &Arc<Self>) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut jobs = Vec::new();
        let mut answers = Vec::new();
        for bid in self.table.all() {
            let Some(release) = self.end_for_good(&bid) else { continue };
            let (tell, told) = oneshot::channel();
            let operation = Operation::Release(release);
            jobs.push(Job { operation, target: Target::Tell(tell, None) });
            answers.push(told);
        }
        let all_told = async {
            self.send(Which::Asks, jobs).await;
            for told in answers {
                let _ = told.await;
            }
            self.drained().await;
        };
        let limit = self.clock.now() + SHUTDOWN_MAX;
        until(&self.clock, Some(limit), all_told).await;
        self.store.close().await;
    }

    /// Waits until nothing is under way: a guard or a wait that was dropped, or timed out, just before leaves by itself,
    /// and the process may end right after the shutdown.
    async fn drained(&self) {
        while !(self.asks.is_idle() && self.renewals.is_idle()) {
            self.clock.sleep_until(self.clock.now() + DRAIN_GLANCE).await;
        }
    }

    /// Ends a bid, tells its holder and waiters, and answers with the release that is still to be sent.
    fn end_for_good(&self, bid: &Arc<Bid>) -> Option<Release> {
        let mut shard = self.table.lock(&bid.name);
        let mut state = bid.state.lock();
        if state.claim.is_ended() {
            return None;
        }
        let keep = self.min_hold_left(bid, &state);
        let waiters = state.take_waiters();
        state.claim.end();
        self.bury(&mut shard, bid, state);
        drop(shard);
        bid.end(LostReason::ShutDown);
        for waiter in waiters {
            if let Err(error) = self.check_open() {
                let _ = waiter.tell.send(Outcome::Failed(error));
            }
        }
        Some(Release { name: bid.name.clone(), token: bid.token.clone(), keep })
    }
}
