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
        operation: Operation,
        with: Circumstances,
    ) -> Option<Answer> {
        match operation {
            Operation::Ask { block, undo } => {
                if let Some(first) = undo {
                    self.undo(token, first, with.rules);
                }
                Some(self.ask(token, block, with))
            }
            Operation::Undo(first) => {
                self.undo(token, first, with.rules);
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

    fn undo(&mut self, token: Token, first: u64, rules: Rules) {
        if self.lock.is_some_and(|lock| lock.token == token && rules.is_of_attempt(lock, first)) {
            self.unlock(rules);
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
