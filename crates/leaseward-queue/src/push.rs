//! Pushing: callers that come at once travel together.
//!
//! While one batch is on its way the next one gathers: no timer, no added latency at low load, and under load one transaction
//! carries hundreds of jobs, each of them durable before its caller goes on.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock, Weak},
};

use leaseward::{Error, ErrorKind};
use tokio::sync::{mpsc, oneshot};

use crate::{
    JobId,
    backend::{Backend, Row, Told},
    queue::Inner,
    wake::Bells,
};

/// Jobs that travel together at most: more take no less time each.
const BATCH_MAX: usize = 1_000;

/// Callers that wait for their turn to be sent; those beyond wait to be let in.
const WAITING_MAX: usize = 10_000;

/// Told when a job is due sooner than this: whoever promotes looks every second anyway.
const SOON_US: i64 = 2_000_000;

/// How often those who were just answered are let go on before the next batch leaves. They may push again at once, and then
/// all of them travel together; else the first one back would travel alone, and all others wait for it.
const LET_GO: usize = 4;

type Reply = oneshot::Sender<Result<(JobId, bool), Error>>;

#[derive(Debug, Default)]
pub(crate) struct Pusher {
    sender: OnceLock<mpsc::Sender<(Row, Reply)>>,
}

impl Pusher {
    pub(crate) async fn push(&self, inner: &Arc<Inner>, row: Row) -> Result<(JobId, bool), Error> {
        let sender = self.sender.get_or_init(|| {
            let (sender, receiver) = mpsc::channel(WAITING_MAX);
            tokio::spawn(carry(inner.me.clone(), receiver));
            sender
        });
        let (reply, answer) = oneshot::channel();
        let gone =
            || Error::new(ErrorKind::Indeterminate, "the runtime that pushed this job has ended");
        sender.send((row, reply)).await.map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }
}

async fn carry(inner: Weak<Inner>, mut waiting: mpsc::Receiver<(Row, Reply)>) {
    let (mut batch, mut answered) = (Vec::new(), 0);
    loop {
        for _ in 0..LET_GO {
            if waiting.len() >= answered {
                break;
            }
            tokio::task::yield_now().await;
        }
        if waiting.recv_many(&mut batch, BATCH_MAX).await == 0 {
            return;
        }
        let Some(inner) = inner.upgrade() else { return };
        let (rows, replies): (Vec<_>, Vec<_>) = batch.drain(..).unzip();
        answered = replies.len();
        match inner.push_together(rows).await {
            // Whoever has gone does not want to know.
            Ok(pushed) => {
                replies.into_iter().zip(pushed).for_each(|(reply, id)| drop(reply.send(Ok(id))))
            }
            Err(error) => {
                replies.into_iter().for_each(|reply| drop(reply.send(Err(error.duplicate()))))
            }
        }
    }
}

/// Pushes rows in one transaction, and tells whom it concerns.
pub(crate) async fn push(
    backend: &dyn Backend,
    bells: &Bells,
    session: i64,
    rows: Vec<Row>,
) -> Result<Vec<(JobId, bool)>, Error> {
    let is_soon = rows.iter().any(|row| (-SOON_US..0).contains(&row.due_us) || row.due_us > 0);
    let has_later = rows.iter().any(|row| row.due_us != 0);
    let (rows, twins) = without_twins(rows);
    let slots: Vec<i64> = rows.iter().filter(|row| row.due_us == 0).map(|row| row.slot).collect();
    // At most so often: a commit that tells others waits for all others that do.
    let tells = !slots.is_empty() && bells.may_tell_now();
    let pushes = backend.push(session, rows, tells).await?;
    let mut queues: Vec<i32> = slots.into_iter().map(|slot| JobId::new(slot).queue()).collect();
    queues.dedup();
    for queue in queues {
        bells.ring(queue);
        if pushes.others_sleep && !tells {
            bells.tell(Told::Work(queue));
        }
    }
    if has_later {
        bells.later();
        if pushes.others_sleep && is_soon {
            bells.tell(Told::Later);
        }
    }
    Ok(with_twins(pushes.jobs, twins))
}

/// Of rows with the same unique key the first stays; where the others would have stood, the place of the first among those
/// that stay. One statement cannot meet a key twice.
fn without_twins(rows: Vec<Row>) -> (Vec<Row>, Vec<Option<usize>>) {
    if rows.iter().all(|row| row.unique.is_none()) {
        return (rows, Vec::new());
    }
    let mut seen: HashMap<(i32, Box<str>), usize> = HashMap::new();
    let (mut kept, mut twins) = (Vec::new(), Vec::new());
    for row in rows {
        let first = row.unique.as_ref().and_then(|(key, _)| {
            let at = kept.len();
            let first = *seen.entry((JobId::new(row.slot).queue(), key.clone())).or_insert(at);
            (first != at).then_some(first)
        });
        twins.push(first);
        if first.is_none() {
            kept.push(row);
        }
    }
    (kept, twins)
}

fn with_twins(pushed: Vec<(JobId, bool)>, twins: Vec<Option<usize>>) -> Vec<(JobId, bool)> {
    if twins.is_empty() {
        return pushed;
    }
    let mut next = pushed.iter();
    let one = |twin: Option<usize>| match twin {
        Some(first) => pushed.get(first).map(|(id, _)| (*id, false)),
        None => next.next().copied(),
    };
    twins.into_iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_twins_the_first_is_pushed() {
        let row = |unique: Option<&str>| Row {
            slot: 1 << 48,
            due_us: 0,
            key: None,
            unique: unique.map(|key| (key.into(), 0)),
            body: Vec::new(),
        };
        let rows = [Some("a"), None, Some("a"), Some("b"), Some("a")].map(row).to_vec();
        let (kept, twins) = without_twins(rows);
        assert_eq!((kept.len(), &twins[..]), (3, &[None, None, Some(0), None, Some(0)][..]));
        let pushed = [(1, true), (2, true), (3, false)].map(|(id, new)| (JobId::new(id), new));
        let all = with_twins(pushed.to_vec(), twins);
        let all: Vec<_> = all.iter().map(|(id, new)| (id.get(), *new)).collect();
        assert_eq!(all, [(1, true), (2, true), (1, false), (3, false), (1, false)]);
    }
}
