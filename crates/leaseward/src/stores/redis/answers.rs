//! The script's answers, and what comes over a client's channel.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use redis::Value;

use super::{
    error::{self, Reaction},
    keys::Keys,
    script::{code, reason},
};
use crate::{
    Block, Error, ErrorKind, Fence, Holder, LostReason, Mode, Name, Token,
    store::{self, Answer, Ask, Evidence, Grant, Operation, Place, Push, Renewal, Reply, Standing},
};

/// A value as it came back.
pub(in crate::stores) fn value_from(text: &[u8]) -> Option<crate::Value> {
    text.strip_prefix(b"=").and_then(|value| crate::Value::new(value).ok())
}

/// The script's flat answer, read from front to back.
#[derive(Debug)]
pub(in crate::stores) struct Answers {
    values: std::vec::IntoIter<Value>,
    misplaced: Option<Error>,
}

impl Answers {
    pub(in crate::stores) fn new(value: Value) -> Result<Self, Error> {
        match value {
            Value::Array(values) => Ok(Self { values: values.into_iter(), misplaced: None }),
            other => Err(unexpected(&other)),
        }
    }

    /// What the small script said, which is short if it can be: `plain.lua` says how.
    pub(super) fn of_plain(value: Value) -> Result<Self, Error> {
        match value {
            Value::Nil => Self::new(Value::Array(Vec::new())),
            Value::BulkString(text) => {
                let said = std::str::from_utf8(&text).ok().and_then(in_full);
                said.map_or_else(
                    || Err(unexpected(&Value::Nil)),
                    |said| Self::new(Value::Array(said)),
                )
            }
            value => Self::new(value),
        }
    }

    pub(in crate::stores) fn number(&mut self) -> Result<i64, Error> {
        match self.values.next() {
            Some(Value::Int(number)) => Ok(number),
            other => Err(unexpected(&other.unwrap_or_default())),
        }
    }

    pub(in crate::stores) fn bytes(&mut self) -> Result<Vec<u8>, Error> {
        match self.values.next() {
            Some(Value::BulkString(bytes)) => Ok(bytes),
            Some(Value::SimpleString(text)) => Ok(text.into_bytes()),
            Some(Value::Okay) => Ok(b"OK".to_vec()),
            other => Err(unexpected(&other.unwrap_or_default())),
        }
    }

    /// A list of texts; what is missing is empty.
    pub(in crate::stores) fn list(&mut self) -> Result<Vec<Vec<u8>>, Error> {
        let Some(Value::Array(values)) = self.values.next() else {
            return Err(unexpected(&Value::Nil));
        };
        let text = |value| match value {
            Value::BulkString(bytes) => bytes,
            _ => Vec::new(),
        };
        Ok(values.into_iter().map(text).collect())
    }

