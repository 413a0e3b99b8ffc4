//! What a thread logs.

use std::{io, sync::Arc};

use parking_lot::Mutex;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;

/// Everything logged on this thread, at every level, until it is dropped. For cases that run on one thread.
#[derive(Debug)]
pub struct Logs {
    text: Text,
    _until: DefaultGuard,
}

#[derive(Clone, Debug, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl io::Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Text {
    type Writer = Self;
    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl Logs {
    /// Keeps what is logged from now on.
    pub fn keep() -> Self {
        let text = Text::default();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false)
            .with_writer(text.clone())
            .finish();
        Self { text, _until: tracing::subscriber::set_default(subscriber) }
    }

    /// What was logged so far.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.text.0.lock()).into_owned()
    }
}
