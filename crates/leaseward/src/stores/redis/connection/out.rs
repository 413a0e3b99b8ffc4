//! What goes out, and who writes it to the socket.
//!
//! Whoever sends writes itself, without a task in between. A system call takes as long as dozens of operations, and longer if
//! the server is woken on the same processor: nobody waits for it who wants to send too. What others add meanwhile is written
//! behind it, in one piece, by the one who writes.

use std::{
    io,
    task::{Context, Poll, Waker, ready},
};

use parking_lot::Mutex;

use super::{End, stream::Writer};

/// So often one writes for others before the carrier does.
const WRITES_MAX: usize = 4;

/// How much memory a connection keeps for its requests.
const KEPT_MAX: usize = 1 << 16;

/// Requests that were not sent yet.
pub(super) struct Out {
    queued: Mutex<Queued>,
    /// Only touched by the one whose turn it is to write.
    pen: Mutex<Pen>,
}

#[derive(Default)]
struct Queued {
    bytes: Vec<u8>,
    turn: Turn,
    end: Option<End>,
}

/// Who writes.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Turn {
    #[default]
    Nobody,
    Somebody,
    /// The socket is full, or one has written for others long enough.
    Carrier,
}

struct Pen {
    writer: Writer,
    bytes: Vec<u8>,
    /// How many of them were sent.
    sent: usize,
}

impl Out {
    pub(super) fn new(writer: Writer) -> Self {
        let pen = Pen { writer, bytes: Vec::new(), sent: 0 };
        Self { queued: Mutex::default(), pen: Mutex::new(pen) }
    }

    pub(super) fn is_ended(&self) -> bool {
        self.queued.lock().end.is_some()
    }

    /// Adds a request, and has `note` note who waits for its answer, in the order in which requests go out. `false` if the
    /// carrier is to go on.
    pub(super) fn send(
        &self,
        write: impl FnOnce(&mut Vec<u8>),
        note: impl FnOnce(),
    ) -> Result<bool, End> {
        let mut queued = self.queued.lock();
        if let Some(end) = &queued.end {
            return Err(end.clone());
        }
        write(&mut queued.bytes);
        note();
        if queued.turn != Turn::Nobody {
            return Ok(true);
        }
        queued.turn = Turn::Somebody;
        for _ in 0..WRITES_MAX {
            let mut pen = self.pen.lock();
            pen.take(&mut queued.bytes);
            drop(queued);
            let sent = pen.poll_send(&mut Context::from_waker(Waker::noop()));
            drop(pen);
            queued = self.queued.lock();
            if !matches!(sent, Poll::Ready(Ok(()))) {
                // The carrier meets the same failure if it was one.
                break;
            }
            if queued.bytes.is_empty() {
                queued.turn = Turn::Nobody;
                return Ok(true);
            }
        }
        queued.turn = Turn::Carrier;
        Ok(false)
    }

    /// The carrier sends on what was left to it. It is woken when the socket takes more.
    pub(super) fn poll_flush(&self, cx: &mut Context<'_>) -> io::Result<()> {
        loop {
            let mut queued = self.queued.lock();
            if queued.turn != Turn::Carrier {
                return Ok(());
            }
            let mut pen = self.pen.lock();
            if pen.is_done() {
                if queued.bytes.is_empty() {
                    queued.turn = Turn::Nobody;
                    return Ok(());
                }
                pen.take(&mut queued.bytes);
            }
            drop(queued);
            match pen.poll_send(cx) {
                Poll::Pending => return Ok(()),
                Poll::Ready(sent) => sent?,
            }
        }
    }

    /// Nothing is sent any more. What `done` does comes before anybody hears of that.
    pub(super) fn end<T>(&self, why: End, done: impl FnOnce() -> T) -> T {
        let mut queued = self.queued.lock();
        queued.end = Some(why);
        done()
    }
}

