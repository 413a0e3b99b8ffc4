//! Places to keep queues in, and short forms.

use std::{
    future::Future,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use leaseward_queue::{Backoff, Context, Ending, Failure, Queue, Worker};
use leaseward_testkit::{PATIENCE, Postgres};
use parking_lot::Mutex;
use tempfile::TempDir;

/// After so long without a sign of life a client is dead.
pub(crate) const MORTAL: Duration = Duration::from_millis(600);

/// One server for all cases, each of which has a database of its own.
static SERVER: LazyLock<Postgres> =
    LazyLock::new(|| Postgres::builder().max_connections(400).in_memory().start());

static DATABASES: AtomicU32 = AtomicU32::new(0);

/// A place in which nobody else keeps anything.
pub(crate) struct Place {
    pub(crate) url: String,
    _folder: Option<TempDir>,
}

/// What is logged, if `RUST_LOG` says so.
fn logs() {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    // Another case has done so.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
}

impl Place {
    pub(crate) fn postgres() -> Self {
        logs();
        let number = DATABASES.fetch_add(1, Ordering::Relaxed);
        let url = SERVER.database(&format!("case_{number}"));
        Self { url, _folder: None }
    }

    pub(crate) fn sqlite() -> Self {
        logs();
        let folder = tempfile::tempdir().expect("a folder can be made");
        let url = format!("sqlite:{}", folder.path().join("queue.db").display());
        Self { url, _folder: Some(folder) }
    }

    /// Another client, as another process would have it.
    pub(crate) async fn client(&self) -> Queue {
        Queue::open(&self.url).await.expect("the database can be reached")
    }

    /// One that is soon taken for dead when it says nothing.
    pub(crate) async fn mortal(&self) -> Queue {
        Queue::builder().ttl(MORTAL).connect(&self.url).await.expect("the database can be reached")
    }
}

/// Makes two tests of each case.
macro_rules! cases {
    ($($case:ident),* $(,)?) => {
        mod postgres {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    super::$case(&$crate::help::Place::postgres()).await;
                }
            )*
        }
        mod sqlite {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    super::$case(&$crate::help::Place::sqlite()).await;
                }
            )*
        }
    };
}
pub(crate) use cases;

/// Asks again and again until there is an answer.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut ask: impl FnMut() -> F,
) -> T {
    let begin = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(begin.elapsed() < PATIENCE * 3, "not within {:?}: {what}", PATIENCE * 3);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// What handlers saw, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen<T>(Arc<Mutex<Vec<T>>>);

impl<T: Clone> Seen<T> {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    pub(crate) fn add(&self, what: T) {
        self.0.lock().push(what);
    }

    pub(crate) fn all(&self) -> Vec<T> {
        self.0.lock().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().len()
    }

    /// Waits until so many were seen.
    pub(crate) async fn wait_for(&self, count: usize) -> Vec<T> {
        until("so many were seen", || async { (self.count() >= count).then(|| self.all()) }).await
    }
}

/// Runs a worker in the background; it ends well when the answer is ended.
pub(crate) struct Background {
    end: Option<tokio::sync::oneshot::Sender<()>>,
    task: tokio::task::JoinHandle<leaseward_queue::Summary>,
}

impl Background {
    pub(crate) fn start<H, F, R>(worker: Worker, handler: H) -> Self
    where
        H: Fn(serde_json::Value, Context) -> F + Send + Sync + 'static,
        F: Future<Output = Result<R, Failure>> + Send + 'static,
        R: Into<Ending> + Send + 'static,
    {
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let until = async move { drop(ended.await) };
            worker.run_until(until, handler).await.expect("a worker begins")
        });
        Self { end: Some(end), task }
    }

    pub(crate) async fn end(mut self) -> leaseward_queue::Summary {
        drop(self.end.take());
        self.task.await.expect("it does not panic")
    }

    /// Drops it in the middle of whatever it does.
    pub(crate) async fn drop_now(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

/// Tries again at once.
pub(crate) const SOON: Backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(1));

/// A worker with a client and a runtime of its own, which can end from one moment to the next.
pub(crate) struct Elsewhere {
    runtime: tokio::runtime::Runtime,
}

impl Elsewhere {
    pub(crate) fn start<H, F, R>(place: &Place, queue: &'static str, handler: H) -> Self
    where
        H: Fn(serde_json::Value, Context) -> F + Send + Sync + 'static,
        F: Future<Output = Result<R, Failure>> + Send + 'static,
        R: Into<Ending> + Send + 'static,
    {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime can be made");
        let url = place.url.clone();
        runtime.spawn(async move {
            let client = Queue::builder()
                .ttl(MORTAL)
                .connect(&url)
                .await
                .expect("the database can be reached");
            Worker::new(&client, queue).run(handler).await.expect("a worker begins")
        });
        Self { runtime }
    }

    /// Ends it without a word to anybody.
    pub(crate) fn vanish(self) {
        self.runtime.shutdown_background();
    }
}
