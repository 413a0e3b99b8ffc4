//! Places to keep queues in, and short forms.

use std::{
    future::Future,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use leaseward_queue::{
    Backoff, Context, Ending, Error, Failure, JobId, JobState, JobView, NewJob, Queue, Worker, tx,
};
use leaseward_testkit::{PATIENCE, Postgres};
use parking_lot::Mutex;
use rusqlite::TransactionBehavior::Immediate;
use sqlx::Connection as _;
use tempfile::TempDir;

/// After so long without a sign of life a client is dead.
pub(crate) const MORTAL: Duration = Duration::from_millis(600);

/// One server for all cases, each of which has a database of its own.
static SERVER: LazyLock<Postgres> =
    LazyLock::new(|| Postgres::builder().max_connections(400).in_memory().start());

static DATABASES: AtomicU32 = AtomicU32::new(0);

/// A place in which nobody else keeps anything.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) url: String,
    is_file: bool,
    _folder: Option<Arc<TempDir>>,
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
        Self { url, is_file: false, _folder: None }
    }

    pub(crate) fn sqlite() -> Self {
        logs();
        let folder = tempfile::tempdir().expect("a folder can be made");
        let url = format!("sqlite:{}", folder.path().join("queue.db").display());
        Self { url, is_file: true, _folder: Some(Arc::new(folder)) }
    }

    /// A place that somebody else has made.
    pub(crate) fn at(url: String) -> Self {
        logs();
        Self { is_file: url.starts_with("sqlite:"), url, _folder: None }
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

/// What users of the crate bring along.
impl Place {
    /// The same place, for a handler to keep.
    pub(crate) fn again(&self) -> Self {
        self.clone()
    }

    /// Another place like it.
    pub(crate) fn another(&self) -> Self {
        if self.is_file { Self::sqlite() } else { Self::postgres() }
    }

    /// What stands before the names of tables.
    pub(crate) fn prefix(&self) -> &'static str {
        if self.is_file { "lq_" } else { "leaseward_queue." }
    }

    pub(crate) fn drivers(&self) -> Vec<Drivers> {
        if self.is_file {
            vec![Drivers::Rusqlite]
        } else {
            vec![Drivers::TokioPostgres, Drivers::Sqlx]
        }
    }

    fn rusqlite(&self) -> rusqlite::Connection {
        let path = self.url.strip_prefix("sqlite:").expect("a file");
        let conn = rusqlite::Connection::open(path).expect("a file");
        conn.busy_timeout(PATIENCE).expect("a time");
        conn
    }

    pub(crate) async fn tokio_postgres(&self) -> tokio_postgres::Client {
        let (client, connection) = tokio_postgres::connect(&self.url, tokio_postgres::NoTls)
            .await
            .expect("the server can be reached");
        tokio::spawn(connection);
        client
    }

    /// Carries out a statement; the first number it answers, as text.
    pub(crate) async fn sql(&self, sql: &str) -> String {
        if self.is_file {
            let conn = self.rusqlite();
            let mut statement = conn.prepare(sql).expect("a statement");
            let mut rows = statement.query([]).expect("it is carried out");
            let first = rows.next().expect("it is carried out");
            return first.map_or_else(String::new, |row| {
                row.get::<_, i64>(0).expect("a number").to_string()
            });
        }
        let rows = self.tokio_postgres().await.query(sql, &[]).await.expect("it is carried out");
        rows.first().map_or_else(String::new, |row| row.get::<_, i64>(0).to_string())
    }

    /// A table in which jobs write that they were there.
    pub(crate) async fn make_effects(&self) {
        self.sql("CREATE TABLE effects (job BIGINT NOT NULL)").await;
    }

    pub(crate) async fn effects(&self, id: JobId) -> u32 {
        let count =
            self.sql(&format!("SELECT count(*) FROM effects WHERE job = {}", id.get())).await;
        count.parse().expect("a number")
    }
}

/// Ways into a database.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Drivers {
    TokioPostgres,
    Sqlx,
    Rusqlite,
}

impl Drivers {
    /// Pushes a job in a transaction.
    pub(crate) async fn push(self, place: &Place, queue: &Queue, commit: bool) {
        let jobs = [NewJob::new("tx", "pushed")];
        match self {
            Self::TokioPostgres => {
                let mut client = place.tokio_postgres().await;
                let transaction = client.transaction().await.expect("begun");
                tx::postgres::push(&transaction, queue, jobs).await.expect("pushed");
                if commit {
                    transaction.commit().await.expect("committed");
                }
            }
            Self::Sqlx => {
                let mut connection =
                    sqlx::PgConnection::connect(&place.url).await.expect("reached");
                let mut transaction = connection.begin().await.expect("begun");
                tx::sqlx::push(&mut transaction, queue, jobs).await.expect("pushed");
                if commit {
                    transaction.commit().await.expect("committed");
                }
            }
            Self::Rusqlite => {
                let prepared = tx::sqlite::prepare(queue, jobs).await.expect("they can be");
                let mut conn = place.rusqlite();
                let transaction = conn.transaction_with_behavior(Immediate).expect("begun");
                tx::sqlite::push(&transaction, &prepared).expect("pushed");
                if commit {
                    transaction.commit().expect("committed");
                }
            }
        }
    }

