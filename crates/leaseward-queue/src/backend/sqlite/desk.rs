//! The thread that has the connection: one transaction a call.

use std::sync::Arc;

use leaseward::{
    Error,
    clock::{Clock as _, SystemClock},
    stores::sqlite::{Link, Thread},
};
use parking_lot::Mutex;
use rusqlite::{Connection, Result as SqlResult};

use crate::backend::Answer;

#[derive(Debug)]
pub(super) struct Desk {
    thread: Thread,
    link: Link,
    /// `None` once closed. Only the thread locks it.
    conn: Arc<Mutex<Option<Connection>>>,
}

/// One transaction under way.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    pub(super) tx: &'a Connection,
    /// Microseconds since the epoch.
    pub(super) wall_us: i64,
    /// Microseconds since boot.
    pub(super) boot_us: i64,
}

impl<'a> Turn<'a> {
    /// Reads the clocks; called once the file is ours to write, so that turns see time in their order.
    fn new(tx: &'a Connection) -> Self {
        let clock = SystemClock;
        let wall_us = i64::try_from(clock.wall_us()).unwrap_or(i64::MAX);
        let boot_us = i64::try_from(clock.now().as_nanos() / 1_000).unwrap_or(i64::MAX);
        Self { tx, wall_us, boot_us }
    }
}

impl Desk {
    pub(super) async fn open(
        open: impl FnOnce() -> Result<(Link, Connection), Error> + Send + 'static,
    ) -> Result<Self, Error> {
        let thread = Thread::new("leaseward-queue-sqlite");
        let (link, conn) = thread.call(open).await?;
        Ok(Self { thread, link, conn: Arc::new(Mutex::new(Some(conn))) })
    }

    pub(super) fn link(&self) -> &Link {
        &self.link
    }

    /// Has the thread carry out one transaction.
    pub(super) fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Turn<'_>) -> SqlResult<T> + Send + 'static,
    ) -> Answer<'static, T> {
        let (link, conn) = (self.link.clone(), self.conn.clone());
        self.thread.call(move || {
            let slot = conn.lock();
            let conn = slot.as_ref().ok_or_else(crate::queue::closed)?;
            if !conn.is_autocommit() {
                // A turn before this one panicked, or could not be rolled back.
                link.patiently(|| run(conn, "ROLLBACK"))?;
            }
            link.patiently(|| run(conn, "BEGIN IMMEDIATE"))?;
            match work(&Turn::new(conn)) {
                Ok(answer) => match run(conn, "COMMIT") {
                    Ok(()) => Ok(answer),
                    Err(error) => {
                        let _ = run(conn, "ROLLBACK");
                        Err(link.meaning_of_commit(error))
                    }
                },
                Err(error) => {
                    // Should this fail too, the next turn tries it again before it begins.
                    let _ = run(conn, "ROLLBACK");
                    Err(link.meaning(error))
                }
            }
        })
    }

    pub(super) fn close(&self) -> Answer<'static, ()> {
        let conn = self.conn.clone();
        let closed = self.thread.call(move || {
            *conn.lock() = None;
            Ok(())
        });
        self.thread.close();
        Box::pin(async move {
            // Whatever could not be told to close was closed before.
            let _ = closed.await;
            Ok(())
        })
    }
}

fn run(conn: &Connection, sql: &str) -> SqlResult<()> {
    conn.prepare_cached(sql)?.execute([]).map(drop)
}
