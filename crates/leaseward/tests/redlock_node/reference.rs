//! What a node is meant to do: leases, a record and a clock, and the rules of `ballot` to decide by.

use leaseward::stores::redlock::ballot::{self, ALLOWANCE};

/// What a node is asked. A block is known by its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Ask(Ask),
    /// To take a lease that others have.
    Heal(Ask),
    Renew {
        ttl_ms: u64,
    },
    Release {
        keep_ms: u64,
    },
    Undo {
        first: u64,
    },
    /// At once, or by refusing to renew.
    Break {
        now: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) ttl_ms: u64,
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) is_shared: bool,
    /// How long the name stays blocked if the lease is not given back.
    pub(crate) delay_ms: u64,
    /// Whether the script for what is usual is asked first.
    pub(crate) is_plain: bool,
}

/// What it answers, as far as the rules say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Granted { first: u64, last: u64 },
    Low(u64),
    Busy(Whose),
    Gone,
    Renewed,
    Released,
    NotYours { free: bool },
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    Token(usize),
    Readers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Sound,
    /// It may not be renewed.
    Broken,
    /// Given back, for its minimum hold.
    Kept,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    token: usize,
    first: u64,
    last: u64,
    until_us: u64,
    delay_us: u64,
    state: State,
}

/// One name at a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Name {
    lock: Option<Lease>,
    readers: Vec<Lease>,
    /// Whose lease ended by itself, and until when that blocks the name.
    blocked: Option<(usize, u64)>,
    /// The end of the newest block.
    record: Option<u64>,
}

impl Name {
    /// Time has passed, and the server does, or does not, remember a ballot.
    ///
    /// # Panics
    /// If it has forgotten one too early, or made one up.
    pub(crate) fn settle(&mut self, now_us: u64, remembers: bool) {
        if let Some(lock) = self.lock.filter(|lock| lock.until_us <= now_us) {
            self.lock = None;
            self.blocked = Some((lock.token, lock.free_us()));
        }
        self.blocked = self.blocked.filter(|(_, until_us)| *until_us > now_us);
        self.readers.retain(|reader| reader.free_us() > now_us);
        match self.record {
            Some(last) if !remembers => {
                let allowance_us = ALLOWANCE.as_micros() as u64;
                assert!(last + allowance_us <= now_us, "forgot {last} too early, at {now_us}");
                assert!(self.lock.is_none(), "forgot {last} while it is locked");
                assert!(self.blocked.is_none(), "forgot {last} while the name is blocked");
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

    /// The ballot of a lease.
    pub(crate) fn held(&self) -> Option<u64> {
        self.lock.or(self.readers.first().copied()).map(|lease| lease.first)
    }

    pub(crate) fn is_shared(&self) -> bool {
        !self.readers.is_empty()
    }

    pub(crate) fn carry_out(
        &mut self,
        token: usize,
        operation: Operation,
        now_us: u64,
        floor: u64,
    ) -> Answer {
        match operation {
            Operation::Ask(ask) => self.ask(token, ask, now_us, floor),
            Operation::Heal(ask) => {
                if self.mine(token).is_none() && self.in_the_way(ask).is_none() {
                    let bar = self.bar(now_us, floor);
                    self.grant(token, ask, bar, now_us);
                }
                Answer::Done
            }
            Operation::Renew { ttl_ms } => self.renew(token, ttl_ms, now_us),
            Operation::Release { keep_ms } => self.release(token, keep_ms, now_us),
            Operation::Undo { first } => {
                self.readers.retain(|lease| lease.token != token || lease.first != first);
                self.lock = self.lock.filter(|lease| lease.token != token || lease.first != first);
                Answer::Done
            }
            Operation::Break { now: true } => {
                *self = Self { record: self.record, ..Self::default() };
                Answer::Done
            }
            Operation::Break { now: false } => {
                let all = self.readers.iter_mut().chain(&mut self.lock);
                for lease in all.filter(|lease| lease.state == State::Sound) {
                    lease.state = State::Broken;
                }
                Answer::Done
            }
        }
    }

    fn mine(&mut self, token: usize) -> Option<&mut Lease> {
        self.readers.iter_mut().chain(&mut self.lock).find(|lease| lease.token == token)
    }

    fn in_the_way(&self, ask: Ask) -> Option<Whose> {
        if let Some(lock) = self.lock {
            return Some(Whose::Token(lock.token));
        }
        if !self.readers.is_empty() {
            return (!ask.is_shared).then_some(Whose::Readers);
        }
        self.blocked.map(|(token, _)| Whose::Token(token))
    }

    fn ask(&mut self, token: usize, ask: Ask, now_us: u64, floor: u64) -> Answer {
        if let Some(lease) = self.mine(token) {
            if !lease.may_be_renewed(now_us) {
                return Answer::Gone;
            }
            lease.lengthen(now_us, ask.ttl_ms);
            return Answer::Granted { first: lease.first, last: lease.last };
        }
        if let Some(whose) = self.in_the_way(ask) {
            return Answer::Busy(whose);
        }
        let bar = self.bar(now_us, floor);
        if !ballot::may_grant(ask.first, bar) {
            return Answer::Low(bar);
        }
        self.grant(token, ask, bar, now_us);
        Answer::Granted { first: ask.first, last: ask.last }
    }

    /// Whatever was refused before is refused afterwards, also where a lease is put that is older.
    fn grant(&mut self, token: usize, ask: Ask, bar: u64, now_us: u64) {
        let Ask { ttl_ms, first, last, is_shared, delay_ms, .. } = ask;
        let (until_us, delay_us) = (now_us + ttl_ms * 1000, delay_ms * 1000);
        let highest = last.max(bar);
        let lease = Lease { token, first, last, until_us, delay_us, state: State::Sound };
        if is_shared {
            self.readers.push(lease);
        } else {
            self.lock = Some(Lease { last: highest, ..lease });
        }
        (self.record, self.blocked) = (Some(highest), None);
    }

    fn renew(&mut self, token: usize, ttl_ms: u64, now_us: u64) -> Answer {
        let is_locked = self.lock.is_some();
        let Some(lease) = self.mine(token) else { return Answer::NotYours { free: !is_locked } };
        if !lease.may_be_renewed(now_us) {
            let is_over = lease.state == State::Sound;
            return Answer::NotYours { free: is_over };
        }
        lease.lengthen(now_us, ttl_ms);
        Answer::Renewed
    }

    fn release(&mut self, token: usize, keep_ms: u64, now_us: u64) -> Answer {
        let is_locked = self.lock.is_some();
        let lease = self.mine(token).filter(|it| it.state != State::Kept && it.until_us > now_us);
        let Some(lease) = lease else { return Answer::NotYours { free: !is_locked } };
        if keep_ms > 0 {
            (lease.state, lease.until_us) = (State::Kept, now_us + keep_ms * 1000);
        } else {
            self.readers.retain(|lease| lease.token != token);
            self.lock = self.lock.filter(|lease| lease.token != token);
        }
        Answer::Released
    }
}

impl Lease {
    /// When the name is free of it, if it is not given back.
    fn free_us(&self) -> u64 {
        let is_delayed = self.state != State::Kept;
        self.until_us + if is_delayed { self.delay_us } else { 0 }
    }

    fn may_be_renewed(&self, now_us: u64) -> bool {
        self.state == State::Sound && self.until_us > now_us
    }

    fn lengthen(&mut self, now_us: u64, ttl_ms: u64) {
        self.until_us = self.until_us.max(now_us + ttl_ms * 1000);
    }
}
