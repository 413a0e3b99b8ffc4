//! Graceful shutdown on a signal.

use crate::{Error, ErrorKind, Locks};

impl Locks {
    /// Waits for SIGTERM or SIGINT, then [shuts down](Locks::shutdown): everything held is released before the process
    /// ends. Spawn it once, or race it with the program's own work.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if signals cannot be listened to.
    ///
    /// # Cancel safety
    /// Cancel safe until the signal has come.
    pub async fn shutdown_on_signal(&self) -> Result<(), Error> {
        use tokio::signal::unix::{SignalKind, signal};
        let failed = |error: std::io::Error| {
            Error::new(ErrorKind::Unsupported, "signals cannot be listened to here")
                .caused_by(error)
        };
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        std::future::poll_fn(|cx| {
            let is_signalled =
                terminate.poll_recv(cx).is_ready() || interrupt.poll_recv(cx).is_ready();
            if is_signalled { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
        self.shutdown().await;
        Ok(())
    }
}
