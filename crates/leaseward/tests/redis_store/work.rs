//! Work under a lock that goes on through faults, and notices if the lock does not hold.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use leaseward::{Error, ErrorKind, Locks};
use leaseward_testkit::PATIENCE;
use tokio::task::JoinHandle;

use crate::help::until;

/// Of leases that a failed release leaves behind for their time. Longer than a busy machine keeps a task waiting.
const TTL: Duration = Duration::from_secs(4);

const TASKS: usize = 2;

/// A number to which tasks of several clients add one, which is safe only under the lock.
#[derive(Debug, Default)]
pub(crate) struct Work {
    number: AtomicU64,
    fence: AtomicU64,
    is_somebody_in: AtomicBool,
    done: AtomicU64,
    enough: AtomicBool,
}

/// The work, and the tasks that do it.
#[derive(Debug)]
pub(crate) struct Works {
    work: Arc<Work>,
    tasks: Vec<JoinHandle<()>>,
}

impl Works {
    /// Begins with a client for each URL, each with a few tasks. Without cohorts, so that every step goes to the server.
    pub(crate) async fn start(urls: &[String]) -> Self {
        let work = Arc::new(Work::default());
        let mut tasks = Vec::new();
        for url in urls {
            let locks = Locks::builder().cohorts(false).connect(url).await;
            let locks = locks.expect("the server can be reached");
            for _ in 0..TASKS {
                let (work, locks) = (work.clone(), locks.clone());
                tasks.push(tokio::spawn(async move { work.go_on(&locks).await }));
            }
        }
        let this = Self { work, tasks };
        this.go_on().await;
        this
    }

    /// Waits until some more was done.
    pub(crate) async fn go_on(&self) {
        let done = || self.work.done.load(Ordering::SeqCst);
        let before = done();
        until("work goes on", PATIENCE, || async { (done() > before + 10).then_some(()) }).await;
    }

    /// Ends it; every step must have counted.
    pub(crate) async fn finish(self) {
        self.work.enough.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.expect("no panic");
        }
        let (number, done) = (&self.work.number, &self.work.done);
        assert_eq!(number.load(Ordering::SeqCst), done.load(Ordering::SeqCst));
    }
}

impl Work {
    async fn go_on(&self, locks: &Locks) {
        while !self.enough.load(Ordering::Relaxed) {
            let held = match locks.lock("a").ttl(TTL).acquire().await {
                Ok(held) => held,
                Err(error) => {
                    check(&error);
                    continue;
                }
            };
            assert!(!self.is_somebody_in.swap(true, Ordering::SeqCst), "two are in");
            let before = self.fence.swap(held.fence().get(), Ordering::SeqCst);
            assert!(before < held.fence().get(), "fences go back");
            let number = self.number.load(Ordering::SeqCst);
            tokio::task::yield_now().await;
            self.number.store(number + 1, Ordering::SeqCst);
            self.is_somebody_in.store(false, Ordering::SeqCst);
            self.done.fetch_add(1, Ordering::SeqCst);
            if let Err(error) = held.release().await {
                check(&error);
            }
        }
    }
}

/// During a fault some is not done and some is unknown; nothing else is heard.
fn check(error: &Error) {
    let expected = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate);
    assert!(expected, "{error:?}");
}
