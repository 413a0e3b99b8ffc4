//! What a node is meant to do: a lock, a record and a clock, and the rules of `ballot` to decide by.

use leaseward::stores::redlock::ballot::{self, ALLOWANCE};

/// What a node is asked. A block is known by its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Ask { ttl_ms: u64, first: u64, last: u64, is_plain: bool },
    Renew { ttl_ms: u64 },
    Release,
    Undo { first: u64 },
}

/// What it answers, as far as the rules say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Granted { first: u64, last: u64 },
    Low(u64),
    Busy(usize),
    Renewed,
    Released,
    NotYours { free: bool },
    Done,
}

#[derive(Clone, Copy, Debug)]
struct Lock {
    token: usize,
    first: u64,
    last: u64,
    until_us: u64,
}

/// One name at a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Name {
    lock: Option<Lock>,
    /// The end of the newest block.
    record: Option<u64>,
}

impl Name {
    /// Time has passed, and the server does, or does not, remember a ballot.
    ///
    /// # Panics
    /// If it has forgotten one too early, or made one up.
    pub(crate) fn settle(&mut self, now_us: u64, remembers: bool) {
        if self.lock.is_some_and(|lock| lock.until_us <= now_us) {
            self.lock = None;
        }
        match self.record {
            Some(last) if !remembers => {
                let allowance_us = ALLOWANCE.as_micros() as u64;
                assert!(last + allowance_us <= now_us, "forgot {last} too early, at {now_us}");
                assert!(self.lock.is_none(), "forgot {last} while it is locked");
                self.record = None;
            }
            None => assert!(!remembers, "remembers a ballot that was never granted"),
            Some(_) => {}
        }
    }

    /// Up to where ballots are refused.
    pub(crate) fn bar(&self, now_us: u64, floor: u64) -> u64 {
        ballot::bar(self.record, now_us, floor)
    }

    /// The ballot of the lock.
    pub(crate) fn held(&self) -> Option<u64> {
        self.lock.map(|lock| lock.first)
    }

    pub(crate) fn carry_out(
        &mut self,
        token: usize,
        operation: Operation,
        now_us: u64,
        floor: u64,
    ) -> Answer {
        let bar = self.bar(now_us, floor);
        let mine = self.lock.as_mut().filter(|lock| lock.token == token);
        match (operation, mine) {
            (Operation::Ask { ttl_ms, .. }, Some(lock)) => {
                lock.lengthen(now_us, ttl_ms);
                Answer::Granted { first: lock.first, last: lock.last }
            }
            (Operation::Ask { ttl_ms, first, last, .. }, None) => match self.lock {
                Some(lock) => Answer::Busy(lock.token),
                None if !ballot::may_grant(first, bar) => Answer::Low(bar),
                None => {
                    self.lock = Some(Lock { token, first, last, until_us: now_us + ttl_ms * 1000 });
                    self.record = Some(last);
                    Answer::Granted { first, last }
                }
            },
            (Operation::Renew { ttl_ms }, Some(lock)) => {
                lock.lengthen(now_us, ttl_ms);
                Answer::Renewed
            }
            (Operation::Release, Some(_)) => {
                self.lock = None;
                Answer::Released
            }
            (Operation::Undo { first }, Some(lock)) => {
                if lock.first == first {
                    self.lock = None;
                }
                Answer::Done
            }
            (Operation::Undo { .. }, None) => Answer::Done,
            (Operation::Renew { .. } | Operation::Release, None) => {
                Answer::NotYours { free: self.lock.is_none() }
            }
        }
    }
}

impl Lock {
    fn lengthen(&mut self, now_us: u64, ttl_ms: u64) {
        self.until_us = self.until_us.max(now_us + ttl_ms * 1000);
    }
}
