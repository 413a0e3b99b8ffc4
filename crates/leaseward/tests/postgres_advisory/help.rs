//! What the tests share.

use std::time::{Duration, Instant};

use leaseward::{Attempt, Guard, Lock, Locks, Name};
use leaseward_testkit::Postgres;

/// Longer than any test.
pub(crate) const LONG: Duration = Duration::from_secs(3_600);

/// A server for one test.
pub(crate) fn server() -> Postgres {
    Postgres::builder().in_memory().start()
}

/// Where its advisory locks are.
pub(crate) fn advisory(url: &str) -> String {
    url.replacen("postgres", "postgres+advisory", 1)
}

pub(crate) async fn connect(server: &Postgres) -> Locks {
    leaseward::connect(&advisory(&server.url())).await.expect("the server can be reached")
}

/// A connection of a user's own.
pub(crate) async fn session(url: &str) -> tokio_postgres::Client {
    let (client, connection) =
        tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("it can be reached");
    tokio::spawn(async move { drop(connection.await) });
    client
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).expect("a good name")
}

/// A lease that must be free.
pub(crate) async fn take(lock: &Lock) -> Guard {
    match lock.try_acquire().await.expect("the server answers") {
        Attempt::Granted(guard) => guard,
        Attempt::Busy(busy) => panic!("it must be free, but is {busy}"),
    }
}

/// Whether a lease is held by somebody else.
pub(crate) async fn is_busy(lock: &Lock) -> bool {
    matches!(lock.try_acquire().await.expect("the server answers"), Attempt::Busy(_))
}

/// The advisory locks of all sessions that are held at this moment.
pub(crate) fn locks_in(server: &Postgres) -> usize {
    let count = server.sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'");
    count.parse().expect("a number")
}

/// Ends every session but the one that asks; answers how many there were.
pub(crate) fn end_sessions(server: &Postgres) -> usize {
    let ended = server.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
    );
    ended.lines().count()
}

/// Asks again and again until there is an answer, without holding up the runtime.
pub(crate) async fn until<T, F>(what: &str, patience: Duration, mut ask: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let begin = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(begin.elapsed() < patience, "not within {patience:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
