//! One direction of one connection: bytes wait here until they are due and not held.

use std::{
    collections::VecDeque,
    io::Write,
    net::{Shutdown, TcpStream},
    num::NonZeroU64,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

#[derive(Debug)]
pub(super) enum Piece {
    Bytes(Vec<u8>),
    /// The connection ends here, in both directions.
    Cut,
    /// Nothing more will come.
    End,
}

#[derive(Debug, Default)]
struct Queue {
    pieces: VecDeque<(Instant, Piece)>,
    held: bool,
    closed: bool,
}

/// Filled by the thread that reads one side, emptied by the thread that writes to the other. So a delay costs latency and
/// no throughput.
#[derive(Debug, Default)]
pub(super) struct Pipe {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl Pipe {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, due: Instant, piece: Piece) {
        self.lock().pieces.push_back((due, piece));
        self.changed.notify_one();
    }

    pub(super) fn hold(&self, held: bool) {
        self.lock().held = held;
        self.changed.notify_one();
    }

    /// Forgets what it has and lets its writer go.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
    }

    /// How many bytes wait in it.
    pub(super) fn waiting(&self) -> usize {
        let length = |(_, piece): &(_, Piece)| match piece {
            Piece::Bytes(bytes) => bytes.len(),
            Piece::Cut | Piece::End => 0,
        };
        self.lock().pieces.iter().map(length).sum()
    }

    /// The next piece when its time has come; `None` if the pipe is closed.
    fn next(&self) -> Option<Piece> {
        let mut queue = self.lock();
        loop {
            if queue.closed {
                return None;
            }
            let due = queue.pieces.front().filter(|_| !queue.held).map(|(due, _)| *due);
            let Some(due) = due else {
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return queue.pieces.pop_front().map(|(_, piece)| piece);
            }
            let waited = self.changed.wait_timeout(queue, left);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Writes out what comes until the end; says whether the connection is to be cut.
    pub(super) fn drain(&self, mut to: &TcpStream) -> bool {
        // By default the kernel may wake us 50 µs late, a tenth of the delays that are used here.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut gone = false;
        loop {
            match self.next() {
                // Who hung up still has its requests delivered: only what it should receive is lost.
                Some(Piece::Bytes(bytes)) => gone = gone || to.write_all(&bytes).is_err(),
                Some(Piece::End) => {
                    let _ = to.shutdown(Shutdown::Write);
                    return false;
                }
                Some(Piece::Cut) => return true,
                None => return false,
            }
        }
    }
}
