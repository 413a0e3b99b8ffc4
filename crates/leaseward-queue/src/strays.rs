//! Leases of this process that nobody in it knows of: the answer to a claim was lost, or a worker was dropped in the middle of
//! its work. While others of the process keep the session alive they would be stuck; so they are given back.

use std::{sync::Arc, time::Duration};

use leaseward::{Error, ErrorKind};

use crate::{
    backend::{Ending, Fate, Lease, Settle, Turn},
    body::Body,
    queue::Inner,
    session::Life,
};

/// Looked for after these times, one after the other: the statement may still be on its way when its answer is given up.
const AFTER: [Duration; 3] = [Duration::ZERO, Duration::from_secs(4), Duration::from_secs(15)];

/// Between attempts while the database is not reached.
const RETRY: Duration = Duration::from_millis(500);

/// Gives strays of a session back, now and once more later. Outlives whoever asks for it.
pub(crate) fn give_back_soon(inner: &Inner, life: &Arc<Life>) {
    // Without a runtime, or with its end, the session ends too.
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    let (inner, life) = (inner.me.clone(), life.clone());
    runtime.spawn(async move {
        for after in AFTER {
            tokio::time::sleep(after).await;
            loop {
                let Some(inner) = inner.upgrade() else { return };
                match give_back(&inner, &life).await {
                    Ok(()) => break,
                    Err(_) if life.is_over() => return,
                    Err(error) => {
                        tracing::debug!(target: "leaseward_queue", error = %error, "strays are looked for again");
                    }
                }
                drop(inner);
                tokio::time::sleep(RETRY).await;
            }
        }
    });
}

async fn give_back(inner: &Inner, life: &Life) -> Result<(), Error> {
    // While nobody claims, what is not known is stray.
    let _nobody_claims = life.claiming.write().await;
    let known = life.tokens.lock().iter().copied().collect();
    let strays = inner.backend.strays(life.id, known).await?;
    let mut settle = Settle { in_transactions: true, ..Settle::default() };
    for Lease { token, jobs } in strays {
        settle.ended.push(token);
        settle.endings.extend(jobs.into_iter().map(|job| {
            let unique = Body::decode(&job.body).ok().and_then(|body| body.unique);
            Ending {
                token,
                id: job.id,
                fate: Fate::Back { body: job.body },
                key: job.key,
                unique,
                noted: false,
            }
        }));
    }
    let mut queues: Vec<i32> = settle.endings.iter().map(|ending| ending.id.queue()).collect();
    if queues.is_empty() {
        return Ok(());
    }
    let turned = inner.backend.turn(Turn { session: life.id, settle, claim: None }).await?;
    queues.dedup();
    queues.into_iter().for_each(|queue| inner.bells.work(queue));
    if turned.busy.is_empty() {
        Ok(())
    } else {
        Err(Error::new(ErrorKind::Unavailable, "a transaction still holds a lease"))
    }
}
