//! A worker that gives everything back when it is told to stop.
//!
//! `cargo run --example graceful_shutdown --features signal`, then `kill -TERM` it, or press Ctrl-C.

use leaseward::{Error, ErrorKind};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let locks = leaseward::connect("memory:").await?;
    let stopping = tokio::spawn({
        let locks = locks.clone();
        async move { locks.shutdown_on_signal().await }
    });
    println!("working, pid {}", std::process::id());
    let lock = locks.lock("nightly-report");
    let work = lock.run(|lease| async move {
        // The work is dropped before the lease can end, also at shutdown.
        lease.lost().await
    });
    match work.await {
        Err(error) if error.kind() == ErrorKind::Lost => println!("stopped: {error}"),
        other => println!("finished: {other:?}"),
    }
    stopping.await.map_err(|_| Error::new(ErrorKind::ShutDown, "the listener ended"))?
}