impl Pen {
    fn is_done(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Takes what is to be written next; all before it was.
    fn take(&mut self, bytes: &mut Vec<u8>) {
        std::mem::swap(&mut self.bytes, bytes);
    }

    /// Sends as much as the socket takes.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.bytes.len() {
            match ready!(self.writer.as_mut().poll_write(cx, &self.bytes[self.sent..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                len => self.sent += len,
            }
        }
        ready!(self.writer.as_mut().poll_flush(cx))?;
        // The memory serves the next request too, unless this one was unusually large.
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_MAX);
        self.sent = 0;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::Pin,
        sync::{Arc, mpsc},
        thread,
    };

    use tokio::io::AsyncWrite;

    use super::*;

    /// Writes what it is told to: before each write it asks what to do, and waits for the answer.
    struct Slow {
        asks: mpsc::Sender<()>,
        told: mpsc::Receiver<Poll<()>>,
        written: Arc<Mutex<Vec<String>>>,
    }

    impl AsyncWrite for Slow {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.asks.send(()).expect("the test is there");
            ready!(self.told.recv().expect("the test is there"));
            self.written.lock().push(String::from_utf8_lossy(bytes).into());
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    struct Test {
        out: Arc<Out>,
        asked: mpsc::Receiver<()>,
        tell: mpsc::Sender<Poll<()>>,
        written: Arc<Mutex<Vec<String>>>,
    }

    fn slow() -> Test {
        let ((asks, asked), (tell, told)) = (mpsc::channel(), mpsc::channel());
        let written = Arc::new(Mutex::new(Vec::new()));
        let writer = Slow { asks, told, written: written.clone() };
        Test { out: Arc::new(Out::new(Box::pin(writer))), asked, tell, written }
    }

    fn send(out: &Out, text: &str) -> bool {
        let sent = out.send(|bytes| bytes.extend_from_slice(text.as_bytes()), || {});
        sent.unwrap_or_else(|end| panic!("{end:?}"))
    }

    #[test]
    fn nobody_waits_for_whoever_writes_who_writes_for_all() {
        let Test { out, asked, tell, written } = slow();
        let first = thread::spawn({
            let out = out.clone();
            move || send(&out, "a")
        });
        asked.recv().expect("the first writes");
        // It is held up, and these come back all the same.
        assert!(send(&out, "b") && send(&out, "c"));
        tell.send(Poll::Ready(())).expect("it waits");
        asked.recv().expect("it goes on");
        tell.send(Poll::Ready(())).expect("it waits");
        assert!(first.join().expect("no panic"));
        assert_eq!(*written.lock(), ["a", "bc"]);
    }

    #[test]
    fn what_the_socket_does_not_take_the_carrier_sends_in_order() {
        let Test { out, asked: _asked, tell, written } = slow();
        tell.send(Poll::Pending).expect("it is there");
        assert!(!send(&out, "a"), "the carrier is to go on");
        assert!(send(&out, "b"));
        let mut cx = Context::from_waker(Waker::noop());
        tell.send(Poll::Pending).expect("it is there");
        out.poll_flush(&mut cx).expect("no failure");
        assert!(written.lock().is_empty());
        for _ in 0..2 {
            tell.send(Poll::Ready(())).expect("it is there");
        }
        out.poll_flush(&mut cx).expect("no failure");
        assert_eq!(*written.lock(), ["a", "b"]);
        // From here on whoever sends writes.
        tell.send(Poll::Ready(())).expect("it is there");
        assert!(send(&out, "c"));
        assert_eq!(written.lock().last().map(String::as_str), Some("c"));
    }

    #[test]
    fn one_who_has_written_for_others_long_enough_leaves_it_to_the_carrier() {
        let Test { out, asked, tell, written } = slow();
        let first = thread::spawn({
            let out = out.clone();
            move || send(&out, "a")
        });
        for _ in 0..WRITES_MAX {
            asked.recv().expect("it writes");
            assert!(send(&out, "+"));
            tell.send(Poll::Ready(())).expect("it waits");
        }
        assert!(!first.join().expect("no panic"), "the carrier is to go on");
        tell.send(Poll::Ready(())).expect("it is there");
        out.poll_flush(&mut Context::from_waker(Waker::noop())).expect("no failure");
        assert_eq!(written.lock().concat(), "a++++");
    }
}
