//! Hearing that another process has written to the file.

use std::{sync::Arc, thread, time::Duration};

use leaseward::stores::sqlite::{Link, Rung};
use parking_lot::Mutex;
use rusqlite::Connection;

use crate::backend::{Ear, Told};

/// The net under the watch: how often the file is looked at while nothing is heard.
const NET: Duration = Duration::from_millis(100);

/// A commit becomes visible only after the last write to the log, which is what the watch reports: look again after
/// these pauses.
const AGAIN: [Duration; 4] = [
    Duration::from_micros(60),
    Duration::from_micros(250),
    Duration::from_millis(1),
    Duration::from_millis(5),
];

/// Between two looks while somebody writes all the time.
const SPACING: Duration = Duration::from_micros(500);

#[derive(Debug)]
pub(super) struct Watch {
    link: Link,
    running: Mutex<Option<Arc<Running>>>,
}

#[derive(Debug)]
struct Running {
    rung: Rung,
    is_closed: Mutex<bool>,
}

impl Watch {
    pub(super) fn new(link: Link) -> Self {
        Self { link, running: Mutex::new(None) }
    }

    /// Starts the thread. Where there are no descriptors or threads left, workers poll.
    pub(super) fn start(&self, ear: Ear) {
        let mut running = self.running.lock();
        if running.is_some() {
            return;
        }
        let Ok(rung) = Rung::new() else { return };
        let started = Arc::new(Running { rung, is_closed: Mutex::new(false) });
        let (link, own) = (self.link.clone(), started.clone());
        let thread = thread::Builder::new().name("leaseward-queue-wake".into());
        if thread.spawn(move || own.watch(&link, &ear)).is_ok() {
            *running = Some(started);
        }
    }

    pub(super) fn close(&self) {
        if let Some(running) = self.running.lock().take() {
            *running.is_closed.lock() = true;
            running.rung.ring();
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.close();
    }
}

impl Running {
    fn watch(&self, link: &Link, ear: &Ear) {
        let Ok(conn) = link.connect() else { return };
        self.rung.watch(&link.beside("-wal"));
        let mut version = look(&conn);
        let mut step = AGAIN.len();
        while !*self.is_closed.lock() {
            if self.rung.hear(AGAIN.get(step).copied().unwrap_or(NET)) {
                step = 0;
            } else {
                step += 1;
            }
            let now = look(&conn);
            if now != version {
                version = now;
                ear(Told::Anything);
                thread::sleep(SPACING);
            }
        }
    }
}

/// Changes with every commit of somebody else's connection.
fn look(conn: &Connection) -> Option<i64> {
    conn.prepare_cached("PRAGMA data_version").ok()?.query_row([], |row| row.get(0)).ok()
}
