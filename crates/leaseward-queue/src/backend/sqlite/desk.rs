//! The thread that has the connection: one transaction a call.

use std::{cell::RefCell, sync::Arc};

use leaseward::{
    Error, ErrorKind,
    clock::{Clock as _, SystemClock},
    store::StoreUrl,
    stores::sqlite::{Link, Opened, Thread, call},
};
use parking_lot::Mutex;
use rusqlite::{Connection, Result as SqlResult};

use super::schema;
use crate::backend::Answer;

/// Statements kept prepared: more than there are.
const STATEMENTS: usize = 128;

/// About eight megabytes of log.
const CHECKPOINT_PAGES: i64 = 4_000;

#[derive(Debug)]
pub(super) struct Desk {
    thread: Thread,
    link: Link,
    /// Where this process is called.
    address: i64,
    /// `None` once closed. Only the thread locks it.
    opened: Arc<Mutex<Option<Opened>>>,
}

/// One transaction under way.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    pub(super) tx: &'a Connection,
    /// Microseconds since the epoch.
    pub(super) wall_us: i64,
    /// Microseconds since boot.
    pub(super) boot_us: i64,
    /// Where this process is called.
    pub(super) address: i64,
    /// Whom to call after the commit.
    pub(super) calls: RefCell<Vec<i64>>,
}

impl<'a> Turn<'a> {
    /// Reads the clocks; called once the file is ours to write, so that turns see time in their order.
    pub(super) fn new(tx: &'a Connection, address: i64) -> Self {
        let clock = SystemClock;
        let wall_us = i64::try_from(clock.wall_us()).unwrap_or(i64::MAX);
        let boot_us = i64::try_from(clock.now().as_nanos() / 1_000).unwrap_or(i64::MAX);
        Self { tx, wall_us, boot_us, address, calls: RefCell::default() }
    }
}

impl Desk {
    /// Opens the file on the thread that will write later.
    pub(super) async fn open(url: &StoreUrl, address: i64) -> Result<Self, Error> {
        let thread = Thread::new("leaseward-queue-sqlite");
        let url = url.clone();
        let opened = thread.call(move || {
            let link = Link::open(&url)?;
            let opened = begin(&link)?;
            Ok((link, opened))
        });
        let (link, opened) = opened.await?;
        Ok(Self { thread, link, address, opened: Arc::new(Mutex::new(Some(opened))) })
    }

    pub(super) fn link(&self) -> &Link {
        &self.link
    }

    /// Has the thread carry out one transaction.
    pub(super) fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Turn<'_>) -> SqlResult<T> + Send + 'static,
    ) -> Answer<'static, T> {
        let (link, opened, address) = (self.link.clone(), self.opened.clone(), self.address);
        self.thread.call(move || {
            let mut slot = opened.lock();
            let opened = slot.as_mut().ok_or_else(crate::queue::closed)?;
            if !opened.is_current() {
                let path = link.path().display();
                tracing::warn!(target: "leaseward_queue", %path, "the file was deleted or replaced: its jobs are gone");
                link.prepare_anew(opened)?;
                *opened = begin(&link)?;
            }
            let conn = &opened.conn;
            if !conn.is_autocommit() {
                // A turn before this one panicked, or could not be rolled back.
                link.patiently(|| run(conn, "ROLLBACK"))?;
            }
            link.patiently(|| run(conn, "BEGIN IMMEDIATE"))?;
            let turn = Turn::new(conn, address);
            match work(&turn) {
                Ok(answer) => match run(conn, "COMMIT") {
                    Ok(()) => {
                        call(&turn.calls.into_inner());
                        Ok(answer)
                    }
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
        let opened = self.opened.clone();
        let closed = self.thread.call(move || {
            *opened.lock() = None;
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

/// Opens the file, with the tables in their newest version.
fn begin(link: &Link) -> Result<Opened, Error> {
    let mut opened = link.connect()?;
    let conn = &mut opened.conn;
    if link.must_exist() && link.patiently(|| schema::version(conn))? == 0 {
        let path = link.path().display();
        return Err(Error::new(ErrorKind::Refused, format!("there are no queues in `{path}`"))
            .hint("check the path: pushing a job makes the tables, looking does not"));
    }
    let version = link.patiently(|| schema::migrate_to(conn, schema::VERSION))?;
    if version > schema::VERSION {
        return Err(newer(link, version));
    }
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    // There is no thread for it as the locks have one: whoever commits does it, seldom.
    link.patiently(|| conn.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES))?;
    Ok(opened)
}

fn newer(link: &Link, version: usize) -> Error {
    let path = link.path().display();
    let known = schema::VERSION;
    Error::new(
        ErrorKind::Refused,
        format!("the jobs in `{path}` were written by a newer version (schema {version}, this one knows {known})"),
    )
    .hint("upgrade this program, or name another file")
}

fn run(conn: &Connection, sql: &str) -> SqlResult<()> {
    conn.prepare_cached(sql)?.execute([]).map(drop)
}
