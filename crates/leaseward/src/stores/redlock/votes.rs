//! A node's answers, as votes.

use std::{sync::Arc, time::Duration};

use redis::Value;

use super::{
    quorum::{Ballot, Vote},
    script::{code, reason},
    wire::{Call, Step},
};
use crate::{
    Error, ErrorKind, Fence, Holder, LostReason, Mode, Token,
    store::{HeldView, Operation, Standing},
    stores::redis::{
        answers::{self, Answers, stranger, time_left},
        error::{self, Reaction},
    },
};

/// What a node answered to a call.
#[derive(Debug)]
pub(super) struct Reply {
    /// Its clock when it did, if it looked.
    pub(super) clock_us: Option<u64>,
    /// Every ask was granted as it was put, every lease renewed or given back: there is nothing to read.
    is_usual: bool,
    answers: Answers,
    /// Why the node is not one that can vote, if an operation said so.
    pub(super) misplaced: Option<Error>,
    /// The last error of an operation.
    pub(super) failure: Option<Error>,
}

/// A lease, as one node shows it.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    /// All of the token: the same lease has the same on every node. None for a client of another library.
    pub(super) token: String,
    pub(super) view: HeldView,
    pub(super) ballot: Ballot,
}

impl Reply {
    pub(super) fn new(value: Value) -> Result<Self, Error> {
        let is_usual = value == Value::Int(code::USUAL);
        let (mut answers, is_terse) = match value {
            Value::Int(code::USUAL) => (Answers::new(Value::Array(Vec::new()))?, true),
            // Codes, and no clock.
            Value::BulkString(codes) => {
                let codes = codes.into_iter().map(|code| Value::Int(code.into()));
                (Answers::new(Value::Array(codes.collect()))?, true)
            }
            value => (Answers::new(value)?, false),
        };
        let clock_us = if is_terse { 0 } else { answers.number()?.unsigned_abs() };
        let clock_us = Some(clock_us).filter(|clock_us| *clock_us > 0);
        Ok(Self { clock_us, is_usual, answers, misplaced: None, failure: None })
    }

    /// The vote on the next step of a call.
    pub(super) fn next(&mut self, call: &Call, step: &Step) -> Result<Vote, Error> {
        if self.is_usual {
            return usual(call, step);
        }
        if let Step::Undo(..) = step {
            if self.answers.number()? == code::FAILED {
                self.fail()?;
            }
            return Ok(Vote::Absent);
        }
        self.vote(step)
    }

    fn vote(&mut self, step: &Step) -> Result<Vote, Error> {
        Ok(match self.answers.number()? {
            code::PLAIN => match step {
                Step::Ask(_, ballot) => Vote::Granted(*ballot),
                _ => return Err(odd()),
            },
            code::GRANTED => Vote::Granted(self.ballot()?),
            code::LOW => Vote::Low(self.answers.number()?.unsigned_abs()),
            code::BUSY => self.busy()?,
            code::HELD => self.held()?,
            code::ODD => Vote::Odd,
            code::RENEWED => Vote::Renewed,
            code::RELEASED => Vote::Released,
            code::NOT_YOURS => {
                let (reason, free) = self.reason()?;
                Vote::NotYours { reason, free }
            }
            code::GONE => Vote::Gone(self.reason()?.0),
            code::FAILED => {
                self.fail()?;
                Vote::Absent
            }
            _ => return Err(odd()),
        })
    }

    fn fail(&mut self) -> Result<(), Error> {
        let (error, reaction) = error::of_operation(&self.answers.text()?);
        if reaction == Reaction::Reconnect {
            self.misplaced = Some(error.duplicate());
        }
        self.failure = Some(error);
        Ok(())
    }

    fn ballot(&mut self) -> Result<Ballot, Error> {
        let block = self.answers.block()?;
        Ok(Ballot { first: block.first.get(), last: block.last().get() })
    }

    fn reason(&mut self) -> Result<(LostReason, bool), Error> {
        Ok(match self.answers.number()? {
            reason::EXPIRED => (LostReason::Expired, true),
            reason::BROKEN => (LostReason::Broken, false),
            reason::FREE => (LostReason::NotOurs, true),
            _ => (LostReason::NotOurs, false),
        })
    }

