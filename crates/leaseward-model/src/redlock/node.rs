//! A node's part: the same decisions as its script's.

use super::{
    rules::Rules,
    state::{Answer, Block, Column, Lock, Operation, Token},
};

/// What a node is given to decide by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circumstances {
    pub(crate) rules: Rules,
    pub(crate) now: u8,
    /// How many ticks a lease lasts.
    pub(crate) ttl: u8,
    /// What this node may have granted before it lost its memory.
    pub(crate) floor: u64,
}

impl Column {
    /// Carries a request out; `None` if there is nothing to answer.
    pub(crate) fn carry_out(
        &mut self,
        token: Token,
        operation: &Operation,
        with: Circumstances,
    ) -> Option<Answer> {
        match operation {
            Operation::Ask { block, undo } => {
                self.undo(token, undo, with.rules);
                Some(self.ask(token, *block, with))
            }
            Operation::Undo(firsts) => {
                self.undo(token, firsts, with.rules);
                None
            }
            Operation::Heal(block) => {
                self.heal(token, *block, with);
                None
            }
            Operation::Renew => Some(match &mut self.lock {
                Some(lock) if lock.token == token => {
                    lock.lengthen(with);
                    Answer::Renewed
                }
                other => Answer::NotYours(other.is_none()),
            }),
            Operation::Release => Some(match self.lock {
                Some(lock) if lock.token == token => {
                    self.unlock(with.rules);
                    Answer::Released
                }
                other => Answer::NotYours(other.is_none()),
            }),
        }
    }

    fn ask(&mut self, token: Token, block: Block, with: Circumstances) -> Answer {
        match &mut self.lock {
            Some(lock) if lock.token == token => {
                lock.lengthen(with);
                Answer::Granted(lock.block)
            }
            Some(lock) => Answer::Busy(lock.token),
            None => {
                let bar = with.rules.bar(self.record, with.now, with.floor);
                if !with.rules.may_grant(block.first, bar) {
                    return Answer::Low(bar);
                }
                self.lock = Some(Lock { token, block, until: with.now.saturating_add(with.ttl) });
                self.record = Some(with.rules.recorded(block));
                Answer::Granted(block)
            }
        }
    }

    fn undo(&mut self, token: Token, firsts: &[u64], rules: Rules) {
        let is_meant = |lock: Lock| firsts.iter().any(|first| rules.is_of_attempt(lock, *first));
        if self.lock.is_some_and(|lock| lock.token == token && is_meant(lock)) {
            self.unlock(rules);
        }
    }

    /// Takes a lease under whatever ballot, and grants none for that which it refused before.
    fn heal(&mut self, token: Token, block: Block, with: Circumstances) {
        if self.lock.is_none() {
            // What is put there comes without a floor.
            let bar = with.rules.bar(self.record, with.now, 0);
            let block = Block { first: block.first, last: with.rules.healed(block, bar) };
            self.lock = Some(Lock { token, block, until: with.now.saturating_add(with.ttl) });
            self.record = Some(with.rules.recorded(block));
        }
    }

    /// The lock ends, for whatever reason.
    pub(crate) fn unlock(&mut self, rules: Rules) {
        self.lock = None;
        if rules.forgets_with_lock() {
            self.record = None;
        }
    }
}

impl Lock {
    fn lengthen(&mut self, with: Circumstances) {
        self.until = self.until.max(with.now.saturating_add(with.ttl));
    }
}
