//! The task that reads what nobody else does.

use std::{future::poll_fn, io, sync::Arc, task::Poll};

use redis::{PushInfo, PushKind};

use super::{End, Shared};

/// Reads until the connection ends.
pub(super) async fn carry(shared: Arc<Shared>) {
    let mut ended = Ended { shared: &shared, why: End::Broken(io::ErrorKind::BrokenPipe) };
    ended.why = poll_fn(|cx| {
        shared.ready.carrier.register(cx.waker());
        let flushed = shared.poll_flush(cx);
        // Whoever closes a connection may have said why before.
        match (shared.read(), flushed) {
            (Some(end), _) => Poll::Ready(end),
            (None, Err(error)) => Poll::Ready(End::Broken(error.kind())),
            (None, Ok(())) => Poll::Pending,
        }
    })
    .await;
    drop(ended);
    (shared.on_push)(PushInfo { kind: PushKind::Disconnection, data: Vec::new() });
}

/// Tells all who wait of the end, also if the task is ended from outside.
struct Ended<'a> {
    shared: &'a Shared,
    why: End,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.shared.end(self.why);
    }
}
