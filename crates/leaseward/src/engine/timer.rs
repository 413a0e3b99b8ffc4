//! The one timer of a client: no task and no timer per lease.
//!
//! A token has one entry in it at most, ordered by time, which goes with the token. Renewal moments are rounded to a grid
//! by the leases themselves, so that thousands of them are renewed in few batches.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{Arc, Weak, atomic::Ordering},
    task::Poll,
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Engine, acquisition::Event, cell::TokenCell};
use crate::clock::{Clock, Moment};

pub(super) struct Timer {
    wakes: Mutex<Wakes>,
    sooner: Notify,
}

struct Wakes {
    tokens: BTreeMap<(Moment, u64), Arc<TokenCell>>,
    /// When the lane is looked at for what stands in it.
    lane_at: Moment,
    /// When the timer wakes by itself.
    planned: Moment,
    /// Tokens that have to be given back.
    owed: isize,
    /// While there are such tokens, the client lives on, though its last user has gone.
    keeps: Option<Arc<Engine>>,
    is_closed: bool,
}

impl Timer {
    pub(super) fn new() -> Self {
        let wakes = Wakes {
            tokens: BTreeMap::new(),
            lane_at: Moment::NEVER,
            planned: Moment::NEVER,
            owed: 0,
            keeps: None,
            is_closed: false,
        };
        Self { wakes: Mutex::new(wakes), sooner: Notify::new() }
    }

    /// Wakes for a token at a moment, instead of the one before. Calls nothing: it may be called under any lock.
    pub(super) fn wake_at(&self, cell: &Arc<TokenCell>, at: Moment) {
        let mut wakes = self.wakes.lock();
        let before = Moment::from_nanos(cell.wakes_at.swap(at.as_nanos(), Ordering::Relaxed));
        if before == at {
            return;
        }
        if before != Moment::NEVER {
            wakes.tokens.remove(&(before, cell.id));
        }
        if at != Moment::NEVER {
            wakes.tokens.insert((at, cell.id), cell.clone());
        }
        let is_sooner = at < wakes.planned;
        drop(wakes);
        if is_sooner {
            self.sooner.notify_one();
        }
    }

    /// So many tokens more, or fewer, have to be given back.
    pub(super) fn owes(&self, tokens: isize, engine: &Arc<Engine>) {
        let mut wakes = self.wakes.lock();
        wakes.owed += tokens;
        let keeps = (wakes.owed > 0 && !wakes.is_closed).then(|| engine.clone());
        let before = std::mem::replace(&mut wakes.keeps, keeps);
        drop(wakes);
        // Not under the lock: this may be the last of it.
        drop(before);
    }

    /// The client is not kept for what has to be given back any more.
    pub(super) fn lets_go(&self) {
        let mut wakes = self.wakes.lock();
        wakes.is_closed = true;
        let before = wakes.keeps.take();
        drop(wakes);
        drop(before);
    }

    pub(super) fn look_at_lane_at(&self, at: Moment) {
        let mut wakes = self.wakes.lock();
        wakes.lane_at = wakes.lane_at.min(at);
        let is_sooner = at < wakes.planned;
        drop(wakes);
        if is_sooner {
            self.sooner.notify_one();
        }
    }

    pub(super) fn close(&self) {
        self.wakes.lock().is_closed = true;
        self.sooner.notify_one();
    }

    /// When there is something to do next; `None` once it is closed.
    fn plan(&self) -> Option<Moment> {
        let mut wakes = self.wakes.lock();
        let first = wakes.tokens.first_key_value().map_or(Moment::NEVER, |((at, _), _)| *at);
        wakes.planned = first.min(wakes.lane_at);
        (!wakes.is_closed).then_some(wakes.planned)
    }

    /// The tokens whose time has come, at most so many; and whether the lane is to be looked at.
    fn due(&self, now: Moment, most: usize) -> (Vec<Arc<TokenCell>>, bool) {
        let mut wakes = self.wakes.lock();
        let mut due = Vec::new();
        while due.len() < most
            && let Some(first) = wakes.tokens.first_entry()
            && first.key().0 <= now
        {
            let cell = first.remove();
            cell.wakes_at.store(Moment::NEVER.as_nanos(), Ordering::Relaxed);
            due.push(cell);
        }
        let is_lane_due = wakes.lane_at <= now;
        if is_lane_due {
            wakes.lane_at = Moment::NEVER;
        }
        (due, is_lane_due)
    }

    /// Runs until the engine is gone.
    pub(super) async fn run(self: Arc<Self>, engine: Weak<Engine>, clock: Arc<dyn Clock>) {
        let _last = Last(engine.clone());
        while let Some(at) = self.plan() {
            let mut sooner = std::pin::pin!(self.sooner.notified());
            let mut slept = clock.sleep_until(at);
            std::future::poll_fn(|cx| {
                let is_due = sooner.as_mut().poll(cx).is_ready()
                    || (at != Moment::NEVER && slept.as_mut().poll(cx).is_ready());
                if is_due { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            let Some(engine) = engine.upgrade() else { return };
            // In steps of a batch: a hundred thousand leases due at one moment keep no others from this thread.
            let step = engine.store.capability().batch_max.max(1);
            let (due, is_lane_due) = self.due(clock.now(), step);
            if due.is_empty() && !is_lane_due {
                continue;
            }
            engine.round(&due);
            drop(engine);
            tokio::task::yield_now().await;
        }
    }
}

impl Engine {
    /// Looks after the tokens whose time has come. What they send goes out together.
    fn round(self: &Arc<Self>, due: &[Arc<TokenCell>]) {
        let gathering = self.begin_sending();
        for cell in due {
            self.on(cell, Event::Due);
        }
        if let Some(gathering) = gathering {
            self.send_all_due(gathering);
        }
        if let Some(lead) = self.store.fence_lead() {
            self.events.fence_lead(lead);
        }
    }
}

/// Dropped with the timer: if the engine is still there, the runtime has ended under it.
struct Last(Weak<Engine>);

impl Drop for Last {
    fn drop(&mut self) {
        if let Some(engine) = self.0.upgrade() {
            engine.orphan();
        }
    }
}
