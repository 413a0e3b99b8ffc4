//! What comes in, and who is told that there is something to read.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use redis::Value;
use tokio::io::ReadBuf;

use super::{
    End,
    frames::{Frames, Nonsense},
    stream::Reader,
    usual,
};

/// Room for what is read at once.
const ROOM: usize = 1 << 14;

/// The most that one answer may take: what is asked for comes in pages that are far smaller.
const ANSWER_MAX: usize = 64 << 20;

/// What was read and not handed out yet.
pub(super) struct Inbox {
    reader: Reader,
    bytes: Vec<u8>,
    len: usize,
    frames: Frames,
    /// Nothing has come yet.
    is_new: bool,
    /// Nothing comes any more.
    pub(super) end: Option<End>,
}

impl Inbox {
    pub(super) fn new(reader: Reader) -> Self {
        Self {
            reader,
            bytes: vec![0; ROOM],
            len: 0,
            frames: Frames::new(),
            is_new: true,
            end: None,
        }
    }

    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.len == self.bytes.len() {
            if self.len >= ANSWER_MAX {
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
            self.bytes.resize(self.len * 2, 0);
        }
        let mut room = ReadBuf::new(&mut self.bytes[self.len..]);
        match self.reader.as_mut().poll_read(cx, &mut room) {
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

    /// Gives away every answer of which all has come, and says whether it is the first; what cannot be taken is the end.
    pub(super) fn hand_out(&mut self, give: impl FnMut(Value, bool) -> Result<(), End>) {
        if let Err(end) = self.try_hand_out(give) {
            self.end = Some(end);
        }
    }

    fn try_hand_out(
        &mut self,
        mut give: impl FnMut(Value, bool) -> Result<(), End>,
    ) -> Result<(), End> {
        let mut from = 0;
        while let Some(len) =
            self.frames.next(&self.bytes[from..self.len]).map_err(|Nonsense| End::Nonsense)?
        {
            let bytes = &self.bytes[from..from + len];
            let value = usual::read(bytes).map_or_else(|| redis::parse_redis_value(bytes), Ok);
            from += len;
            let is_first = std::mem::take(&mut self.is_new);
            give(value.map_err(|_| End::Nonsense)?, is_first)?;
        }
        self.bytes.copy_within(from..self.len, 0);
        self.len -= from;
        if self.len == 0 && self.bytes.len() > ROOM {
            self.bytes = vec![0; ROOM];
        }
        Ok(())
    }
}

/// Who reads once there is something to read: a guest, who waits for an answer, as nobody else does, and saves a task's turn
/// by reading it himself; or else the carrier.
#[derive(Default)]
pub(super) struct Ready {
    pub(super) carrier: AtomicWaker,
    guest: Mutex<Option<Waker>>,
    /// There is something, and nobody has begun to read it.
    is_due: AtomicBool,
}

impl Ready {
    /// Whoever reads now gets all that was told of so far.
    pub(super) fn begin(&self) {
        self.is_due.store(false, Ordering::SeqCst);
    }

    pub(super) fn invite(&self, waker: &Waker) {
        let mut guest = self.guest.lock();
        if guest.as_ref().is_none_or(|guest| !guest.will_wake(waker)) {
            *guest = Some(waker.clone());
        }
    }

    /// From now on the carrier reads, unless the guest is somebody else. What he was told of and has left, too.
    pub(super) fn dismiss(&self, whom: Option<&Waker>) {
        let mut guest = self.guest.lock();
        let Some(present) = &*guest else { return };
        if whom.is_some_and(|whom| !whom.will_wake(present)) {
            return;
        }
        *guest = None;
        drop(guest);
        if self.is_due.load(Ordering::SeqCst) {
            self.carrier.wake();
        }
    }
}

impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_due.store(true, Ordering::SeqCst);
        // He stays until he leaves: a socket that becomes ready again is told of again. Not under the lock: what is woken
        // may end, and leave.
        let guest = self.guest.lock().clone();
        match guest {
            Some(guest) => guest.wake(),
            None => self.carrier.wake(),
        }
    }
}
