//! The audit log: who held what, when, in a file of JSON lines.

use std::{
    fs::{File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
};

use crate::{Error, ErrorKind, Event, EventKind, Locks};

/// Lines that may wait for the disk; beyond it events are counted as dropped rather than holding up a lock.
const BACKLOG_MAX: usize = 4_096;

/// Appends events to a file, one JSON object a line, from a thread of its own.
///
/// Renewals and the beginnings of waits are left out: they are metrics, not decisions.
#[derive(Debug)]
pub struct AuditLog {
    lines: SyncSender<String>,
    path: PathBuf,
}

impl AuditLog {
    /// Opens the file, creating it if needed; what is there stays.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] if it cannot be written.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref().to_owned();
        let failed = |error: std::io::Error| {
            Error::new(
                ErrorKind::Refused,
                format!("the audit log `{}` cannot be written: {error}", path.display()),
            )
            .hint("check that its folder exists and is writable")
        };
        let file = OpenOptions::new().create(true).append(true).open(&path).map_err(failed)?;
        let (lines, written) = sync_channel(BACKLOG_MAX);
        thread::Builder::new()
            .name("leaseward-audit".into())
            .spawn(move || write_lines(file, &written))
            .map_err(failed)?;
        Ok(Self { lines, path })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Records the events of a client from now on.
    pub fn follow(self, locks: &Locks) {
        locks.on_event(move |event| self.record(event));
    }

    fn record(&self, event: &Event) {
        if matches!(event.kind, EventKind::Renewed | EventKind::Waiting) {
            return;
        }
        match serde_json::to_string(event) {
            Ok(line) => {
                if self.lines.try_send(line).is_err() {
                    tracing::warn!(target: "leaseward", "the audit log cannot keep up: a line was dropped");
                }
            }
            Err(error) => tracing::warn!(target: "leaseward", %error, "an event was not audited"),
        }
    }
}

fn write_lines(mut file: File, lines: &Receiver<String>) {
    for mut line in lines {
        line.push('\n');
        // One write a line: lines of several processes in one file do not mix.
        if let Err(error) = file.write_all(line.as_bytes()) {
            tracing::warn!(target: "leaseward", %error, "the audit log could not be written");
        }
    }
}