    pub(in crate::stores) fn text(&mut self) -> Result<String, Error> {
        self.bytes().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    pub(in crate::stores) fn count(&mut self) -> Result<u32, Error> {
        self.number().map(|number| u32::try_from(number).unwrap_or(0))
    }

    pub(in crate::stores) fn fence(&mut self) -> Result<Fence, Error> {
        self.number().map(|number| Fence::new(number.unsigned_abs()))
    }

    pub(in crate::stores) fn block(&mut self) -> Result<Block, Error> {
        Ok(Block { first: self.fence()?, len: self.count()? })
    }

    fn reason(&mut self) -> Result<LostReason, Error> {
        self.number().map(|number| match number {
            reason::EXPIRED => LostReason::Expired,
            reason::BROKEN => LostReason::Broken,
            _ => LostReason::NotOurs,
        })
    }

    fn standing(&mut self) -> Result<(Standing, IsForeign), Error> {
        let ahead = self.count()?;
        let (who, mode) = (self.text()?, self.text()?);
        let mode = mode_from(&mode, self.count()?);
        let (left, free_in) = (self.number()?, self.number()?);
        let foreign = who.strip_prefix('!');
        let who = foreign.map_or_else(|| Arc::from(who.as_str()), stranger);
        let holder = (!who.is_empty()).then(|| Holder::new(who, mode, time_left(left)));
        Ok((Standing { holder, free_in: time_left(free_in), ahead }, IsForeign(foreign.is_some())))
    }

    /// The answer to an operation, and whether the name is held by a client of another library.
    pub(super) fn next_for(&mut self, operation: &Operation) -> (Answer, IsForeign) {
        let answer = self.number().and_then(|code| self.read(code, operation));
        answer.unwrap_or_else(|error| (Err(error), IsForeign(false)))
    }

    /// The same, once its code was read.
    pub(super) fn next_with(&mut self, code: i64, operation: &Operation) -> (Answer, IsForeign) {
        self.read(code, operation).unwrap_or_else(|error| (Err(error), IsForeign(false)))
    }

    /// Whether all of it was read.
    pub(super) fn is_at_end(&self) -> bool {
        self.values.as_slice().is_empty()
    }

    fn read(&mut self, code: i64, operation: &Operation) -> Result<(Answer, IsForeign), Error> {
        let ours = |reply| Ok((Ok(reply), IsForeign(false)));
        match code {
            code::PLAIN => {
                let block = Block { first: self.fence()?, len: 1 };
                ours(Reply::Granted(granted(block, None, asked_ttl(operation), 0)))
            }
            code::GRANTED => {
                let (block, slot, waiters) = (self.block()?, self.number()?, self.count()?);
                let slot = u32::try_from(slot).ok();
                ours(Reply::Granted(granted(block, slot, asked_ttl(operation), waiters)))
            }
            code::QUEUED => {
                let last_fence = self.fence()?;
                let (standing, foreign) = self.standing()?;
                Ok((Ok(Reply::Queued(Place { last_fence, standing })), foreign))
            }
            code::BUSY => {
                self.standing().map(|(standing, foreign)| (Ok(Reply::Busy(standing)), foreign))
            }
            code::RENEWED => {
                let (waiters, evidence) = (self.count()?, Evidence::ThisRequest);
                ours(Reply::Renewed(Renewal { ttl: asked_ttl(operation), evidence, waiters }))
            }
            code::RELEASED => ours(Reply::Released),
            code::NOT_YOURS => self.reason().and_then(|reason| ours(Reply::NotYours(reason))),
            code::GONE => self.reason().and_then(|reason| ours(Reply::Gone(reason))),
            code::CAPACITY => Err(store::capacity_error(operation.name(), self.count()?)),
            code::FAILED => {
                let (error, reaction) = error::of_operation(&self.text()?);
                if reaction == Reaction::Reconnect {
                    self.misplaced = Some(error.duplicate());
                }
                Err(error)
            }
            _ => Err(unexpected(&Value::Nil)),
        }
    }

    /// Why the node is not the one it was, if an operation said so.
    pub(super) fn misplaced(self) -> Option<Error> {
        self.misplaced
    }

    /// Whether the next answer is that one of our own keys holds something else; if so it is passed over.
    pub(super) fn skip_misused(&mut self) -> bool {
        let [Value::Int(code::FAILED), Value::BulkString(text), ..] = self.values.as_slice() else {
            return false;
        };
        let is_misused = text.starts_with(b"WRONGTYPE");
        if is_misused {
            self.values.nth(1);
        }
        is_misused
    }

    /// Whether an order was carried out.
    pub(super) fn done(&mut self) -> Result<(), Error> {
        match self.number()? {
            code::BUSY => Err(Error::new(
                ErrorKind::Unsupported,
                "it is held by a client of another library, which cannot be told to end",
            )
            .hint("breaking it `--now` deletes its key, while that client may still be at work")),
            code::FAILED => Err(error::of_operation(&self.text()?).0),
            _ => Ok(()),
        }
    }
}

/// One ask that was granted, or one that queued behind a hand-over, as it would be said in full.
fn in_full(text: &str) -> Option<Vec<Value>> {
    let number = |text: &str| text.parse().ok().map(Value::Int);
    let mut parts = text.splitn(4, ' ');
    let fence = number(parts.next()?)?;
    let Some(ahead) = parts.next() else {
        return Some(vec![Value::Int(1), Value::Int(code::RUN), Value::Int(1), fence]);
    };
    let (ahead, left, who) = (number(ahead)?, number(parts.next()?)?, parts.next()?);
    let text = |text: &str| Value::BulkString(text.into());
    let (second, queued, mode) = (Value::Int(2), Value::Int(code::QUEUED), text("x"));
    Some(vec![second, queued, fence, ahead, text(who), mode, Value::Int(0), left.clone(), left])
}

/// Whether a name is held by a client of another library: nobody will push its release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IsForeign(pub(super) bool);

fn asked_ttl(operation: &Operation) -> Duration {
    match operation {
        Operation::Ask(ask) => ask.ttl,
        Operation::Renew(renew) => renew.ttl,
        Operation::Release(_) => Duration::ZERO,
    }
}

fn granted(block: Block, slot: Option<u32>, ttl: Duration, waiters: u32) -> Grant {
    Grant { block, slot, ttl, evidence: Evidence::ThisRequest, waiters }
}

/// An ask that was granted, with nobody waiting.
pub(super) fn plainly_granted(first: Fence, ask: &Ask) -> Reply {
    Reply::Granted(granted(Block { first, len: ask.block }, None, ask.ttl, 0))
}

/// What to call a holder that is none of ours, by the kind of its key.
pub(in crate::stores) fn stranger(kind: &str) -> Arc<str> {
    match kind {
        "string" => Arc::from("a client of another library"),
        "hash" => Arc::from("a Redisson-style lock"),
        other => {
            let mut text = String::new();
            let _ = write!(text, "a key of the kind `{other}`, which is no lock");
            text.into()
        }
    }
}

pub(super) fn mode_from(letter: &str, capacity: u32) -> Mode {
    match letter {
        "s" => Mode::Shared,
        "p" => Mode::Permit { capacity },
        _ => Mode::Exclusive,
    }
}

/// Milliseconds as Redis says them: below zero there is no end.
pub(in crate::stores) fn time_left(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

/// What came over a client's channel.
#[derive(Debug)]
pub(super) enum Heard {
    /// A lease was handed over.
    Push(Push),
    /// A name stays free for a while, then it is our turn.
    Wake(Name, Duration),
}

/// Reads a message; `None` if it is none of ours.
pub(super) fn heard(message: &[u8], keys: &Keys) -> Option<Heard> {
    let (head, key) = match message.first()? {
        b'G' => {
            let end = message.iter().position(|b| *b == b'\n')?;
            (std::str::from_utf8(message.get(2..end)?).ok()?, &message[end + 1..])
        }
        b'W' => {
            let (delay, key) = std::str::from_utf8(message.get(2..)?).ok()?.split_once(' ')?;
            let delay = Duration::from_millis(delay.parse().ok()?);
            return Some(Heard::Wake(keys.name(key.as_bytes())?, delay));
        }
        _ => return None,
    };
    let mut fields = head.splitn(6, ' ');
    let mut number = || fields.next()?.parse::<i64>().ok();
    let (first, len, ttl, slot, waiters) = (number()?, number()?, number()?, number()?, number()?);
    let token: Token = fields.next()?.parse().ok()?;
    let block = Block { first: Fence::new(first.unsigned_abs()), len: u32::try_from(len).ok()? };
    let grant = Grant {
        evidence: Evidence::LargerFence,
        ..granted(block, u32::try_from(slot).ok(), time_left(ttl)?, u32::try_from(waiters).ok()?)
    };
    Some(Heard::Push(Push::Granted { name: keys.name(key)?, token, grant }))
}

pub(super) fn unexpected(value: &Value) -> Error {
    // Only the kind of the value: what stands in it may be a token.
    let kind = match value {
        Value::Nil => "nothing",
        Value::Int(_) => "a number",
        Value::Array(_) => "a list",
        _ => "something else",
    };
    Error::new(ErrorKind::Indeterminate, format!("the server answered a batch with {kind}"))
        .hint("is there a proxy in between that changes answers?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_none_of_ours_is_not_heard() {
        let keys = Keys::new("lock:".into(), false);
        let token = Token::new(1, Arc::from("h:1")).reveal();
        let push = format!("G 7 1 1000 -1 2 {token}\nlock:a");
        assert!(matches!(heard(push.as_bytes(), &keys), Some(Heard::Push(_))));
        assert!(matches!(heard(b"W 5 lock:a", &keys), Some(Heard::Wake(..))));
        // Cut off anywhere, and of any shape: anybody may publish.
        for end in 0..push.len() - "a".len() {
            assert!(heard(&push.as_bytes()[..end], &keys).is_none(), "{:?}", &push[..end]);
        }
        for nonsense in
            ["G\n", "G\nlock:a", "G \nlock:a", "G", "W", "W 5", "W 5 a", "W x lock:a", "X", ""]
        {
            assert!(heard(nonsense.as_bytes(), &keys).is_none(), "{nonsense:?}");
        }
    }
}
