//! Carries out batches: a round of writes is one transaction of nested ones, a round of renewals one that only reads.

use std::{sync::Arc, time::Duration};

use super::{
    ask::Asking,
    client::Client,
    conn::TXN,
    error::{self, Asked, Class},
    link::Failed,
    plan,
    proto::{TxnRequest, TxnResponse},
    release::Releasing,
    requests::{nested, one, range},
    scale::Sight,
};
use crate::{
    Error, ErrorKind,
    clock::Moment,
    store::{Answer, Ask, Batch, Operation},
};

/// Rounds are asked again when etcd has ended a lease of ours, which is found out by asking.
const ATTEMPTS: u32 = 3;

/// A write that is under way, and what its answer means.
enum Step {
    Ask(Asking),
    Release(Releasing),
}

impl Client {
    pub(super) async fn submit(self: Arc<Self>, batch: Batch) -> Vec<Answer> {
        let mut answers: Vec<Option<Answer>> = batch.iter().map(|_| None).collect();
        for round in plan::rounds(&batch) {
            self.writes(&batch, &round, &mut answers).await;
            self.renewals(&batch, &round, &mut answers).await;
        }
        let missing = || Err(error::unexpected());
        answers.into_iter().map(|answer| answer.unwrap_or_else(missing)).collect()
    }

    /// The asks and releases of a round.
    async fn writes(
        self: &Arc<Self>,
        batch: &[Operation],
        round: &[usize],
        answers: &mut [Option<Answer>],
    ) {
        let (places, round): (Vec<usize>, Vec<usize>) =
            round.iter().partition(|place| match &batch[**place] {
                Operation::Ask(ask) => self.has_place(ask),
                Operation::Renew(_) | Operation::Release(_) => false,
            });
        self.changes(batch, &round, answers).await;
        let asks: Vec<_> = places
            .into_iter()
            .filter_map(|place| match &batch[place] {
                Operation::Ask(ask) => Some((place, ask)),
                Operation::Renew(_) | Operation::Release(_) => None,
            })
            .collect();
        self.keep_places(&asks, answers).await;
    }

    /// Those of them that change something.
    async fn changes(
        self: &Arc<Self>,
        batch: &[Operation],
        round: &[usize],
        answers: &mut [Option<Answer>],
    ) {
        for attempt in 1..=ATTEMPTS {
            let mut steps = Vec::new();
            for place in round.iter().copied() {
                if answers[place].is_some() {
                    continue;
                }
                match &batch[place] {
                    Operation::Ask(ask) => match self.begin_ask(ask).await {
                        Ok(asking) => steps.push((place, Step::Ask(asking))),
                        Err(answer) => answers[place] = Some(answer),
                    },
                    Operation::Release(release) => match self.begin_release(release).await {
                        Ok(releasing) => steps.push((place, Step::Release(releasing))),
                        Err(answer) => answers[place] = Some(answer),
                    },
                    Operation::Renew(_) => {}
                }
            }
            if steps.is_empty() {
                return;
            }
            match self.send(&steps).await {
                Ok((parts, sight, now)) => {
                    self.finish(batch, steps, parts, sight, now, answers).await;
                    return;
                }
                // Nothing was done. Which lease it is, its keep-alive tells.
                Err(Failed { class: Class::NoLease, .. }) if attempt < ATTEMPTS => {
                    for (place, step) in &steps {
                        self.answered(&batch[*place], step);
                    }
                    self.doubt_leases().await;
                }
                Err(failed) => {
                    for (place, step) in &steps {
                        // Unavailable: it was not sent, or nothing was done.
                        if let Step::Ask(asking) = step
                            && failed.error.kind() != ErrorKind::Unavailable
                        {
                            self.in_doubt(asking);
                        }
                        self.answered(&batch[*place], step);
                        answers[*place] = Some(Err(failed.error.duplicate()));
                    }
                    return;
                }
            }
        }
    }

    async fn send(
        &self,
        steps: &[(usize, Step)],
    ) -> Result<(Vec<TxnResponse>, Sight, Moment), Failed> {
        let parts = steps.iter().map(|(_, step)| match step {
            Step::Ask(asking) => asking.txn(),
            Step::Release(releasing) => releasing.txn(),
        });
        let scale = range(one(&self.keys.scale()));
        let success = std::iter::once(scale).chain(parts.map(nested)).collect();
        let txn = TxnRequest { success, ..TxnRequest::default() };
        let (now, known_before) = (self.clock.now(), self.scale.revision());
        let answer: TxnResponse = self.link.call(TXN, Asked::Write, txn).await?;
        let (cluster, revision) = (answer.cluster(), answer.revision());
        let mut parts = answer.responses.into_iter();
        let found = parts.next().and_then(|first| first.range().kvs.pop());
        let parts: Vec<_> = parts.map(|part| part.txn()).collect();
        if parts.len() != steps.len() {
            let error = error::unexpected();
            return Err(Failed { class: Class::Other, error });
        }
        Ok((parts, Sight { found, cluster, revision, known_before }, now))
    }

    /// It may arrive later.
    pub(super) fn in_doubt(&self, asking: &Asking) {
        self.table.lock().in_doubt(&asking.key);
    }

    /// Reads what etcd said, and does what that leaves to do.
    async fn finish(
        self: &Arc<Self>,
        batch: &[Operation],
        steps: Vec<(usize, Step)>,
        parts: Vec<TxnResponse>,
        sight: Sight,
        now: Moment,
        answers: &mut [Option<Answer>],
    ) {
        let revision = sight.revision;
        let asks = steps.iter().any(|(_, step)| matches!(step, Step::Ask(_)));
        let base = match asks {
            true => self.scale.base(&self.link, &self.keys, &*self.clock, sight).await,
            false => Ok(0),
        };
        for ((place, step), part) in steps.into_iter().zip(parts) {
            answers[place] = Some(match (&step, &batch[place], &base) {
                (Step::Release(releasing), ..) => self.released(releasing, part).await,
                (Step::Ask(asking), Operation::Ask(ask), Ok(base)) => {
                    self.asked(asking, ask, part, (*base, revision), now).await
                }
                (Step::Ask(_), _, Err(error)) => Err(error.duplicate()),
                (Step::Ask(_), ..) => Err(error::unexpected()),
            });
            self.answered(&batch[place], &step);
        }
    }

    /// An ask is over. What it made although its token had ended is deleted at once.
    fn answered(&self, operation: &Operation, step: &Step) {
        let (Step::Ask(asking), Operation::Ask(ask)) = (step, operation) else { return };
        let now = self.clock.now();
        let is_late = self.table.lock().answered(&asking.key, &ask.token, now);
        if is_late {
            self.look_by(now);
        }
    }

    /// Has every lease confirmed, so that those that are dead are known to be.
    async fn doubt_leases(&self) {
        for lease in self.leases.all() {
            let _ = self.leases.refresh(&self.link, &*self.clock, &lease).await;
        }
    }

    /// Writes, alone: for what cannot wait for a round.
    pub(super) async fn write(&self, txn: TxnRequest) -> Result<TxnResponse, Error> {
        Ok(self.link.call(TXN, Asked::Write, txn).await?)
    }
}

/// How long an ask without an answer may have left something behind.
pub(super) fn in_doubt(ask: &Ask) -> Duration {
    match ask.if_busy {
        crate::store::IfBusy::Queue => crate::store::timing::place_ttl(ask.ttl),
        crate::store::IfBusy::Tell => ask.ttl,
    }
}
