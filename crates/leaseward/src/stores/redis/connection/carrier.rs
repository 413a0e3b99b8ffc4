//! The task that reads what nobody else does.

use std::{
    future::{Future as _, poll_fn},
    io,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use redis::{PushInfo, PushKind};

use super::{End, Shared};

/// How long a connection that takes no more requests is read yet: whoever closed it may have said why before. As a rule
/// its other half ends at once.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Reads until the connection ends.
pub(super) async fn carry(shared: Arc<Shared>) {
    let mut ended = Ended { shared: &shared, why: End::Broken(io::ErrorKind::BrokenPipe) };
    let mut broken = None;
    ended.why = poll_fn(|cx| {
        shared.ready.carrier.register(cx.waker());
        if broken.is_none()
            && let Err(error) = shared.out.poll_flush(cx)
        {
            broken = Some((error.kind(), Box::pin(tokio::time::sleep(LAST_WORDS))));
        }
        match (shared.read(), &mut broken) {
            (Some(end), _) => Poll::Ready(end),
            (None, Some((kind, over))) => over.as_mut().poll(cx).map(|()| End::Broken(*kind)),
            (None, None) => Poll::Pending,
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
        self.shared.end(self.why.clone());
    }
}
