//! What cases are written with.

mod bare;
mod heard;
mod logs;
mod taker;
mod thread;
mod wait;
mod witness;

use std::{fmt, time::Duration};

use leaseward::{Attempt, Busy, Error, Guard, Lock};
use tokio::task::JoinHandle;

pub use self::{
    bare::Bare,
    heard::Heard,
    logs::Logs,
    taker::Taker,
    thread::{join, on_own_runtime},
    wait::{eventually, held_with, poll_once, queue_of, view},
    witness::{Crowd, Witness},
};

/// The TTL of leases that are meant to run out: as short as a busy machine allows.
pub const SHORT: Duration = Duration::from_millis(300);

/// The TTL of leases that must survive a stall of a busy machine while they are renewed.
pub const KEPT: Duration = Duration::from_millis(1_500);

/// The TTL of leases that are not: whatever comes free sooner did not come free by expiry.
pub const LONG: Duration = Duration::from_secs(3600);

/// Starts to wait for a lock.
pub fn asking(lock: Lock) -> JoinHandle<Result<Guard, Error>> {
    tokio::spawn(async move { lock.acquire().await })
}

/// What somebody who was [`asking`] got.
pub async fn granted(asked: JoinHandle<Result<Guard, Error>>) -> Guard {
    asked.await.expect("the task lives").expect("the lease is granted")
}

/// Drops what a task waits in, and waits until that has been done.
///
/// # Panics
/// If the task had ended before: then nothing was cancelled.
pub async fn cancel<T: fmt::Debug>(task: JoinHandle<T>) {
    task.abort();
    assert!(task.await.expect_err("there was nothing to cancel").is_cancelled());
}

/// Takes a lock that must be free.
pub async fn take(lock: &Lock) -> Guard {
    match lock.try_acquire().await.expect("the store answers") {
        Attempt::Granted(guard) => guard,
        Attempt::Busy(busy) => panic!("it must be free, but is {busy}"),
    }
}

/// Tries a lock that must not be free.
pub async fn busy(lock: &Lock) -> Busy {
    match lock.try_acquire().await.expect("the store answers") {
        Attempt::Granted(guard) => panic!("it must be busy, but was granted: {guard:?}"),
        Attempt::Busy(busy) => busy,
    }
}
