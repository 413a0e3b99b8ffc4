//! Hearing that another process has something to be done.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use leaseward::stores::sqlite::Rung;
use parking_lot::Mutex;
use rand::RngExt as _;
use rusqlite::{OptionalExtension as _, Result as SqlResult, params};

use super::{desk::Turn, keep::BOOT};
use crate::backend::{Ear, Told};

/// Between two calls that are passed on: what is called meanwhile is one.
const SPACING: Duration = Duration::from_micros(500);

/// Where this process is called, and the thread that hears it. A call that is lost costs a second: workers look by themselves.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) address: i64,
    running: Mutex<Option<Arc<Running>>>,
}

#[derive(Debug)]
struct Running {
    rung: Rung,
    is_closed: AtomicBool,
}

impl Watch {
    pub(super) fn new() -> Self {
        Self { address: rand::rng().random_range(1..i64::MAX), running: Mutex::new(None) }
    }

    /// Starts the thread. Where there are no descriptors or threads left, workers poll.
    pub(super) fn start(&self, ear: Ear) {
        let mut running = self.running.lock();
        if running.is_some() {
            return;
        }
        let Ok(rung) = Rung::new(self.address) else { return };
        let started = Arc::new(Running { rung, is_closed: AtomicBool::new(false) });
        let own = started.clone();
        let thread = thread::Builder::new().name("leaseward-queue-wake".into());
        if thread.spawn(move || own.hear(&ear)).is_ok() {
            *running = Some(started);
        }
    }

    pub(super) fn close(&self) {
        if let Some(running) = self.running.lock().take() {
            running.is_closed.store(true, Ordering::Release);
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
    fn hear(&self, ear: &Ear) {
        loop {
            self.rung.hear();
            if self.is_closed.load(Ordering::Acquire) {
                return;
            }
            ear(Told::Anything);
            thread::sleep(SPACING);
        }
    }
}

impl Turn<'_> {
    /// Has the sleepers of other processes called after the commit; whether there are any.
    pub(super) fn call_sleepers(&self) -> SqlResult<bool> {
        let mut statement = self.tx.prepare_cached(
            "SELECT DISTINCT address FROM lq_session WHERE idle = 1 AND boot = ?1 AND expires > ?2 AND address <> ?3",
        )?;
        let sleepers =
            statement.query_map(params![*BOOT, self.boot_us, self.address], |row| row.get(0))?;
        let mut calls = self.calls.borrow_mut();
        let before = calls.len();
        for address in sleepers {
            calls.push(address?);
        }
        Ok(calls.len() > before)
    }

    /// Whether a worker of another process sleeps.
    pub(super) fn others_sleep(&self) -> SqlResult<bool> {
        self.tx
            .prepare_cached(
                "SELECT EXISTS (SELECT 1 FROM lq_session WHERE idle = 1 AND boot = ?1 AND expires > ?2 AND address <> ?3)",
            )?
            .query_row(params![*BOOT, self.boot_us, self.address], |row| row.get(0))
    }

    /// Has the process of a session called after the commit.
    pub(super) fn call_session(&self, session: i64) -> SqlResult<()> {
        let address: Option<i64> = self
            .tx
            .prepare_cached("SELECT address FROM lq_session WHERE id = ?1")?
            .query_row([session], |row| row.get(0))
            .optional()?;
        self.calls.borrow_mut().extend(address);
        Ok(())
    }
}
