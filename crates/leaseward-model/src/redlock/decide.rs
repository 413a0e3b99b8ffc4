//! What a client makes of the answers.

use leaseward::{
    LostReason,
    store::Standing,
    stores::redlock::quorum::{Asked, Ballot, Ballots, Kept, Vote},
};
use smallvec::smallvec;

use super::{
    state::{Answer, Attempt, Block, Doing, Operation, Phase, Slot, State, Wrong},
    world::World,
};

impl Answer {
    /// As the library has it.
    fn vote(self) -> Vote {
        match self {
            Self::Absent => Vote::Absent,
            Self::Granted(Block { first, last }) => {
                Vote::Granted(smallvec![Ballot { first, last }])
            }
            Self::Low(bar) => Vote::Low(bar),
            Self::Busy(token) => Vote::Busy(Standing::default(), token.to_string()),
            Self::Renewed => Vote::Renewed,
            Self::NotYours(true) => Vote::NotYours { reason: LostReason::Expired, free: true },
            Self::NotYours(false) => Vote::NotYours { reason: LostReason::NotOurs, free: false },
            Self::Released => Vote::Released,
        }
    }
}

fn block_of(ballots: &Ballots) -> Block {
    Block { first: ballots[0].first, last: ballots[0].last }
}

impl World {
    fn heard(&self, state: &State, at: usize) -> Vec<Vote> {
        let heard = state.columns.iter().filter_map(|column| match column.wires[at].slot {
            Slot::Answered(answer) => Some(answer.vote()),
            _ => None,
        });
        heard.collect()
    }

    /// Decides by the answers so far; whoever has not been heard is absent if they are not enough.
    pub(crate) fn decide(&self, state: &mut State, at: usize) {
        let votes = self.heard(state, at);
        let mut all = votes.clone();
        all.resize(self.bounds.nodes, Vote::Absent);
        let asked = |block| {
            let verdict = self.rules.asked(&votes, block).or_else(|| self.rules.asked(&all, block));
            verdict.expect("BUG: all votes decide")
        };
        match state.clients[at].phase {
            Phase::Asking(attempt) => {
                self.asked(state, at, attempt, asked(attempt.block));
            }
            Phase::Holding { doing: Doing::Asking(attempt), block, until } => {
                self.asked_again(state, at, attempt, asked(attempt.block), (block, until));
            }
            Phase::Holding { doing: Doing::Renewing(sent), .. } => {
                let verdict = self.rules.renewed(&votes).or_else(|| self.rules.renewed(&all));
                self.renewed(state, at, sent, &verdict.expect("BUG: all votes decide"), &votes);
            }
            Phase::Releasing => {
                let verdict = self.rules.released(&votes).or_else(|| self.rules.released(&all));
                verdict.expect("BUG: all votes decide");
                self.end_round(state, at);
                state.clients[at].phase = Phase::Idle;
            }
            Phase::Idle | Phase::Refused(_) | Phase::Holding { doing: Doing::Nothing, .. } => {}
        }
    }

    fn asked(&self, state: &mut State, at: usize, attempt: Attempt, verdict: Asked) {
        let tried = attempt.block.first;
        match verdict {
            Asked::Granted(ballots) => {
                self.end_round(state, at);
                let until = self.rules.deadline(attempt.sent, state.now, self.bounds.lease.ttl());
                if state.now >= until {
                    // Too late to be of use.
                    return self.release(state, at);
                }
                let block = block_of(&ballots);
                self.complete(state, at, block);
                state.clients[at].phase = if self.ends_at_any_time() {
                    Phase::Idle
                } else {
                    Phase::Holding { block, until, doing: Doing::Nothing }
                };
            }
            Asked::Low(bar) if state.clients[at].asks > 0 => {
                self.ask(state, at, bar, Some(tried), attempt.sent);
            }
            verdict => {
                self.tell(state, at, Operation::Undo(tried));
                self.end_round(state, at);
                let undo = matches!(verdict, Asked::Split(_)).then_some(tried);
                state.clients[at].phase = Phase::Refused(undo);
            }
        }
    }

    /// What came of asking for what is held.
    fn asked_again(
        &self,
        state: &mut State,
        at: usize,
        attempt: Attempt,
        verdict: Asked,
        (mut block, mut until): (Block, u8),
    ) {
        if let Asked::Granted(ballots) = &verdict {
            let later = self.rules.deadline(attempt.sent, state.now, self.bounds.lease.ttl());
            until = until.max(later);
            let granted = block_of(ballots);
            if granted != block {
                self.complete(state, at, granted);
                block = granted;
            }
        } else {
            self.tell(state, at, Operation::Undo(attempt.block.first));
        }
        self.end_round(state, at);
        state.clients[at].phase = Phase::Holding { block, until, doing: Doing::Nothing };
    }

    fn renewed(&self, state: &mut State, at: usize, sent: u8, verdict: &Kept, votes: &[Vote]) {
        let Phase::Holding { block, until, .. } = state.clients[at].phase else { return };
        match verdict {
            Kept::Done => {
                let later = self.rules.deadline(sent, state.now, self.bounds.lease.ttl());
                let until = until.max(later);
                if votes.iter().any(|vote| matches!(vote, Vote::NotYours { free: true, .. })) {
                    // Those that are free for it get it again, under its ballot.
                    self.tell(state, at, Operation::Ask { block, undo: None });
                }
                state.clients[at].phase = Phase::Holding { block, until, doing: Doing::Nothing };
                self.end_round(state, at);
            }
            Kept::NotYours(_) => self.release(state, at),
            Kept::TooFew => {
                self.hold_and(state, at, Doing::Nothing);
                self.end_round(state, at);
            }
        }
    }

    /// Somebody gets a fence: is it a new one, and larger than it must be?
    fn complete(&self, state: &mut State, at: usize, block: Block) {
        if !self.ends_at_any_time() {
            return;
        }
        let client = state.clients[at];
        let overlaps = |other: &Block| block.first <= other.last && other.first <= block.last;
        let others = state.complete.iter().filter(|(_, token)| *token != client.token);
        if others.clone().any(|(other, _)| overlaps(other)) {
            state.wrong = Some(Wrong::Twice);
        } else if block.first <= client.above {
            state.wrong = Some(Wrong::Order);
        }
        state.complete.push((block, client.token));
        state.complete.sort_unstable();
    }
}