    /// Has an effect and completes a job in one transaction. A refusal is committed all the same, to see that nothing is.
    pub(crate) async fn complete(
        self,
        place: &Place,
        context: &Context,
        commit: bool,
    ) -> Result<(), String> {
        self.carry_out(place, context, commit, || ()).await.map_err(|error| error.to_string())
    }

    /// The same, and something in between before it is committed.
    pub(crate) async fn complete_and(
        self,
        place: &Place,
        context: &Context,
        between: impl FnOnce() + Send,
    ) -> Result<(), String> {
        self.carry_out(place, context, true, between).await.map_err(|error| error.to_string())
    }

    async fn carry_out(
        self,
        place: &Place,
        context: &Context,
        commit: bool,
        between: impl FnOnce() + Send,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let effect = format!("INSERT INTO effects (job) VALUES ({})", context.id().get());
        match self {
            Self::TokioPostgres => {
                let (mut client, connection) =
                    tokio_postgres::connect(&place.url, tokio_postgres::NoTls).await?;
                tokio::spawn(connection);
                let transaction = client.transaction().await?;
                transaction.execute(&effect, &[]).await?;
                let completed = tx::postgres::complete(&transaction, context).await;
                between();
                let committed = if commit { transaction.commit().await } else { Ok(()) };
                completed?;
                Ok(committed?)
            }
            Self::Sqlx => {
                let mut connection = sqlx::PgConnection::connect(&place.url).await?;
                let mut transaction = connection.begin().await?;
                sqlx::query(sqlx::AssertSqlSafe(effect)).execute(&mut *transaction).await?;
                let completed = tx::sqlx::complete(&mut transaction, context).await;
                between();
                let committed = if commit { transaction.commit().await } else { Ok(()) };
                completed?;
                Ok(committed?)
            }
            Self::Rusqlite => {
                let mut conn = place.rusqlite();
                let transaction = conn.transaction_with_behavior(Immediate)?;
                transaction.execute(&effect, [])?;
                let completed = tx::sqlite::complete(&transaction, context);
                between();
                let committed = if commit { transaction.commit() } else { Ok(()) };
                completed?;
                Ok(committed?)
            }
        }
    }
}

/// Waits until so many jobs of a queue are done, for as long as there is progress.
pub(crate) async fn done(queue: &Queue, name: &str, count: u64) {
    let (mut so_far, mut since) = (0, Instant::now());
    while so_far < count {
        // A server may be down meanwhile.
        let stats = queue.stats().await.unwrap_or_default();
        let found = stats.into_iter().find(|queue| queue.name == name).unwrap_or_default();
        assert!(found.done <= count, "{found:?}");
        if found.done > so_far {
            (so_far, since) = (found.done, Instant::now());
        }
        if since.elapsed() > PATIENCE * 3 {
            panic!("no progress: {found:?}; left are {:#?}", left(queue, name).await);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Jobs of a queue that have not ended.
async fn left(queue: &Queue, name: &str) -> Vec<JobView> {
    let mut left = Vec::new();
    for state in
        [JobState::Ready, JobState::Later, JobState::Blocked, JobState::Running, JobState::Dead]
    {
        left.extend(queue.jobs(name, state, None, 5).await.unwrap_or_default());
    }
    left
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
    ice: Arc<Mutex<()>>,
}

impl Elsewhere {
    pub(crate) fn start<H, F, R>(place: &Place, queue: &'static str, handler: H) -> Self
    where
        H: Fn(serde_json::Value, Context) -> F + Send + Sync + 'static,
        F: Future<Output = Result<R, Failure>> + Send + 'static,
        R: Into<Ending> + Send + 'static,
    {
        Self::living(place, MORTAL, queue, handler)
    }

    /// One that is taken for dead after so long.
    pub(crate) fn living<H, F, R>(
        place: &Place,
        ttl: Duration,
        queue: &'static str,
        handler: H,
    ) -> Self
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
            let client =
                Queue::builder().ttl(ttl).connect(&url).await.expect("the database can be reached");
            Worker::new(&client, queue).backoff(SOON).run(handler).await.expect("a worker begins")
        });
        Self { runtime, ice: Arc::default() }
    }

    /// Stops everything in it until the answer is dropped.
    pub(crate) fn freeze(&self) -> Frozen {
        let (ice, inside) = (self.ice.clone(), Arc::new(AtomicU32::new(0)));
        let frozen = Frozen(ice.lock_arc());
        let is_inside = inside.clone();
        // It has one thread.
        self.runtime.spawn(async move {
            is_inside.store(1, Ordering::Release);
            drop(ice.lock());
        });
        leaseward_testkit::eventually("it is frozen", PATIENCE, || {
            (inside.load(Ordering::Acquire) == 1).then_some(())
        });
        frozen
    }

    /// Has one of its jobs note a checkpoint.
    pub(crate) async fn checkpoint(&self, context: Context) -> Result<(), Error> {
        let noting = self.runtime.spawn(async move { context.checkpoint(&1).await });
        noting.await.expect("no panic")
    }

    /// Ends it without a word to anybody.
    pub(crate) fn vanish(self) {
        self.runtime.shutdown_background();
    }
}

/// Drop it, and what was stopped goes on.
pub(crate) struct Frozen(
    #[allow(dead_code, reason = "held, not read")]
    parking_lot::ArcMutexGuard<parking_lot::RawMutex, ()>,
);
