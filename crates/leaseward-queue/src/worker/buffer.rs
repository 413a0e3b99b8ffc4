//! What pump and runners share: jobs to be run, what came of them, and who is to be woken.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};

use super::Summary;
use crate::{
    JobId,
    backend::Ending,
    body::Body,
    session::{Life, Running},
    wake::Sleeper,
};

/// A job that was claimed.
pub(super) struct Item {
    pub(super) id: JobId,
    pub(super) token: i64,
    pub(super) life: Arc<Life>,
    pub(super) key: Option<Box<str>>,
    pub(super) body: Body,
}

/// Before or after all others that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    First,
    Last,
}

/// What is to be written down of a job.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) life: Arc<Life>,
    pub(super) ending: Ending,
    pub(super) in_transaction: bool,
    /// How long it ran, if it did.
    pub(super) ran: Option<Duration>,
    /// Whether it may have been written down already.
    pub(super) is_doubtful: bool,
}

pub(super) struct Shared {
    items: Mutex<VecDeque<Item>>,
    /// As many permits as there are items.
    filled: Semaphore,
    outcomes: Mutex<Vec<Outcome>>,
    /// Jobs that runners have taken and not yet ended.
    under_way: AtomicUsize,
    pub(super) running: Arc<Running>,
    pub(super) summary: Mutex<Summary>,
    pub(super) concurrency: usize,
    changed: Notify,
    may_have_work: AtomicBool,
    is_stopping: AtomicBool,
}

impl Shared {
    pub(super) fn new(concurrency: usize) -> Self {
        Self {
            items: Mutex::default(),
            filled: Semaphore::new(0),
            outcomes: Mutex::default(),
            under_way: AtomicUsize::new(0),
            running: Arc::default(),
            summary: Mutex::default(),
            concurrency,
            changed: Notify::new(),
            may_have_work: AtomicBool::new(true),
            is_stopping: AtomicBool::new(false),
        }
    }

    pub(super) fn put(&self, items: Vec<Item>, place: Next) {
        let count = items.len();
        let mut queued = self.items.lock();
        match place {
            Next::Last => queued.extend(items),
            Next::First => items.into_iter().rev().for_each(|item| queued.push_front(item)),
        }
        drop(queued);
        self.filled.add_permits(count);
    }

    /// The next job to run.
    pub(super) async fn take(&self) -> Item {
        loop {
            // Never closed.
            if let Ok(permit) = self.filled.acquire().await {
                permit.forget();
            }
            let mut items = self.items.lock();
            if let Some(item) = items.pop_front() {
                self.under_way.fetch_add(1, Ordering::AcqRel);
                return item;
            }
        }
    }

    /// All jobs that nobody has begun.
    pub(super) fn take_back(&self) -> Vec<Item> {
        self.items.lock().drain(..).collect()
    }

    /// Notes what came of a job; `None` if nothing that counts.
    pub(super) fn ended(&self, outcome: Option<Outcome>) {
        if let Some(outcome) = outcome {
            self.outcomes.lock().push(outcome);
        }
        self.under_way.fetch_sub(1, Ordering::AcqRel);
        self.changed.notify_one();
    }

    pub(super) fn note(&self, outcome: Outcome) {
        self.outcomes.lock().push(outcome);
    }

    pub(super) fn take_outcomes(&self) -> Vec<Outcome> {
        std::mem::take(&mut *self.outcomes.lock())
    }

    /// Jobs that are claimed and not ended: those that run, and those that wait.
    pub(super) fn held(&self) -> usize {
        self.under_way.load(Ordering::Acquire) + self.items.lock().len()
    }

    pub(super) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.changed.notify_one();
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Whether somebody said that there may be something to claim, since the last time this was asked.
    pub(super) fn take_hint(&self) -> bool {
        self.may_have_work.swap(false, Ordering::AcqRel)
    }

    /// Resolves when something has changed.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}

impl Sleeper for Shared {
    fn wake(&self) {
        self.may_have_work.store(true, Ordering::Release);
        self.changed.notify_one();
    }
}
