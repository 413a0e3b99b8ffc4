//! The end: everything held is given back, everybody who waits is told.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::sync::oneshot;

use super::{
    Engine,
    bid::{Bid, Outcome, Seat},
    enter::until,
    events::Hold,
    lane::{Job, Target, Which},
    leave::{RELEASE_AGAIN, RELEASE_AGAIN_MAX},
    shut_down,
};
use crate::{
    ErrorKind, LostReason,
    clock::Moment,
    store::{Answer, Operation, Release},
};

/// How long the store may take to answer the last releases; what it did not hear of ends by its TTL.
const SHUTDOWN_MAX: Duration = Duration::from_secs(10);

/// How often the lane is looked at in the end.
const LOOK_EVERY: Duration = Duration::from_millis(1);

impl Engine {
    /// Gives back all leases in as few batches as they fit in, then closes the store. Never hangs.
    pub(crate) async fn shut_down(self: &Arc<Self>) {
        self.closed.store(true, Ordering::SeqCst);
        // Whoever comes second waits for the first, and goes on where that one was cancelled.
        let mut is_done = self.is_shut_down.lock().await;
        if *is_done {
            return;
        }
        let ended =
            self.table.all().iter().filter_map(|bid| self.give_back_for_good(bid)).collect();
        let limit = self.clock.now() + SHUTDOWN_MAX;
        let all_given_back = async {
            self.give_back_all(ended).await;
            self.all_sent().await;
        };
        until(&self.clock, Some(limit), all_given_back).await;
        self.store.close().await;
        self.events.all_written().await;
        *is_done = true;
    }

    /// The runtime that minds leases has ended, or its task has: nothing is renewed any more, so nothing may be held.
    pub(super) fn orphan(&self) {
        self.closed.store(true, Ordering::SeqCst);
        for bid in self.table.all() {
            self.end_for_good(&bid);
        }
    }

    /// Waits until releases nobody waited for, those of guards just dropped, have been answered too.
    async fn all_sent(&self) {
        // Looked at, not signalled: a signal would cost every batch something for the sake of the last one.
        while !self.lane(Which::Asks).is_idle() {
            self.clock.sleep_until(self.clock.now() + LOOK_EVERY).await;
        }
    }

    /// Sends releases until each is answered, or its lease has ended by itself.
    async fn give_back_all(self: &Arc<Self>, mut left: Vec<(Release, Moment)>) {
        for attempt in 0.. {
            let (jobs, answers): (Vec<_>, Vec<_>) =
                left.iter().map(|(release, _)| telling(release.clone())).unzip();
            if let Some(drive) = self.send(Which::Asks, jobs) {
                drive.await;
            }
            let mut again = Vec::new();
            for ((release, deadline), answer) in left.into_iter().zip(answers) {
                let unheard = match answer.await {
                    Ok((_, Err(error))) => {
                        matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate)
                    }
                    _ => false,
                };
                if unheard && self.clock.now() < deadline {
                    again.push((release, deadline));
                }
            }
            if again.is_empty() {
                return;
            }
            left = again;
            let pause = self.jitter(RELEASE_AGAIN, RELEASE_AGAIN_MAX, attempt);
            self.clock.sleep_until(self.clock.now() + pause).await;
        }
    }

    /// Ends a bid, and answers with the release that is still to be sent, and until when that is of use.
    fn give_back_for_good(&self, bid: &Arc<Bid>) -> Option<(Release, Moment)> {
        let Ended { release, hold } = self.end_for_good(bid)?;
        if let Some(hold) = hold {
            self.events.hold_ended(bid, &hold);
            self.events.released(bid, &hold);
        }
        Some((release, bid.deadline()))
    }

    /// Ends a bid, and tells its holder and waiters.
    fn end_for_good(&self, bid: &Arc<Bid>) -> Option<Ended> {
        let mut shard = self.table.lock(&bid.name);
        let mut state = bid.state.lock();
        if state.claim.is_ended() {
            return None;
        }
        let now = self.clock.now();
        let keep = self.min_hold_left(bid, &state);
        let waiters = state.take_waiters();
        let (mut hold, mut lost, mut reason) = (None, None, LostReason::ShutDown);
        if state.seat == Seat::Taken && now >= bid.deadline() {
            // The timer has not come round to it: not given back, but lost.
            reason = LostReason::Expired;
            lost = self.events.lost(bid, &state, reason, now);
        } else if state.seat == Seat::Taken {
            let (fence, held) = (state.fence(), now.since(state.since));
            hold = Some(Hold { fence, held, origin: state.origin.take() });
        }
        state.claim.end();
        self.bury(&mut shard, bid, state);
        // Before its guard can look: what ends here is not told once more when that is dropped.
        bid.end(reason);
        drop(shard);
        if let Some(lost) = lost {
            self.events.tell_found(&lost);
        }
        for waiter in waiters {
            let _ = waiter.tell.send(Outcome::Failed(shut_down()).into());
        }
        let release = Release { name: bid.name.clone(), token: bid.token.clone(), keep };
        Some(Ended { release, hold })
    }
}

/// What is left to do about a bid that was ended for good.
struct Ended {
    release: Release,
    /// The hold of a guard that had the lease until now.
    hold: Option<Hold>,
}

/// A release, and where its answer comes.
fn telling(release: Release) -> (Job, oneshot::Receiver<(Moment, Answer)>) {
    let (tell, told) = oneshot::channel();
    (Job { operation: Operation::Release(release), target: Target::Tell(tell, None) }, told)
}
