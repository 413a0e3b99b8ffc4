//! The seam, with a bad line in it.

use std::{sync::Arc, time::Duration};

use leaseward::{
    Error, ErrorKind,
    clock::{BoxFuture, Clock},
    store::{
        Answer, Batch, Break, Broken, Capability, Completion, Finding, Guarantee, LockView,
        Observation, Operation, PushSink, Query, Store, answer_later,
    },
};
use tokio::sync::broadcast;

use super::{Fate, Faulty, Kind, Line, PushFate};

impl Store for Faulty {
    fn capability(&self) -> &Capability {
        self.inner.capability()
    }

    fn guarantee(&self) -> Guarantee {
        self.inner.guarantee()
    }

    fn location(&self) -> String {
        self.inner.location()
    }

    fn start(&self, sink: PushSink) {
        self.line.pushes.lock().sink = Some(sink);
        let line = Arc::downgrade(&self.line);
        self.inner.start(Arc::new(move |push| {
            let Some(line) = line.upgrade() else { return };
            if line.script.lock().loses_push() {
                return;
            }
            let sink = {
                let mut pushes = line.pushes.lock();
                match pushes.fate {
                    PushFate::Through => pushes.sink.clone(),
                    PushFate::Drop => None,
                    PushFate::Hold => {
                        pushes.held.push(push.clone());
                        None
                    }
                }
            };
            if let Some(sink) = sink {
                sink(push);
            }
        }));
    }

    fn submit(&self, batch: Batch, reply: Completion) {
        let fates = self.line.meet(&batch);
        let (inner, line, clock) = (self.inner.clone(), self.line.clone(), self.clock.clone());
        let answers = async move {
            delay(&fates, &*clock).await;
            if fates.contains(&Fate::HoldRequest) {
                line.gate.pass().await;
            }
            let mut arriving = Batch::with_capacity(batch.len());
            for (operation, fate) in batch.into_iter().zip(&fates) {
                match fate {
                    Fate::Refuse | Fate::LoseRequest => {}
                    Fate::Repeat => arriving.extend([operation.clone(), operation]),
                    _ => arriving.push(operation),
                }
            }
            let answers =
                if arriving.is_empty() { vec![] } else { inner.carry_out(arriving).await };
            if fates.iter().any(|fate| matches!(fate, Fate::HoldReply | Fate::HoldAndLoseReply)) {
                line.gate.pass().await;
            }
            delay(&fates, &*clock).await;
            replies(&fates, answers)
        };
        answer_later(answers, reply);
    }

    fn inspect(&self, query: Query) -> BoxFuture<'static, Result<Vec<LockView>, Error>> {
        self.inner.inspect(query)
    }

    fn observe(&self) -> Option<broadcast::Receiver<Arc<Observation>>> {
        self.inner.observe()
    }

    fn break_lease(&self, order: Break) -> BoxFuture<'static, Result<Broken, Error>> {
        self.inner.break_lease(order)
    }

    fn ping(&self) -> BoxFuture<'static, Result<Duration, Error>> {
        self.inner.ping()
    }

    fn diagnose(&self) -> BoxFuture<'static, Result<Vec<Finding>, Error>> {
        self.inner.diagnose()
    }

    fn fence_lead(&self) -> Option<Duration> {
        self.inner.fence_lead()
    }

    fn close(&self) -> BoxFuture<'static, ()> {
        self.inner.close()
    }
}

impl Line {
    /// Takes note of a batch and decides what befalls it.
    fn meet(&self, batch: &Batch) -> Vec<Fate> {
        self.seen.send_modify(|seen| {
            for operation in batch {
                match Kind::of(operation) {
                    Kind::Ask => seen.asks += 1,
                    Kind::Renew => seen.renewals += 1,
                    Kind::Release => seen.releases += 1,
                }
            }
        });
        for operation in batch {
            if let Operation::Ask(ask) = operation {
                *self.last_asked.lock() = Some(ask.token.clone());
            }
        }
        let mut script = self.script.lock();
        batch.iter().map(|operation| script.fate(Kind::of(operation))).collect()
    }
}

async fn delay(fates: &[Fate], clock: &dyn Clock) {
    let slowest = fates.iter().filter_map(|fate| match fate {
        Fate::Delay(by) => Some(*by),
        _ => None,
    });
    if let Some(by) = slowest.max() {
        clock.sleep_until(clock.now() + by).await;
    }
}

/// An answer for each operation, from those of the operations that arrived.
fn replies(fates: &[Fate], answers: Vec<Answer>) -> Vec<Answer> {
    let mut answers = answers.into_iter();
    let mut next = || answers.next().expect("BUG: a store answers every operation");
    fates
        .iter()
        .map(|fate| match fate {
            Fate::Refuse => Err(Error::new(ErrorKind::Unavailable, "the line is cut")),
            Fate::LoseRequest => Err(lost()),
            Fate::LoseReply | Fate::HoldAndLoseReply => {
                drop(next());
                Err(lost())
            }
            Fate::Repeat => {
                drop(next());
                next()
            }
            Fate::Through | Fate::HoldRequest | Fate::HoldReply | Fate::Delay(_) => next(),
        })
        .collect()
}

fn lost() -> Error {
    Error::new(ErrorKind::Indeterminate, "no reply came")
}
