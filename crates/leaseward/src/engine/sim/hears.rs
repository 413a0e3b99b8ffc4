//! What a client does with what it hears: answers, and grants that the store pushes.

use std::time::Duration;

use super::client::{Client, Turn};
use crate::{
    Token,
    clock::Moment,
    engine::{claim::Decision, cohort::Cohort},
    store::{Answer, Grant, Operation, Place, Release, Renewal, Reply, timing},
};

impl Client {
    /// An answer arrived.
    pub(super) fn answered(
        &mut self,
        id: u64,
        operation: &Operation,
        sent: Moment,
        answer: Answer,
        turn: &mut Turn<'_>,
    ) {
        let Some(at) = self.bids.iter().position(|bid| bid.id == id) else {
            return self.stray(operation, &answer, turn);
        };
        let now = turn.now;
        let was_ended = self.bids[at].claim.is_ended();
        let bid = &mut self.bids[at];
        match answer.expect("BUG: the memory store answers everything here") {
            Reply::Granted(grant) => {
                let decision = bid.claim.granted(sent, &grant, now);
                self.follow(at, decision, Some(&grant), was_ended, turn);
            }
            Reply::Queued(place) => self.queued(at, sent, &place, turn),
            Reply::Busy(_) => {
                if !bid.claim.is_ended() && !bid.claim.is_held() {
                    bid.callers.clear();
                    bid.claim.end();
                }
            }
            Reply::Renewed(renewal) => self.renewed(at, operation, sent, &renewal, turn),
            Reply::Gone(reason) => {
                let decision = bid.claim.not_ours(reason, now);
                self.follow(at, decision, None, was_ended, turn);
            }
            Reply::NotYours(reason) => match operation {
                Operation::Renew(_) if bid.claim.is_held() => {
                    let decision = bid.claim.not_ours(reason, now);
                    self.follow(at, decision, None, was_ended, turn);
                }
                Operation::Renew(_) => {}
                Operation::Ask(_) | Operation::Release(_) => bid.releases = 0,
            },
            Reply::Released => bid.releases = 0,
        }
    }

    /// A grant for a token this process does not know any more is given back.
    fn stray(&self, operation: &Operation, answer: &Answer, turn: &mut Turn<'_>) {
        if let (Operation::Ask(ask), Ok(Reply::Granted(_))) = (operation, answer) {
            turn.sends.push((0, self.give_back(ask.token.clone())));
        }
    }

    fn give_back(&self, token: Token) -> Operation {
        Operation::Release(Release { name: self.name.clone(), token, keep: Duration::ZERO })
    }

    fn queued(&mut self, at: usize, sent: Moment, place: &Place, turn: &mut Turn<'_>) {
        let bid = &mut self.bids[at];
        if bid.claim.queued(sent, place.last_fence) == Decision::GiveBack {
            return self.release(at, turn);
        }
        if bid.claim.is_queued() {
            let refresh = sent + timing::place_ttl(self.ttl) / 3;
            let slack = Duration::from_millis(1);
            let free = place.standing.free_in.map_or(Moment::NEVER, |left| turn.now + left + slack);
            bid.due = refresh.min(free);
        }
    }

    fn renewed(
        &mut self,
        at: usize,
        operation: &Operation,
        sent: Moment,
        renewal: &Renewal,
        turn: &mut Turn<'_>,
    ) {
        let bid = &mut self.bids[at];
        if !bid.claim.is_held() {
            return;
        }
        if let Some(cohort) = &mut bid.cohort {
            cohort.renewed(renewal.waiters, renewal.block);
        }
        let decision = bid.claim.renewed(sent, renewal, turn.now);
        self.follow(at, decision, None, false, turn);
        if matches!(operation, Operation::Renew(renew) if renew.block > 0) {
            self.reservation_answered(at, turn);
        }
    }

    /// The store pushed a grant.
    pub(super) fn pushed(&mut self, token: &Token, grant: &Grant, turn: &mut Turn<'_>) {
        let Some(at) = self.bids.iter().rposition(|bid| bid.token == *token) else {
            turn.sends.push((0, self.give_back(token.clone())));
            return;
        };
        let was_ended = self.bids[at].claim.is_ended();
        let decision = self.bids[at].claim.pushed(grant, turn.now);
        self.follow(at, decision, Some(grant), was_ended, turn);
    }

    fn follow(
        &mut self,
        at: usize,
        decision: Decision,
        grant: Option<&Grant>,
        was_ended: bool,
        turn: &mut Turn<'_>,
    ) {
        match decision {
            Decision::Nothing | Decision::Extend { .. } => {}
            Decision::Ask => self.ask(at, turn),
            Decision::Lost(_) => self.end(at, turn),
            Decision::GiveBack => self.release(at, turn),
            Decision::Start { .. } => {
                let grant = grant.expect("BUG: only a grant starts a lease");
                self.begin(at, grant, was_ended, turn);
            }
        }
    }

    /// The lease is ours. `was_ended` only without R6: then a caller that had given up takes it all the same.
    fn begin(&mut self, at: usize, grant: &Grant, was_ended: bool, turn: &mut Turn<'_>) {
        let bid = &mut self.bids[at];
        let cohort = Cohort::new(grant.blocks[0], grant.waiters, turn.now);
        bid.cohort = Some(cohort);
        bid.due = turn.now + self.ttl / 3;
        if bid.callers.is_empty() && !was_ended {
            return self.end(at, turn);
        }
        self.seat(at, cohort.fence(), turn);
        if grant.ttl < self.ttl {
            self.renew_in_time(at, turn);
        }
        self.reserve_ahead(at, turn);
    }
}
