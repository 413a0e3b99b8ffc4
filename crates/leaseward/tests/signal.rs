//! A process that is told to stop gives everything back. Alone in its binary: the signals are for the whole process.

use std::{pin::pin, task::Poll, time::Duration};

use leaseward::{ErrorKind, LostReason, connect};
use rustix::process::{Signal, getpid, kill_process};

#[tokio::test]
async fn both_signals_shut_down() {
    for (signal, store) in [(Signal::TERM, "memory:term"), (Signal::INT, "memory:int")] {
        let (locks, other) = (connect(store).await.expect("opens"), connect(store).await);
        let guard = locks.lock("x").ttl(Duration::from_secs(3600)).acquire().await.expect("free");
        let mut stopping = pin!(locks.shutdown_on_signal());
        // From its first look on it listens; before that, the signal would end this very process.
        let waits = std::future::poll_fn(|cx| Poll::Ready(stopping.as_mut().poll(cx).is_pending()));
        assert!(waits.await && guard.is_held(), "no signal has come yet");
        kill_process(getpid(), signal).expect("it is ours");
        stopping.await.expect("it listened");
        assert_eq!(guard.lost().await, LostReason::ShutDown);
        let error = locks.lock("y").acquire().await.expect_err("no more");
        assert_eq!(error.kind(), ErrorKind::ShutDown);
        let next = other.expect("opens").lock("x").acquire().await.expect("given back");
        assert!(next.is_held());
    }
}
