//! The audit log: who held what, when, in a file of JSON lines.

use std::{
    env,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::Duration,
};

use serde::Serialize;
use tokio::sync::oneshot;

use crate::{Error, ErrorKind, Locks};

/// Lines that may wait for the disk; beyond it events are counted as dropped rather than holding up a lock.
const BACKLOG_MAX: usize = 4_096;

/// How long the disk may take at the end to write the lines that are left.
const WRITTEN_MAX: Duration = Duration::from_secs(5);

/// Appends events to a file, one JSON object a line, from a thread of its own.
///
/// Each line has the event, and in front of it what joins the files of several replicas: `process` (`host:pid`), `by` (the
/// user it runs for), `store`, `holder` (the identity that others see), and `trace_id`, if the caller
/// [named one](crate::Lock::trace_id) or the environment variable `TRACEPARENT` has one. None is made up.
///
/// The file can be rotated: it is opened again when another file has its name, or none, and only ever appended to, so that
/// it can be truncated as well. One that is made is readable by its owner alone.
#[derive(Clone, Debug)]
pub struct AuditLog {
    lines: SyncSender<Message>,
    path: Arc<Path>,
    process: Arc<str>,
    by: Arc<str>,
    trace_id: Option<Arc<str>>,
}

#[derive(Debug)]
enum Message {
    Line(String),
    /// To be answered once all lines before it are in the file.
    Flush(oneshot::Sender<()>),
}

#[derive(Serialize)]
struct Line<'a, E> {
    process: &'a str,
    by: &'a str,
    store: &'a str,
    holder: &'a str,
    /// An event's own trace takes the place of this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<&'a str>,
    #[serde(flatten)]
    event: &'a E,
}

impl AuditLog {
    /// Opens the file, creating it if needed; what is there stays.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] if it cannot be written.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let failed = |error: io::Error| {
            Error::new(
                ErrorKind::Refused,
                format!("the audit log `{}` cannot be written: {error}", path.display()),
            )
            .hint("check that its folder exists, and that this user may write the file")
        };
        let mut file = Target::open(path).map_err(failed)?;
        let path = Arc::from(&*file.path);
        let (lines, written) = sync_channel(BACKLOG_MAX);
        thread::Builder::new()
            .name("leaseward-audit".into())
            .spawn(move || file.write_all(&written))
            .map_err(failed)?;
        let trace_id = env::var("TRACEPARENT").ok().as_deref().and_then(trace_of).map(Arc::from);
        Ok(Self {
            lines,
            path,
            process: crate::locks::process().into(),
            by: user().into(),
            trace_id,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Records the events of a client from now on. [`Locks::shutdown`] waits until they are written.
    pub fn follow(&self, locks: &Locks) {
        let (log, store, holder) = (self.clone(), locks.location(), locks.engine.who.clone());
        locks.on_event(move |event| {
            log.line(
                &store,
                &holder,
                log.trace_id.as_deref().filter(|_| event.trace_id.is_none()),
                event,
            );
        });
        locks.engine.events.add_audit(self.clone());
    }

    /// Records something else that happened in this process, such as the events of a job queue.
    pub fn record(&self, store: &str, event: &impl Serialize) {
        self.line(store, &self.process, self.trace_id.as_deref(), event);
    }

    fn line(&self, store: &str, holder: &str, trace_id: Option<&str>, event: &impl Serialize) {
        let line = Line { process: &self.process, by: &self.by, store, holder, trace_id, event };
        match serde_json::to_string(&line) {
            Ok(line) => {
                if self.lines.try_send(Message::Line(line)).is_err() {
                    tracing::warn!(target: "leaseward", "the audit log cannot keep up: a line was dropped");
                }
            }
            Err(error) => tracing::warn!(target: "leaseward", %error, "an event was not audited"),
        }
    }

    /// Waits until what was recorded so far is in the file; not for a disk that hangs.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn written(&self) {
        let (tell, told) = oneshot::channel();
        let mut flush = Message::Flush(tell);
        let written = async {
            while let Err(error) = self.lines.try_send(flush) {
                let TrySendError::Full(unsent) = error else { return };
                flush = unsent;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let _ = told.await;
        };
        let _ = tokio::time::timeout(WRITTEN_MAX, written).await;
    }
}

/// The file that lines go to, whichever has its name.
struct Target {
    path: PathBuf,
    file: File,
    /// The last line did not get through as a whole.
    is_torn: bool,
}

impl Target {
    fn open(path: &Path) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        let file = append_to(&path, 0o600)?;
        Ok(Self { path, file, is_torn: false })
    }

    fn write_all(&mut self, messages: &Receiver<Message>) {
        for message in messages {
            match message {
                Message::Flush(tell) => drop(tell.send(())),
                Message::Line(line) => {
                    if let Err(error) = self.write(&line) {
                        tracing::warn!(target: "leaseward", %error, "the audit log could not be written");
                    }
                }
            }
        }
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        // Should the new file not open, the line still goes to the one that was renamed.
        let reopened = self.follow_name();
        let before = if self.is_torn { "\n" } else { "" };
        // One write a line: lines of several processes in one file do not mix.
        let written = self.file.write_all(format!("{before}{line}\n").as_bytes());
        self.is_torn = written.is_err();
        written.and(reopened)
    }

    /// Opens the file again if another one has its name, or none.
    fn follow_name(&mut self) -> io::Result<()> {
        let ours = self.file.metadata()?;
        let is_same = match fs::metadata(&self.path) {
            Ok(there) => (there.dev(), there.ino()) == (ours.dev(), ours.ino()),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        };
        if !is_same {
            self.file = append_to(&self.path, ours.mode() & 0o777)?;
            self.is_torn = false;
        }
        Ok(())
    }
}

fn append_to(path: &Path, mode: u32) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(mode).open(path)
}

/// The trace of a `traceparent`: version, trace, parent and flags in hexadecimal.
fn trace_of(traceparent: &str) -> Option<&str> {
    let trace = traceparent.split('-').nth(1)?;
    let is_trace = trace.len() == 32
        && trace.bytes().all(|byte| byte.is_ascii_hexdigit())
        && trace.bytes().any(|byte| byte != b'0');
    is_trace.then_some(trace)
}

/// The user that this process works for: the one behind sudo if there is one.
fn user() -> String {
    let named = ["SUDO_USER", "USER", "LOGNAME"];
    let user = named.iter().find_map(|variable| env::var(variable).ok());
    let uid = rustix::process::getuid().as_raw();
    match user {
        Some(user) => format!("{user} (uid {uid})"),
        None => format!("uid {uid}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_taken_and_none_is_made_up() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        assert_eq!(trace_of(&format!("00-{trace}-00f067aa0ba902b7-01")), Some(trace));
        for wrong in ["", "00", "00-abc-1-01", &format!("00-{}-1-01", "0".repeat(32))] {
            assert_eq!(trace_of(wrong), None, "{wrong}");
        }
    }
}
