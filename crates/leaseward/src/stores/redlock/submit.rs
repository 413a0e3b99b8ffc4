//! A batch on its way: put to the vote, read, taken back, put again.

use std::{
    cell::LazyCell,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use smallvec::{SmallVec, smallvec};

use super::{
    client::Client,
    heal,
    quorum::{Asked, Ballot, Kept, Vote},
    round::{Outcome, Verdict},
    wire::{Call, Care, Step},
};
use crate::{
    Block, ErrorKind, Fence,
    store::{Answer, Ask, Batch, Evidence, Grant, IfBusy, Operation, Renewal, Reply, Standing},
};

/// How often an ask is put to the vote before its caller is told: the first may teach the right ballot, the others are for
/// votes that nobody won.
const ROUNDS_MAX: usize = 4;

/// An ask on its way through rounds.
struct Attempt {
    at: usize,
    ballot: Ballot,
    /// What earlier rounds, or an earlier ask of the same token whose answer was lost, were granted under other ballots:
    /// taken back, or there may never be a majority for one of them.
    undo: SmallVec<[Ballot; 1]>,
}

impl Client {
    pub(super) async fn submit(self: Arc<Self>, batch: Batch) -> Vec<Answer> {
        let under_way = self.renewals.begin(&batch).map(Arc::new);
        let mut care = Care::of(&batch);
        let batch = Arc::new(batch);
        let mut answers: Vec<Option<Answer>> = batch.iter().map(|_| None).collect();
        let reading = LazyCell::new(|| self.reading());
        let mut attempts: Vec<Attempt> = Vec::new();
        let mut steps = Vec::with_capacity(batch.len());
        for (at, operation) in batch.iter().enumerate() {
            match operation {
                Operation::Ask(ask) => {
                    let ballot = self.propose(&reading, 0, ask);
                    attempts.push(Attempt { at, ballot, undo: SmallVec::new() });
                    steps.push(Step::Ask(at, ballot));
                }
                Operation::Renew(_) => steps.push(Step::Plain(at)),
                Operation::Release(release) => {
                    self.renewals.give_back(&release.token);
                    steps.push(Step::Plain(at));
                }
            }
        }
        for round in 1.. {
            let call = Call::new(self.prefix.clone(), batch.clone(), care, steps);
            let call = Arc::new(call.during(under_way.clone()));
            let outcome = self.round(call.clone()).await;
            steps = self.read_plain(&call, &outcome, &mut answers);
            attempts = self.read_asks(&call, &outcome, attempts, round, &mut answers).await;
            if attempts.is_empty() && steps.is_empty() {
                break;
            }
            care = Care::Careful;
            for attempt in &attempts {
                steps.extend(attempt.undo.iter().map(|ballot| Step::Undo(attempt.at, *ballot)));
                steps.push(Step::Ask(attempt.at, attempt.ballot));
            }
        }
        answers
            .into_iter()
            .map(|answer| answer.expect("BUG: every operation is answered"))
            .collect()
    }

    /// Answers renewals and releases.
    fn read_plain(
        self: &Arc<Self>,
        call: &Arc<Call>,
        outcome: &Outcome,
        to: &mut [Option<Answer>],
    ) -> Vec<Step> {
        let mut again = Vec::new();
        for (place, step) in call.steps.iter().enumerate() {
            let Step::Plain(at) = step else { continue };
            if let Some(Verdict::Renewed(Kept::Odd) | Verdict::Released(Kept::Odd)) =
                outcome.verdicts[place]
            {
                again.push(step.clone());
                continue;
            }
            to[*at] = Some(match (&call.batch[*at], &outcome.verdicts[place]) {
                (Operation::Renew(renew), Some(Verdict::Renewed(Kept::Done))) => {
                    self.heal(renew, heal::free_at(outcome, place));
                    let ttl = self.config.drift.validity(renew.ttl);
                    let evidence = Evidence::ThisRequest;
                    Ok(Reply::Renewed(Renewal { ttl, evidence, waiters: 0 }))
                }
                (_, Some(Verdict::Released(Kept::Done))) => Ok(Reply::Released),
                (
                    _,
                    Some(
                        Verdict::Renewed(Kept::NotYours(reason))
                        | Verdict::Released(Kept::NotYours(reason)),
                    ),
                ) => Ok(Reply::NotYours(*reason)),
                _ => Err(self.too_few(&outcome.absences, doubt(outcome.in_doubt))),
            });
        }
        again
    }

    /// Answers asks that are decided, takes back what came of those that failed, and gives those that go on a new ballot.
    async fn read_asks(
        self: &Arc<Self>,
        call: &Arc<Call>,
        outcome: &Outcome,
        attempts: Vec<Attempt>,
        round: usize,
        to: &mut [Option<Answer>],
    ) -> Vec<Attempt> {
        let places = call.steps.iter().enumerate();
        let mut places =
            places.filter(|(_, step)| matches!(step, Step::Ask(..))).map(|(place, _)| place);
        let reading = LazyCell::new(|| self.reading());
        let (mut again, mut undo, mut too_few) = (Vec::new(), Vec::new(), Vec::new());
        let mut rivals = 0;
        for attempt in attempts {
            let place = places.next().expect("BUG: every attempt has its step");
            let Operation::Ask(ask) = &call.batch[attempt.at] else { unreachable!("BUG: an ask") };
            let verdict = match &outcome.verdicts[place] {
                Some(Verdict::Asked(verdict)) => verdict,
                _ => &Asked::TooFew,
            };
            if let Asked::Granted(ballot) = verdict {
                to[attempt.at] = Some(Ok(Reply::Granted(self.grant(ask, *ballot))));
                continue;
            }
            let goes_on = round < ROUNDS_MAX
                && match verdict {
                    Asked::Low(_) | Asked::Odd => true,
                    Asked::Split(_) => ask.if_busy == IfBusy::Tell,
                    _ => false,
                };
            if goes_on {
                let above = match verdict {
                    Asked::Low(bar) => *bar,
                    Asked::Split(count) => {
                        rivals = rivals.max(*count);
                        0
                    }
                    _ => 0,
                };
                let ballot = self.propose(&reading, above, ask);
                let undo = granted_under(&attempt, &outcome.votes[place]);
                again.push(Attempt { at: attempt.at, ballot, undo });
                continue;
            }
            let granted = granted_under(&attempt, &outcome.votes[place]);
            undo.extend(granted.into_iter().map(|ballot| Step::Undo(attempt.at, ballot)));
            match verdict {
                Asked::TooFew => too_few.push(attempt.at),
                verdict => to[attempt.at] = Some(Ok(self.refusal(ask, verdict))),
            }
        }
        if rivals > 0 {
            // Those of the others that gave up are taken back meanwhile, so this must not wait for them to be asked again.
            let undo = again.iter().flat_map(|attempt: &Attempt| {
                attempt.undo.iter().map(|ballot| Step::Undo(attempt.at, *ballot))
            });
            self.take_back(call, undo.collect(), &outcome.sent).await;
            tokio::time::sleep(self.pause(rivals)).await;
        }
        let is_undone = self.take_back(call, undo, &outcome.sent).await;
        for at in too_few {
            let kind = doubt(!is_undone);
            to[at] = Some(Err(self.too_few(&outcome.absences, kind)));
        }
        again
    }

    /// Takes attempts back at every node that was asked; says whether all of them were told.
    async fn take_back(self: &Arc<Self>, call: &Call, undo: Vec<Step>, sent: &[usize]) -> bool {
        if undo.is_empty() || sent.is_empty() {
            return true;
        }
        self.tell(Arc::new(call.with(undo)), sent).await == sent.len()
    }

    fn grant(&self, ask: &Ask, ballot: Ballot) -> Grant {
        self.newest.fetch_max(ballot.last, Ordering::Relaxed);
        Grant {
            block: Block {
                first: Fence::new(ballot.first),
                len: u32::try_from(ballot.last - ballot.first + 1).unwrap_or(1),
            },
            slot: None,
            ttl: self.config.drift.validity(ask.ttl),
            evidence: Evidence::ThisRequest,
            waiters: 0,
        }
    }

    /// The answer to an ask that was not granted.
    fn refusal(self: &Arc<Self>, ask: &Ask, verdict: &Asked) -> Reply {
        let waits = ask.if_busy == IfBusy::Queue;
        match verdict {
            Asked::Gone(reason) => Reply::Gone(*reason),
            Asked::Busy(standing) => {
                if waits {
                    self.watch(&ask.name);
                }
                Reply::Busy(standing.clone())
            }
            Asked::Split(rivals) => {
                Reply::Busy(Standing { free_in: Some(self.pause(*rivals)), ..Standing::default() })
            }
            Asked::Low(_) | Asked::Granted(_) | Asked::Odd | Asked::TooFew => {
                Reply::Busy(Standing { free_in: Some(self.pause(2)), ..Standing::default() })
            }
        }
    }

    /// How long to wait after a vote that nobody won: random, so that one comes first, and longer the more there are.
    pub(super) fn pause(&self, rivals: usize) -> Duration {
        let round = Duration::from_micros(self.round_us.load(Ordering::Relaxed));
        let unit = self.config.retry.max(round);
        (unit * u32::try_from(rivals).unwrap_or(u32::MAX)).mul_f64(rand::random())
    }
}

/// All ballots under which nodes have, or may have, granted an attempt that failed.
fn granted_under(attempt: &Attempt, votes: &[Vote]) -> SmallVec<[Ballot; 1]> {
    let mut ballots = smallvec![attempt.ballot];
    for vote in votes {
        if let Vote::Granted(granted) = vote {
            ballots.push(*granted);
        }
    }
    ballots.sort_unstable();
    ballots.dedup();
    ballots
}

fn doubt(in_doubt: bool) -> ErrorKind {
    if in_doubt { ErrorKind::Indeterminate } else { ErrorKind::Unavailable }
}
