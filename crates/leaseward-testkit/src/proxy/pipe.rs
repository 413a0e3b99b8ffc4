//! One direction of one connection: bytes wait here until they are due and not held.

use std::{
    collections::VecDeque,
    io::Write,
    net::{Shutdown, TcpStream},
    num::NonZeroU64,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
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

/// Learns how late a thread is woken, mostly some tens of microseconds, to be woken earlier by that much.
#[derive(Debug, Default)]
struct Alarm {
    lateness: Duration,
}

impl Alarm {
    /// More than this is not the alarm's fault, and would be spent spinning.
    const LATEST: Duration = Duration::from_micros(100);

    fn rang(&mut self, wake: Instant) {
        if let Some(late) = Instant::now().checked_duration_since(wake) {
            self.lateness = (self.lateness * 7 + late.min(Self::LATEST)) / 8;
        }
    }
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
    fn next(&self, alarm: &mut Alarm) -> Option<Piece> {
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
            let Some(sleep) = left.checked_sub(alarm.lateness).filter(|sleep| !sleep.is_zero())
            else {
                drop(queue);
                while Instant::now() < due {
                    std::hint::spin_loop();
                }
                queue = self.lock();
                continue;
            };
            let wake = Instant::now() + sleep;
            let waited = self.changed.wait_timeout(queue, sleep);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
            alarm.rang(wake);
        }
    }

    /// Writes out what comes until the end; says whether the connection is to be cut.
    pub(super) fn drain(&self, mut to: &TcpStream) -> bool {
        // By default the kernel may wake us 50 µs late, a tenth of the delays that are used here.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let (mut alarm, mut gone) = (Alarm::default(), false);
        loop {
            match self.next(&mut alarm) {
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
