//! The functions' answers, and what comes by notification.

use std::{sync::Arc, time::Duration};

use serde_json::Value as Json;
use tokio_postgres::{Row, types::FromSql};

use crate::{
    Block, Error, ErrorKind, Fence, Holder, LostReason, Mode, Name, Token,
    store::{self, Answer, Evidence, Grant, Operation, Place, Push, Renewal, Reply, Standing},
};

/// What an answer is; the same numbers stand in the SQL.
mod code {
    pub(super) const GRANTED: i16 = 1;
    pub(super) const QUEUED: i16 = 2;
    pub(super) const BUSY: i16 = 3;
    pub(super) const RENEWED: i16 = 4;
    pub(super) const RELEASED: i16 = 5;
    pub(super) const NOT_YOURS: i16 = 6;
    pub(super) const GONE: i16 = 8;
    pub(super) const CAPACITY: i16 = 9;
    /// Another transaction has the name's row: ask again.
    pub(super) const IN_FLIGHT: i16 = 10;
    /// What time it is.
    pub(super) const CLOCK: i16 = 11;
    /// The same, and that nothing was done because nobody waits for it any more.
    pub(super) const LATE: i16 = 12;
    /// A waiter of this client was given the lease.
    pub(super) const HANDED: i16 = 20;
}

/// How a name is said to be held while a transaction has its fence row.
const COMMIT_IN_FLIGHT: &str = "a transaction whose commit is in flight";

/// A row of an answer.
#[derive(Debug)]
pub(super) enum Said {
    /// To the operation at this place of the call.
    To(usize, Outcome),
    Clock(i64),
    Late(i64),
    Push(Push),
}

/// What came of one operation.
#[derive(Debug)]
pub(super) enum Outcome {
    Answer(Answer),
    /// It has to be sent again.
    InFlight,
}

/// A column of a row. A server that answers with another type than was asked for is an error, never a panic.
pub(super) fn column<'a, T: FromSql<'a>>(row: &'a Row, at: usize) -> Result<T, Error> {
    row.try_get(at).map_err(|error| {
        Error::new(ErrorKind::Indeterminate, "the database answered something else than asked")
            .hint("was its schema changed by hand?")
            .caused_by(error.to_string())
    })
}

struct Fields<'a>(&'a Row);

impl Fields<'_> {
    fn get<'a, T: FromSql<'a>>(&'a self, at: usize) -> Result<T, Error> {
        column(self.0, at)
    }

    fn number(&self, at: usize) -> Result<i64, Error> {
        self.get::<Option<i64>>(at).map(Option::unwrap_or_default)
    }

    fn count(&self, at: usize) -> Result<u32, Error> {
        let count = self.get::<Option<i32>>(at)?.unwrap_or_default();
        Ok(u32::try_from(count).unwrap_or_default())
    }

    fn fence(&self, at: usize) -> Result<Fence, Error> {
        self.number(at).map(|fence| Fence::new(fence.unsigned_abs()))
    }

    fn block(&self) -> Result<Block, Error> {
        Ok(Block { first: self.fence(2)?, len: self.count(3)? })
    }

    fn slot(&self) -> Result<Option<u32>, Error> {
        Ok(self.get::<Option<i32>>(4)?.and_then(|slot| u32::try_from(slot).ok()))
    }

    fn reason(&self) -> Result<LostReason, Error> {
        Ok(match self.get::<Option<i32>>(7)? {
            Some(1) => LostReason::Broken,
            Some(2) => LostReason::Expired,
            _ => LostReason::NotOurs,
        })
    }

    fn standing(&self) -> Result<Standing, Error> {
        let is_in_flight = self.count(3)? > 0;
        let holder = match self.get::<Option<&str>>(6)? {
            Some(who) => {
                let mode = mode(self.get::<Option<i32>>(7)?.unwrap_or_default());
                Some(Holder::new(Arc::from(who), mode, Some(length(self.number(8)?))))
            }
            None if is_in_flight => {
                Some(Holder::new(Arc::from(COMMIT_IN_FLIGHT), Mode::Shared, None))
            }
            None => None,
        };
        let free_in = self.get::<Option<i64>>(9)?.map(length);
        Ok(Standing { holder, free_in, ahead: self.count(5)? })
    }

    fn grant(&self, ttl: Duration, evidence: Evidence) -> Result<Grant, Error> {
        let (block, waiters) = (self.block()?, self.count(5)?);
        Ok(Grant { block, slot: self.slot()?, ttl, evidence, waiters })
    }

    fn push(&self) -> Result<Push, Error> {
        let name = Name::new(self.get::<&str>(10)?)?;
        let token = token(self.get(11)?, self.get(6)?)?;
        let grant = self.grant(length(self.number(8)?), Evidence::LargerFence)?;
        Ok(Push::Granted { name, token, grant })
    }
}

