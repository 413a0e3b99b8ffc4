//! The task that reads.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use redis::{PushInfo, PushKind, Value};
use tokio::io::{AsyncRead, ReadBuf};

use super::{
    End, OnPush, Shared,
    frames::{Frames, Nonsense},
    stream::Reader,
};

/// Room for what is read at once.
const ROOM: usize = 1 << 14;

/// Answers that come in while others are read are read too, but not without end.
const READS_MAX: usize = 16;

/// Reads until the connection ends.
pub(super) async fn carry(mut reader: Reader, shared: Arc<Shared>, on_push: OnPush) {
    let mut answers = Answers { bytes: vec![0; ROOM], len: 0, frames: Frames::new() };
    let mut ended = Ended { shared: &shared, why: End::Broken(io::ErrorKind::BrokenPipe) };
    ended.why = poll_fn(|cx| {
        shared.carrier.register(cx.waker());
        if let Err(error) = shared.poll_flush(cx) {
            return Poll::Ready(End::Broken(error.kind()));
        }
        for _ in 0..READS_MAX {
            if let Err(error) = ready!(answers.poll_read(cx, reader.as_mut())) {
                return Poll::Ready(End::Broken(error.kind()));
            }
            if answers.hand_out(&shared, &on_push).is_err() {
                return Poll::Ready(End::Nonsense);
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
    drop(ended);
    on_push(PushInfo { kind: PushKind::Disconnection, data: Vec::new() });
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

/// What was read and not handed out yet.
struct Answers {
    bytes: Vec<u8>,
    len: usize,
    frames: Frames,
}

impl Answers {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        reader: Pin<&mut (dyn AsyncRead + Send)>,
    ) -> Poll<io::Result<()>> {
        if self.len == self.bytes.len() {
            self.bytes.resize(self.len * 2, 0);
        }
        let mut room = ReadBuf::new(&mut self.bytes[self.len..]);
        match reader.poll_read(cx, &mut room) {
            Poll::Ready(Ok(())) if room.filled().is_empty() => {
                Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()))
            }
            Poll::Ready(Ok(())) => {
                self.len += room.filled().len();
                Poll::Ready(Ok(()))
            }
            other => other,
        }
    }

    fn hand_out(&mut self, shared: &Shared, on_push: &OnPush) -> Result<(), Nonsense> {
        let mut from = 0;
        while let Some(len) = self.frames.next(&self.bytes[from..self.len])? {
            let value = redis::parse_redis_value(&self.bytes[from..from + len]);
            from += len;
            match value.map_err(|_| Nonsense)? {
                // The only kind that somebody waits for.
                Value::Push { kind: PushKind::Subscribe, data } => {
                    shared.answer(Value::Array(data))?;
                }
                Value::Push { kind, data } => on_push(PushInfo { kind, data }),
                value => shared.answer(value)?,
            }
        }
        self.bytes.copy_within(from..self.len, 0);
        self.len -= from;
        if self.len == 0 && self.bytes.len() > ROOM {
            self.bytes = vec![0; ROOM];
        }
        Ok(())
    }
}
