//! One call to all nodes at once, heard until everything is decided.

use std::{sync::Arc, time::Duration};

use super::{
    client::Client,
    heal,
    hearing::Hearing,
    member::{Absence, Voter},
    quorum::{Asked, Kept, Quorum, Vote},
    roll::Roll,
    votes::Reply,
    wire::{By, Call, Step},
};
use crate::{Error, ErrorKind, store::Operation};

/// What is decided about one operation.
#[derive(Debug)]
pub(super) enum Verdict {
    Asked(Asked),
    Renewed(Kept),
    Released(Kept),
}

/// What came of a round.
pub(super) struct Outcome {
    /// For each step, in order; `None` for what is not decided by votes.
    pub(super) verdicts: Vec<Option<Verdict>>,
    /// For each step, what was voted, in the order in which nodes were heard.
    pub(super) votes: Vec<Vec<Vote>>,
    /// Which nodes these were.
    pub(super) heard: Vec<usize>,
    /// Why nodes did not vote.
    pub(super) absences: Vec<(usize, Absence)>,
    /// Which nodes were sent the call, and may have done a part of it.
    pub(super) sent: Vec<usize>,
    /// Whether one of them has not answered.
    pub(super) in_doubt: bool,
}

impl Client {
    /// Sends a call to every node that may vote and hears them until all is decided, or for the time that one node may
    /// take. Those who answer later are heard in the background.
    pub(super) async fn round(self: &Arc<Self>, call: Arc<Call>) -> Outcome {
        let mut tally = Tally::new(self.quorum, &call);
        for at in 0..self.members.len() {
            self.pay(at).await;
        }
        let hearing = self.send(&call, &mut tally);
        tally.decide(&call);
        if tally.is_open() {
            // Fewer votes decide nothing.
            let mut enough =
                self.quorum.decisive().saturating_sub(tally.outcome.heard.len()).max(1);
            let mut listener = hearing.listen();
            while tally.is_open() {
                let answers = listener.answers(enough).await;
                if answers.is_empty() {
                    tally.give_up(&call, self.config.timeout);
                    break;
                }
                for (at, answer) in answers {
                    tally.hear(self, &call, at, answer);
                }
                tally.decide(&call);
                enough = 1;
            }
            self.note_round_trip(hearing.begun().elapsed());
            tally.outcome.in_doubt |= hearing.hear_late(heal::renewed(&tally.outcome));
        } else {
            tally.outcome.in_doubt |= hearing.hear_late(Vec::new());
        }
        for (at, _) in &tally.outcome.absences {
            self.pay_later(*at);
        }
        tally.outcome
    }

    /// Sends a call to every node that may vote.
    fn send(self: &Arc<Self>, call: &Arc<Call>, tally: &mut Tally) -> Arc<Hearing> {
        let hearing = Hearing::new(self, call.clone());
        // The same bytes for all nodes that are told the same floor, which nearly always are all.
        let mut packed: Option<(u64, Vec<u8>)> = None;
        let mut roll = Roll::default();
        for (at, member) in self.members.iter().enumerate() {
            let Voter { link, floor_us } = match roll.call(member, &self.config) {
                Ok(voter) => voter,
                Err(absence) => {
                    if matches!(absence, Absence::Lost(_)) {
                        member.owe(call);
                    }
                    tally.absent(at, absence);
                    continue;
                }
            };
            let floor_us = call.floor_of(floor_us);
            let (_, bytes) = packed.take_if(|(floor, _)| *floor == floor_us).unwrap_or_else(|| {
                (floor_us, call.command(By::Hash, floor_us).get_packed_command())
            });
            tally.outcome.sent.push(at);
            hearing.send(at, link, &bytes, floor_us);
            packed = Some((floor_us, bytes));
        }
        self.look_after(&hearing);
        hearing
    }

    /// Tells a node what it has not been told, before anything else is sent to it.
    pub(super) async fn pay(self: &Arc<Self>, at: usize) {
        let member = &self.members[at];
        if !member.can_pay() {
            return;
        }
        // Others wait until it is sent.
        let _turn = member.paying.lock().await;
        for call in member.owed() {
            self.tell_now(call, &[at]);
        }
        member.paid();
    }

    /// Sends a call to some nodes before this returns, and hears nobody. Answers to how many it went out.
    pub(super) async fn tell(self: &Arc<Self>, call: Arc<Call>, to: &[usize]) -> usize {
        for at in to {
            self.pay(*at).await;
        }
        self.tell_now(call, to)
    }

    fn tell_now(self: &Arc<Self>, call: Arc<Call>, to: &[usize]) -> usize {
        let hearing = Hearing::new(self, call.clone());
        hearing.hear_late(Vec::new());
        let packed = call.command(By::Hash, 0).get_packed_command();
        let mut told = 0;
        for &at in to {
            let member = &self.members[at];
            // Whether it may vote does not matter: something is taken back.
            let Ok(link) = member.node.link() else {
                member.owe(&call);
                self.pay_later(at);
                continue;
            };
            hearing.send(at, link, &packed, 0);
            told += 1;
        }
        self.look_after(&hearing);
        told
    }

