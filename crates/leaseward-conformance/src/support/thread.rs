//! Work on a thread and runtime of its own, as another program of the same process would do it.

use std::{
    panic,
    thread::{self, JoinHandle},
};

use tokio::runtime::Builder;

use crate::Fixture;

/// Does something on a runtime that has one thread, which what is done may block.
pub fn on_own_runtime<T, F, Fut>(fixture: &Fixture, work: F) -> JoinHandle<T>
where
    T: Send + 'static,
    F: FnOnce(Fixture) -> Fut + Send + 'static,
    Fut: Future<Output = T>,
{
    let fixture = fixture.clone();
    thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build();
        // The runtime ends with the work.
        runtime.expect("a runtime can be made").block_on(work(fixture))
    })
}

/// Waits for a thread; its panic is ours.
pub async fn join<T: Send + 'static>(thread: JoinHandle<T>) -> T {
    let joined = tokio::task::spawn_blocking(move || thread.join()).await.expect("joins");
    joined.unwrap_or_else(|cause| panic::resume_unwind(cause))
}
