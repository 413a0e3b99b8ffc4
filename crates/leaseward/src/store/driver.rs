//! Drives futures to completions, for stores whose drivers give futures.

use std::fmt;

use futures_util::{StreamExt, stream::FuturesUnordered};
use parking_lot::Mutex;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use super::{Answer, Completion};
use crate::clock::BoxFuture;

/// A task that carries batches to their answers. It begins them in the order in which they came: callers that queue one
/// after the other stand in the store's queue in that order.
#[derive(Default)]
pub(crate) struct Driver(Mutex<Option<UnboundedSender<Batch>>>);

type Batch = (BoxFuture<'static, Vec<Answer>>, Completion);

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}

impl Driver {
    /// Takes a batch. On a runtime that has ended it is dropped, and so answered as unknown.
    pub(crate) fn drive(
        &self,
        answers: impl Future<Output = Vec<Answer>> + Send + 'static,
        reply: Completion,
    ) {
        let mut sender = self.0.lock();
        // The first batch, or the first after one whose code panicked.
        if sender.as_ref().is_none_or(UnboundedSender::is_closed) {
            let (begun, batches) = mpsc::unbounded_channel();
            tokio::spawn(run(batches));
            *sender = Some(begun);
        }
        let unsent =
            sender.as_ref().and_then(|sender| sender.send((Box::pin(answers), reply)).err());
        // Not under the lock: what is dropped is answered.
        drop(sender);
        drop(unsent);
    }
}

/// Runs until the store is gone and all has been answered.
async fn run(mut batches: UnboundedReceiver<Batch>) {
    let mut under_way = FuturesUnordered::new();
    let carry_out = |(answers, reply): Batch| async move { reply.answer_all(answers.await) };
    loop {
        if under_way.is_empty() {
            match batches.recv().await {
                Some(batch) => under_way.push(carry_out(batch)),
                None => return,
            }
        }
        std::future::poll_fn(|cx| {
            while let std::task::Poll::Ready(Some(batch)) = batches.poll_recv(cx) {
                under_way.push(carry_out(batch));
            }
            under_way.poll_next_unpin(cx).map(drop)
        })
        .await;
    }
}