/// Reads a row. `operation` finds the operation that stood at a place of the call.
pub(super) fn read<'a>(
    row: &Row,
    operation: impl FnOnce(usize) -> Option<&'a Operation>,
) -> Result<Said, Error> {
    let fields = Fields(row);
    let code = fields.get::<i16>(1)?;
    match code {
        code::CLOCK => return fields.number(2).map(Said::Clock),
        code::LATE => return fields.number(2).map(Said::Late),
        code::HANDED => return fields.push().map(Said::Push),
        _ => {}
    }
    // They are counted from one there.
    let at = usize::try_from(fields.get::<i32>(0)?).ok().and_then(|at| at.checked_sub(1));
    let Some((at, operation)) = at.and_then(|at| operation(at).map(|operation| (at, operation)))
    else {
        return Err(unexpected());
    };
    let reply = match code {
        code::IN_FLIGHT => return Ok(Said::To(at, Outcome::InFlight)),
        code::CAPACITY => {
            let capacity = fields.count(7)?;
            let refusal = store::capacity_error(operation.name(), capacity);
            return Ok(Said::To(at, Outcome::Answer(Err(refusal))));
        }
        code::GRANTED => Reply::Granted(fields.grant(asked_ttl(operation), Evidence::ThisRequest)?),
        code::QUEUED => {
            Reply::Queued(Place { last_fence: fields.fence(2)?, standing: fields.standing()? })
        }
        code::BUSY => Reply::Busy(fields.standing()?),
        code::RENEWED => Reply::Renewed(Renewal {
            ttl: asked_ttl(operation),
            evidence: Evidence::ThisRequest,
            waiters: fields.count(5)?,
        }),
        code::RELEASED => Reply::Released,
        code::NOT_YOURS => Reply::NotYours(fields.reason()?),
        code::GONE => Reply::Gone(fields.reason()?),
        _ => return Err(unexpected()),
    };
    Ok(Said::To(at, Outcome::Answer(Ok(reply))))
}

fn asked_ttl(operation: &Operation) -> Duration {
    match operation {
        Operation::Ask(ask) => ask.ttl,
        Operation::Renew(renew) => renew.ttl,
        Operation::Release(_) => Duration::ZERO,
    }
}

/// What a notification tells: `[name, token, who, first, len, slot, lasts_us, waiters]`, or only the name.
pub(super) fn heard(payload: &str) -> Option<Push> {
    let fields: Vec<Json> = serde_json::from_str(payload).ok()?;
    let name = Name::new(fields.first()?.as_str()?).ok()?;
    let [_, key, who, first, len, slot, lasts, waiters] = fields.as_slice() else {
        return Some(Push::Woken { name });
    };
    let random = u128::from_str_radix(key.as_str()?, 16).ok()?;
    let token = Token::new(random, Arc::from(who.as_str()?));
    let count = |of: &Json| of.as_u64().and_then(|count| u32::try_from(count).ok());
    let block = Block { first: Fence::new(first.as_u64()?), len: count(len)? };
    let grant = Grant {
        block,
        slot: count(slot),
        ttl: Duration::from_micros(lasts.as_u64()?),
        evidence: Evidence::LargerFence,
        waiters: count(waiters)?,
    };
    Some(Push::Granted { name, token, grant })
}

/// A token from its two columns.
pub(super) fn token(random: &[u8], who: &str) -> Result<Token, Error> {
    let random = random.try_into().map_err(|_| unexpected())?;
    Ok(Token::new(u128::from_be_bytes(random), Arc::from(who)))
}

pub(super) fn mode(code: i32) -> Mode {
    match u32::try_from(code) {
        Ok(0) => Mode::Exclusive,
        Ok(capacity) => Mode::Permit { capacity },
        Err(_) => Mode::Shared,
    }
}

/// A length of time; what is over has none left.
pub(super) fn length(us: i64) -> Duration {
    Duration::from_micros(u64::try_from(us).unwrap_or_default())
}

pub(super) fn unexpected() -> Error {
    Error::new(ErrorKind::Indeterminate, "the database answered something that was not asked")
        .hint("was its schema changed by hand?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_notifications() {
        let text = r#"["a \"b\"","000000000000000000000000000000ff","h:1",7,2,null,1000000,3]"#;
        let Some(Push::Granted { name, token, grant }) = heard(text) else { panic!("no grant") };
        assert_eq!((name.as_str(), token.random(), &**token.who()), ("a \"b\"", 255, "h:1"));
        assert_eq!((grant.fence().get(), grant.block.len, grant.slot), (7, 2, None));
        assert_eq!((grant.ttl, grant.waiters), (Duration::from_secs(1), 3));
        assert!(matches!(heard(r#"["a"]"#), Some(Push::Woken { name }) if &*name == "a"));
        assert!(heard("hello").is_none());
        assert!(heard("[]").is_none());
    }
}
