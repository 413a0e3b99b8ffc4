//! Waking: those in this process directly, those in others only if somebody sleeps: by the commit itself if nobody was told a
//! moment ago, else soon after it, together.

use std::{
    fmt,
    sync::{Arc, OnceLock, Weak},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};

use crate::backend::{Backend, Told};

/// Between two messages to others: what is to be told meanwhile is told together.
const SPACING: Duration = Duration::from_millis(2);

/// What is told together at most.
const TOGETHER_MAX: usize = 1_024;

/// Somebody who sleeps until there may be work in a queue.
pub(crate) trait Sleeper: Send + Sync {
    fn wake(&self);
}

pub(crate) struct Bells {
    backend: Arc<dyn Backend>,
    sleepers: Mutex<Vec<(i32, Weak<dyn Sleeper>)>>,
    later: Notify,
    cancelled: Notify,
    teller: OnceLock<mpsc::UnboundedSender<Told>>,
    /// When others were last told.
    told_at: Arc<Mutex<Option<Instant>>>,
}

impl fmt::Debug for Bells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bells")
    }
}

impl Bells {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Self {
        Self {
            backend,
            sleepers: Mutex::default(),
            later: Notify::new(),
            cancelled: Notify::new(),
            teller: OnceLock::new(),
            told_at: Arc::default(),
        }
    }

    pub(crate) fn add(&self, queue: i32, sleeper: Weak<dyn Sleeper>) {
        let mut sleepers = self.sleepers.lock();
        sleepers.retain(|(_, sleeper)| sleeper.strong_count() > 0);
        sleepers.push((queue, sleeper));
    }

    /// Wakes those of a queue in this process.
    pub(crate) fn ring(&self, queue: i32) {
        self.wake(|of| of == queue);
    }

    fn wake(&self, whose: impl Fn(i32) -> bool) {
        let woken: Vec<_> = {
            let sleepers = self.sleepers.lock();
            sleepers
                .iter()
                .filter(|(queue, _)| whose(*queue))
                .filter_map(|(_, who)| who.upgrade())
                .collect()
        };
        woken.iter().for_each(|sleeper| sleeper.wake());
    }

    /// Something later than now was pushed.
    pub(crate) fn later(&self) {
        self.later.notify_one();
    }

    /// Resolves when something later than now was pushed.
    pub(crate) async fn hear_later(&self) {
        self.later.notified().await;
    }

    /// Resolves when a job of this process may have been cancelled.
    pub(crate) async fn hear_cancelled(&self) {
        self.cancelled.notified().await;
    }

    /// There is work in a queue, for whomever.
    pub(crate) fn work(&self, queue: i32) {
        self.ring(queue);
        self.tell(Told::Work(queue));
    }

    /// Tells others, soon.
    pub(crate) fn tell(&self, what: Told) {
        if let Told::Cancel(_) = what {
            self.cancelled.notify_one();
        }
        let teller = self.teller.get_or_init(|| {
            let (sender, receiver) = mpsc::unbounded_channel();
            tokio::spawn(carry(self.backend.clone(), self.told_at.clone(), receiver));
            sender
        });
        // It ends with the runtime, and then there is nobody to tell.
        let _ = teller.send(what);
    }

    /// Whether others may be told now and not only soon. If so it is taken for done: who asks tells them.
    pub(crate) fn may_tell_now(&self) -> bool {
        let (mut told_at, now) = (self.told_at.lock(), Instant::now());
        let is_long_ago = told_at.is_none_or(|at| now.duration_since(at) >= SPACING);
        if is_long_ago {
            *told_at = Some(now);
        }
        is_long_ago
    }

    /// Takes what others tell.
    pub(crate) fn told(&self, what: Told) {
        match what {
            Told::Work(queue) => self.ring(queue),
            Told::Later => self.later.notify_one(),
            Told::Cancel(_) => self.cancelled.notify_one(),
            Told::Anything => {
                self.wake(|_| true);
                self.later.notify_one();
                self.cancelled.notify_one();
            }
        }
    }
}

async fn carry(
    backend: Arc<dyn Backend>,
    told_at: Arc<Mutex<Option<Instant>>>,
    mut waiting: mpsc::UnboundedReceiver<Told>,
) {
    let mut batch = Vec::new();
    while waiting.recv_many(&mut batch, TOGETHER_MAX).await > 0 {
        // What is to be told until then is told together.
        let last = *told_at.lock();
        if let Some(at) = last {
            tokio::time::sleep(SPACING.saturating_sub(at.elapsed())).await;
            while batch.len() < TOGETHER_MAX
                && let Ok(told) = waiting.try_recv()
            {
                batch.push(told);
            }
        }
        *told_at.lock() = Some(Instant::now());
        let mut words: Vec<Told> = Vec::new();
        for told in batch.drain(..) {
            if !words.contains(&told) {
                words.push(told);
            }
        }
        if let Err(error) = backend.tell(words).await {
            tracing::debug!(error = %error, "others were not told; they look every second");
        }
    }
}
