//! One task for the timers of all calls, as long as there are calls: a timer for each would cost more than the call.

use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use super::{client::Client, hearing::Hearing};

/// The calls that are looked after, the oldest first.
#[derive(Default)]
pub(super) struct Overdue(Mutex<Calls>);

#[derive(Default)]
struct Calls {
    all: VecDeque<Weak<Hearing>>,
    /// Whether there is a task that looks after them.
    is_watched: bool,
}

impl Client {
    /// Makes sure that somebody notices if a call is not answered in time.
    pub(super) fn look_after(self: &Arc<Self>, hearing: &Arc<Hearing>) {
        let mut calls = self.overdue.0.lock();
        while calls.all.front().is_some_and(|first| first.strong_count() == 0) {
            calls.all.pop_front();
        }
        calls.all.push_back(Arc::downgrade(hearing));
        if !std::mem::replace(&mut calls.is_watched, true) {
            drop(calls);
            self.spawn(watch(Arc::downgrade(self), hearing.begun() + self.config.timeout));
        }
    }

    /// When to look again; `None` if there is nothing left to look after.
    fn look_over(&self) -> Option<Instant> {
        let calls: Vec<_> = self.overdue.0.lock().all.iter().filter_map(Weak::upgrade).collect();
        // Before then no call is overdue that begins from now on.
        let mut next = Instant::now() + self.config.timeout;
        for hearing in calls {
            if let Some(due) = hearing.look_over(self.config.timeout, self.config.node.timeout) {
                next = next.min(due);
            }
        }
        let mut calls = self.overdue.0.lock();
        calls.all.retain(|hearing| hearing.strong_count() > 0);
        calls.is_watched = !calls.all.is_empty();
        calls.is_watched.then_some(next)
    }
}

async fn watch(client: Weak<Client>, mut next: Instant) {
    loop {
        sleep_until(next).await;
        let Some(client) = client.upgrade() else { return };
        match client.look_over() {
            Some(again) => next = again,
            None => return,
        }
    }
}
