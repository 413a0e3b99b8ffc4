//! One client: puts batches to the vote.

use std::{
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use smallvec::{SmallVec, smallvec};
use tokio::runtime::Handle;

use super::{
    ballot,
    config::Config,
    heal::{self, Healing},
    member::{Absence, Member},
    quorum::{Asked, Ballot, Ballots, Kept, Quorum, Vote},
    round::{Outcome, Verdict},
    script::{CAREFUL, PLAIN},
    watch::Watched,
    wire::{Call, Care, Step},
};
use crate::{
    Block, Error, ErrorKind, Fence,
    clock::Clock,
    store::{
        Answer, Ask, Batch, Evidence, Grant, IfBusy, OpenContext, Operation, Push, PushSink,
        Renewal, Reply, Standing,
    },
    stores::redis::{
        config::Address,
        dial::Dialler,
        node::{Node, Wiring},
    },
};

/// How often an ask is put to the vote before its caller is told: the first may teach the right ballot, the others are for
/// votes that nobody won.
const ROUNDS_MAX: usize = 4;

pub(super) struct Client {
    pub(super) config: Config,
    pub(super) prefix: Arc<str>,
    pub(super) quorum: Quorum,
    pub(super) members: Vec<Arc<Member>>,
    pub(super) clock: Arc<dyn Clock>,
    /// The newest fence given out, as far as this client knows.
    newest: AtomicU64,
    /// The last ballot that was proposed above the nodes' floor, while the clock had not reached it.
    risen: AtomicU64,
    /// What a round takes lately, in microseconds.
    pub(super) round_us: AtomicU64,
    sink: OnceLock<PushSink>,
    pub(super) watched: Watched,
    pub(super) healing: Healing,
    runtime: Handle,
}

/// An ask on its way through rounds.
struct Attempt {
    at: usize,
    ballot: Ballot,
    /// What earlier rounds, or an earlier ask of the same token whose answer was lost, were granted under other ballots:
    /// taken back, or there may never be a majority for one of them.
    undo: SmallVec<[Ballot; 1]>,
}

impl Client {
    /// Connects to a majority at least; the others are connected in the background.
    pub(super) async fn open(config: Config, context: &OpenContext) -> Result<Arc<Self>, Error> {
        if let Some(odd) = config.odd_number() {
            tracing::warn!(nodes = config.nodes.len(), "{odd}");
        }
        let dialler = Arc::new(Dialler::new(&config.node, &context.who)?);
        let this = Arc::new_cyclic(|me: &Weak<Self>| Self {
            prefix: Arc::from(config.prefix.as_str()),
            quorum: Quorum::of(config.nodes.len()),
            members: member_all(me, &config, &dialler, &context.clock),
            clock: context.clock.clone(),
            newest: AtomicU64::new(0),
            risen: AtomicU64::new(0),
            round_us: AtomicU64::new(1_000),
            sink: OnceLock::new(),
            watched: Watched::default(),
            healing: Healing::default(),
            runtime: Handle::current(),
            config,
        });
        let opened = join_all(this.members.iter().map(|member| member.node.open())).await;
        let mut failures = Vec::new();
        for (member, outcome) in this.members.iter().zip(opened) {
            if let Err(error) = outcome {
                member.node.reconnect();
                failures.push((member, error));
            }
        }
        // What no retry mends, a wrong password above all, is told at once.
        if let Some((_, error)) = failures.iter().find(|(_, error)| is_final(error)) {
            return Err(error.duplicate());
        }
        if this.members.len() - failures.len() < this.quorum.needed() {
            let absences = failures.into_iter().map(|(member, error)| {
                let at = this.members.iter().position(|other| Arc::ptr_eq(other, member));
                (at.unwrap_or_default(), Absence::Lost(error))
            });
            return Err(this.too_few(&absences.collect::<Vec<_>>(), ErrorKind::Unavailable));
        }
        Ok(this)
    }

    pub(super) fn start(&self, sink: PushSink) {
        // Called once; a second sink would only be another way to the same engine.
        let _ = self.sink.set(sink);
    }

    pub(super) fn push(&self, push: Push) {
        if let Some(sink) = self.sink.get() {
            sink(push);
        }
    }

    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(work);
    }

    pub(super) fn close(&self) {
        for member in &self.members {
            member.node.close();
        }
    }

    /// How far the newest fence is ahead of the clock.
    pub(super) fn fence_lead(&self) -> Option<Duration> {
        let newest = self.newest.load(Ordering::Relaxed);
        let ahead = self.nodes_ahead_us().unwrap_or(0);
        let clock_us = self.clock.wall_us().saturating_add_signed(ahead);
        (newest > 0).then(|| Duration::from_micros(newest.saturating_sub(clock_us)))
    }

    fn nodes_ahead_us(&self) -> Option<i64> {
        self.members.iter().filter_map(|member| member.ahead_us()).max()
    }

    /// A ballot above a number, for a block of this size.
    fn propose(&self, above: u64, floor: u64, ask: &Ask) -> Ballot {
        let len = u64::from(ask.block.max(1));
        let mut first = ballot::propose(self.clock.wall_us(), self.nodes_ahead_us(), above);
        if first <= floor {
            // Until the clock has reached the floor, no ballot of ours may be the one before.
            let next = |risen: u64| Some(risen.max(floor) + len);
            let risen = self.risen.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
            first = risen.unwrap_or(0).max(floor) + 1;
        }
        Ballot { first, last: first + len - 1 }
    }

    /// The highest floor of the nodes: with a ballot above it none refuses for that.
    fn highest_floor(&self) -> u64 {
        let floors = self
            .members
            .iter()
            .filter_map(|member| member.voter(&self.config).ok().map(|voter| voter.floor_us));
        floors.max().unwrap_or(0)
    }

    pub(super) async fn submit(self: Arc<Self>, batch: Batch) -> Vec<Answer> {
        let mut care = Care::of(&batch);
        let batch = Arc::new(batch);
        let mut answers: Vec<Option<Answer>> = batch.iter().map(|_| None).collect();
        let floor = self.highest_floor();
        let mut attempts: Vec<Attempt> = Vec::new();
        let mut steps = Vec::with_capacity(batch.len());
        for (at, operation) in batch.iter().enumerate() {
            match operation {
                Operation::Ask(ask) => {
                    let ballot = self.propose(0, floor, ask);
                    attempts.push(Attempt { at, ballot, undo: SmallVec::new() });
                    steps.push(Step::Ask(at, ballot));
                }
                Operation::Renew(_) => steps.push(Step::Plain(at)),
                Operation::Release(release) => {
                    self.healing.end(&release.token);
                    steps.push(Step::Plain(at));
                }
            }
        }
        for round in 1.. {
            let call = Arc::new(Call::new(self.prefix.clone(), batch.clone(), care, steps));
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
                    Ok(Reply::Renewed(Renewal { ttl, evidence, waiters: 0, block: None }))
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
        let (mut again, mut undo, mut too_few) = (Vec::new(), Vec::new(), Vec::new());
        let mut rivals = 0;
        for attempt in attempts {
            let place = places.next().expect("BUG: every attempt has its step");
            let Operation::Ask(ask) = &call.batch[attempt.at] else { unreachable!("BUG: an ask") };
            let verdict = match &outcome.verdicts[place] {
                Some(Verdict::Asked(verdict)) => verdict,
                _ => &Asked::TooFew,
            };
            if let Asked::Granted(ballots) = verdict {
                to[attempt.at] = Some(Ok(Reply::Granted(self.grant(ask, ballots))));
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
                let ballot = self.propose(above, self.highest_floor(), ask);
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

    fn grant(&self, ask: &Ask, ballots: &Ballots) -> Grant {
        let block = |ballot: &Ballot| Block {
            first: Fence::new(ballot.first),
            len: u32::try_from(ballot.last - ballot.first + 1).unwrap_or(1),
        };
        if let Some(last) = ballots.iter().map(|ballot| ballot.last).max() {
            self.newest.fetch_max(last, Ordering::Relaxed);
        }
        Grant {
            blocks: ballots.iter().map(block).collect::<SmallVec<_>>(),
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
                    self.watch(&ask.names[0]);
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

    /// The error when there is no majority.
    pub(super) fn too_few(&self, absences: &[(usize, Absence)], kind: ErrorKind) -> Error {
        let mut absent: Vec<_> = absences.iter().map(|(at, why)| (*at, why)).collect();
        absent.sort_by_key(|(at, _)| *at);
        absent.dedup_by_key(|(at, _)| *at);
        let list: Vec<_> = absent
            .iter()
            .map(|(at, why)| format!("{} ({why})", self.members[*at].address))
            .collect();
        let (needed, nodes) = (self.quorum.needed(), self.members.len());
        let message = match list.as_slice() {
            [] => format!("too few of the {nodes} nodes answered in time: {needed} are needed"),
            list => format!(
                "too few of the {nodes} nodes answered: {needed} are needed; without {}",
                list.join(", ")
            ),
        };
        let waits = absent.iter().any(|(_, why)| matches!(why, Absence::Waits(_)));
        Error::new(kind, message).hint(if waits {
            "wait; with `appendonly yes` and `appendfsync always` a node forgets nothing at its next restart; \
             `?amnesia=trust` is for those who know that no lock was forgotten"
        } else {
            "nothing is granted without a majority; `leaseward doctor` looks at each node"
        })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.close();
    }
}

/// All ballots under which nodes have, or may have, granted an attempt that failed.
fn granted_under(attempt: &Attempt, votes: &[Vote]) -> SmallVec<[Ballot; 1]> {
    let mut ballots = smallvec![attempt.ballot];
    for vote in votes {
        if let Vote::Granted(granted) = vote {
            ballots.extend(granted.iter().copied());
        }
    }
    ballots.sort_unstable();
    ballots.dedup();
    ballots
}

fn doubt(in_doubt: bool) -> ErrorKind {
    if in_doubt { ErrorKind::Indeterminate } else { ErrorKind::Unavailable }
}

/// Whether connecting again could not help.
fn is_final(error: &Error) -> bool {
    !matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate)
}

fn member_all(
    me: &Weak<Client>,
    config: &Config,
    dialler: &Arc<Dialler>,
    clock: &Arc<dyn Clock>,
) -> Vec<Arc<Member>> {
    let member = |(at, address): (usize, &Address)| {
        let (hears, loses, returns) = (me.clone(), me.clone(), me.clone());
        let wiring = Arc::new(Wiring {
            dialler: dialler.clone(),
            scripts: vec![&*PLAIN, &*CAREFUL],
            handover: "auto",
            runtime: Handle::current(),
            has_waited: AtomicBool::new(false),
            on_push: Box::new(move |info| {
                if let Some(client) = hears.upgrade() {
                    client.hear(at, &info);
                }
            }),
            on_loss: Box::new(move || {
                if let Some(client) = loses.upgrade() {
                    client.members[at].lost();
                }
            }),
            on_return: Box::new(move || {
                if let Some(client) = returns.upgrade() {
                    client.came_back(at);
                }
            }),
        });
        let node = Node::at(wiring, address.clone());
        Arc::new(Member::new(address.clone(), node, clock.clone(), config.max_ttl))
    };
    config.nodes.iter().enumerate().map(member).collect()
}
