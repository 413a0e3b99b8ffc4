//! What a thread logs.
//!
//! One subscriber serves the whole process, because `tracing` remembers for all threads whether a place that logs is
//! listened to: subscribers of single threads, coming and going beside each other, now and then miss a line.

use std::{cell::RefCell, io, sync::Once};

use tracing_subscriber::fmt::MakeWriter;

thread_local!(static KEPT: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) });

/// Everything logged on this thread, at every level, until it is dropped. For cases that run on one thread.
#[derive(Debug)]
pub struct Logs(());

/// Writes to whatever the logging thread keeps.
struct ToThread;

impl io::Write for ToThread {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        KEPT.with_borrow_mut(|kept| {
            if let Some(text) = kept {
                text.extend_from_slice(bytes);
            }
        });
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for ToThread {
    type Writer = Self;
    fn make_writer(&self) -> Self {
        Self
    }
}

impl Logs {
    /// Keeps what is logged from now on.
    ///
    /// # Panics
    /// If the process has another subscriber already.
    pub fn keep() -> Self {
        static SUBSCRIBED: Once = Once::new();
        SUBSCRIBED.call_once(|| {
            let subscriber = tracing_subscriber::fmt()
                .with_max_level(tracing::Level::TRACE)
                .with_ansi(false)
                .with_writer(ToThread)
                .finish();
            tracing::subscriber::set_global_default(subscriber).expect("the only subscriber");
        });
        KEPT.set(Some(Vec::new()));
        Self(())
    }

    /// What was logged so far.
    pub fn text(&self) -> String {
        KEPT.with_borrow(|kept| {
            String::from_utf8_lossy(kept.as_deref().unwrap_or_default()).into_owned()
        })
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        KEPT.set(None);
    }
}