    fn busy(&mut self) -> Result<Vote, Error> {
        let (whose, who, mode) = (self.answers.text()?, self.answers.text()?, self.answers.text()?);
        let (left, free_in) = (self.answers.number()?, self.answers.number()?);
        let who = who.strip_prefix('!').map_or_else(|| Arc::from(who.as_str()), stranger);
        let holder = Holder::new(who, mode_from(&mode), time_left(left));
        let standing = Standing { holder: Some(holder), free_in: time_left(free_in), ahead: 0 };
        Ok(Vote::Busy(standing, whose))
    }

    /// The same, in as few words as a node needs.
    fn held(&mut self) -> Result<Vote, Error> {
        let (token, left) = (self.answers.text()?, self.answers.number()?);
        let who = match token.parse::<Token>() {
            Ok(token) => token.who().clone(),
            Err(_) => stranger("string"),
        };
        let left = time_left(left);
        let holder = Some(Holder::new(who, Mode::Exclusive, left));
        let whose = token.chars().take(8).collect();
        Ok(Vote::Busy(Standing { holder, free_in: left, ahead: 0 }, whose))
    }

    /// The leases on a name that was looked at.
    pub(super) fn shown(&mut self) -> Result<Vec<Shown>, Error> {
        let count = self.answers.number()?;
        (0..count).map(|_| self.show()).collect()
    }

    /// The leases that were broken; `None` if the name is held by somebody who cannot be told.
    pub(super) fn broken(&mut self) -> Result<Option<Vec<Shown>>, Error> {
        match self.answers.number()? {
            code::DONE => self.shown().map(Some),
            code::BUSY => Ok(None),
            code::FAILED => {
                self.fail()?;
                Err(self.failure.take().unwrap_or_else(odd))
            }
            _ => Err(odd()),
        }
    }

    fn show(&mut self) -> Result<Shown, Error> {
        let fields = self.answers.list()?;
        let [token, mode, letter, value, first, last, ttl, _delay, left] = fields.as_slice() else {
            return Err(odd());
        };
        let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
        let number = |field: &[u8]| text(field).parse::<i64>().map_err(|_| odd());
        let (token, foreign) = (text(token), token.first() == Some(&b'!'));
        let who = if foreign {
            stranger(&token[1..])
        } else {
            Arc::from(token.split_once(':').map_or("", |(_, who)| who))
        };
        // Ballots are on the scale of the clock: the first is when it was asked for.
        let since_us = if foreign { None } else { Some(number(first)?.unsigned_abs()) };
        let held_us = since_us.and_then(|since| Some(self.clock_us?.saturating_sub(since)));
        let view = HeldView {
            who,
            token_prefix: if foreign { String::new() } else { token.chars().take(8).collect() },
            mode: mode_from(&text(mode)),
            fence: Fence::new(number(first)?.unsigned_abs()),
            slot: None,
            ttl: time_left(number(ttl)?).unwrap_or_default(),
            remaining: time_left(number(left)?),
            held: Duration::from_micros(held_us.unwrap_or(0)),
            value: answers::value_from(value),
            ending: matches!(letter.as_slice(), b"b" | b"k"),
        };
        let ballot =
            Ballot { first: number(first)?.unsigned_abs(), last: number(last)?.unsigned_abs() };
        Ok(Shown { token, view, ballot })
    }
}

/// The vote on a step about which there was nothing unusual.
fn usual(call: &Call, step: &Step) -> Result<Vote, Error> {
    match (step, call.operation(step)) {
        (Step::Ask(_, ballot), _) => Ok(Vote::Granted(*ballot)),
        (Step::Plain(_), Some(Operation::Renew(_))) => Ok(Vote::Renewed),
        (Step::Plain(_), Some(Operation::Release(_))) => Ok(Vote::Released),
        (Step::Undo(..), _) => Ok(Vote::Absent),
        _ => Err(odd()),
    }
}

fn mode_from(letter: &str) -> Mode {
    if letter == "s" { Mode::Shared } else { Mode::Exclusive }
}

fn odd() -> Error {
    Error::new(ErrorKind::Indeterminate, "a node answered a batch with something else")
        .hint("is there a proxy in between that changes answers?")
}
