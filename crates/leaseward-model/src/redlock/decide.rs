//! What a client makes of the answers.

use leaseward::{
    LostReason,
    store::Standing,
    stores::redlock::quorum::{Asked, Ballot, Kept, Vote},
};

use super::{
    state::{Answer, Attempt, Block, Doing, Firsts, Operation, Phase, Slot, State, Wrong},
    world::World,
};

impl Answer {
    /// As the library has it.
    fn vote(self) -> Vote {
        match self {
            Self::Absent => Vote::Absent,
            Self::Granted(Block { first, last }) => Vote::Granted(Ballot { first, last }),
            Self::Low(bar) => Vote::Low(bar),
            Self::Busy(token) => Vote::Busy(Standing::default(), token.to_string()),
            Self::Renewed => Vote::Renewed,
            Self::NotYours(true) => Vote::NotYours { reason: LostReason::Expired, free: true },
            Self::NotYours(false) => Vote::NotYours { reason: LostReason::NotOurs, free: false },
            Self::Released => Vote::Released,
        }
    }
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
        match state.clients[at].phase.clone() {
            Phase::Asking(attempt) => {
                self.asked(state, at, attempt, asked(attempt.block));
            }
            Phase::Holding { doing: Doing::Asking(attempt), .. } => {
                // Nobody has heard anything.
                self.take_back(state, at, attempt.block.first);
                self.end_round(state, at);
                self.hold_and(state, at, Doing::Nothing);
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
            Asked::Granted(Ballot { first, last }) => {
                self.end_round(state, at);
                let until = self.rules.deadline(attempt.sent, state.now, self.bounds.lease.ttl());
                if state.now >= until {
                    // Too late to be of use.
                    return self.release(state, at);
                }
                let block = Block { first, last };
                self.complete(state, at, block);
                state.clients[at].phase = if self.ends_at_any_time() {
                    Phase::Idle
                } else {
                    Phase::Holding { block, until, doing: Doing::Nothing }
                };
            }
            Asked::Low(bar) if state.clients[at].asks > 0 => {
                let undo = self.granted_under(state, at, tried);
                self.ask(state, at, bar, undo, attempt.sent);
            }
            verdict => {
                let undo = self.take_back(state, at, tried);
                self.end_round(state, at);
                let is_split = matches!(verdict, Asked::Split(_));
                state.clients[at].phase =
                    Phase::Refused(if is_split { undo } else { Firsts::new() });
            }
        }
    }

    /// All ballots under which nodes have, or may have, granted an attempt that failed.
    fn granted_under(&self, state: &State, at: usize, tried: u64) -> Firsts {
        let granted = state.columns.iter().filter_map(|column| match column.wires[at].slot {
            Slot::Answered(Answer::Granted(block)) => Some(block.first),
            _ => None,
        });
        let mut firsts: Firsts = granted.chain([tried]).collect();
        firsts.sort_unstable();
        firsts.dedup();
        firsts
    }

    /// Takes a failed attempt back; says what was.
    fn take_back(&self, state: &mut State, at: usize, tried: u64) -> Firsts {
        let undo = self.granted_under(state, at, tried);
        self.tell(state, at, &Operation::Undo(undo.clone()));
        undo
    }

    fn renewed(&self, state: &mut State, at: usize, sent: u8, verdict: &Kept, votes: &[Vote]) {
        let Phase::Holding { block, until, .. } = state.clients[at].phase else { return };
        match verdict {
            Kept::Done => {
                let later = self.rules.deadline(sent, state.now, self.bounds.lease.ttl());
                let until = until.max(later);
                if votes.iter().any(|vote| matches!(vote, Vote::NotYours { free: true, .. })) {
                    // Those that are free for it get it again, under its ballot.
                    self.tell(state, at, &Operation::Heal(block));
                }
                state.clients[at].phase = Phase::Holding { block, until, doing: Doing::Nothing };
                self.end_round(state, at);
            }
            Kept::NotYours(_) => self.release(state, at),
            Kept::TooFew | Kept::Odd => {
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
        let client = state.clients[at].clone();
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