    /// A node answered a call with an error, perhaps in the middle: what was given back is given back again.
    pub(super) fn give_back_again(self: &Arc<Self>, call: &Arc<Call>, at: usize) {
        if let Some(releases) = call.releasing_carefully() {
            self.members[at].owe(&releases);
            self.pay_later(at);
        }
    }

    /// The same in the background, for what turned out to be owed only after the node had come back.
    pub(super) fn pay_later(self: &Arc<Self>, at: usize) {
        if self.members[at].can_pay() {
            let client = self.clone();
            self.spawn(async move { client.pay(at).await });
        }
    }

    /// Keeps the mean of what rounds take lately.
    fn note_round_trip(&self, took: Duration) {
        use std::sync::atomic::Ordering::Relaxed;
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let mean = self.round_us.load(Relaxed);
        self.round_us.store(mean - mean / 8 + took / 8, Relaxed);
    }
}

/// Votes as they come in.
struct Tally {
    quorum: Quorum,
    outcome: Outcome,
    /// How many steps are undecided.
    open: usize,
}

impl Tally {
    fn new(quorum: Quorum, call: &Call) -> Self {
        let steps = call.steps.len();
        let open = call.steps.iter().filter(|step| is_voted_on(step)).count();
        let outcome = Outcome {
            verdicts: (0..steps).map(|_| None).collect(),
            votes: (0..steps).map(|_| Vec::with_capacity(quorum.nodes())).collect(),
            heard: Vec::new(),
            absences: Vec::new(),
            sent: Vec::new(),
            in_doubt: false,
        };
        Self { quorum, outcome, open }
    }

    fn is_open(&self) -> bool {
        self.open > 0
    }

    fn absent(&mut self, at: usize, why: Absence) {
        self.outcome.absences.push((at, why));
        self.outcome.heard.push(at);
        for votes in &mut self.outcome.votes {
            votes.push(Vote::Absent);
        }
    }

    fn hear(
        &mut self,
        client: &Arc<Client>,
        call: &Arc<Call>,
        at: usize,
        answer: Result<Reply, Error>,
    ) {
        let mut reply = match answer {
            Ok(reply) => reply,
            Err(error) => {
                if error.kind() == ErrorKind::Indeterminate {
                    self.outcome.in_doubt = true;
                } else if client.members[at].node.link().is_err() {
                    // It is no node that can vote, and said no to all of it.
                    self.outcome.sent.retain(|sent| *sent != at);
                } else {
                    client.give_back_again(call, at);
                }
                return self.absent(at, Absence::Lost(error));
            }
        };
        self.outcome.heard.push(at);
        let mut broken = None;
        for (step, votes) in call.steps.iter().zip(&mut self.outcome.votes) {
            let vote = match &broken {
                None => reply.next(call, step),
                Some(_) => Ok(Vote::Absent),
            };
            votes.push(vote.unwrap_or_else(|error| {
                broken = Some(error);
                Vote::Absent
            }));
        }
        let unusable = reply.misplaced.take().or(broken.as_ref().map(Error::duplicate));
        if let Some(error) = unusable
            && let Ok(link) = client.members[at].node.link()
        {
            client.members[at].node.broken(&link, error);
        }
        if let Some(error) = broken.or(reply.failure.take()) {
            self.outcome.absences.push((at, Absence::Lost(error)));
        }
    }

    /// Nobody is waited for any longer.
    fn give_up(&mut self, call: &Call, after: Duration) {
        let silent = self.outcome.sent.iter().filter(|at| !self.outcome.heard.contains(at));
        self.outcome.absences.extend(silent.map(|at| (*at, Absence::Late(after))));
        for votes in &mut self.outcome.votes {
            // Whoever has not been heard is absent.
            let missing = self.quorum.nodes() - votes.len().min(self.quorum.nodes());
            votes.extend((0..missing).map(|_| Vote::Absent));
        }
        self.decide(call);
    }

    fn decide(&mut self, call: &Call) {
        for (at, step) in call.steps.iter().enumerate() {
            if self.outcome.verdicts[at].is_some() || !is_voted_on(step) {
                continue;
            }
            let votes = &self.outcome.votes[at];
            let verdict = match (step, call.operation(step)) {
                (Step::Ask(..), _) => self.quorum.asked(votes).map(Verdict::Asked),
                (_, Some(Operation::Renew(_))) => self.quorum.renewed(votes).map(Verdict::Renewed),
                _ => self.quorum.released(votes).map(Verdict::Released),
            };
            if verdict.is_some() {
                self.outcome.verdicts[at] = verdict;
                self.open -= 1;
            }
        }
    }
}

fn is_voted_on(step: &Step) -> bool {
    matches!(step, Step::Ask(..) | Step::Plain(_))
}
