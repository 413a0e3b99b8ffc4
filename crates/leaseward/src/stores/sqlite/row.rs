//! Rows and the values in them.

use std::{error, sync::Arc, time::Duration};

use rusqlite::{Result as SqlResult, Row, types::Type};

use crate::{
    Block, Fence, Mode, Name, Token, Value,
    clock::Moment,
    store::{
        Ask, HeldView, WaiterView,
        held::{Condition, Held},
    },
};

/// A lease.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    pub(super) token: Token,
    pub(super) mode: Mode,
    pub(super) block: Block,
    pub(super) slot: Option<u32>,
    pub(super) condition: Condition,
    pub(super) ttl_ms: u32,
    pub(super) since: Moment,
    pub(super) expires: Moment,
    /// Given to a waiter of another process that has not been heard of since.
    pub(super) handed: bool,
}

/// The columns of [`Hold::read`], in its order; eleven of them.
macro_rules! hold_columns {
    () => {
        "h.token, h.who, h.mode, h.first, h.len, h.slot, h.condition, h.ttl_ms, h.since_us, \
         h.expires_us, h.handed"
    };
}
pub(super) use hold_columns;

impl Hold {
    /// Reads a hold from the columns that begin at `at`.
    pub(super) fn read(row: &Row<'_>, at: usize) -> SqlResult<Self> {
        Ok(Self {
            token: token(row, at)?,
            mode: mode(row, at + 2)?,
            block: Block { first: fence(row, at + 3)?, len: row.get(at + 4)? },
            slot: row.get(at + 5)?,
            condition: condition(row, at + 6)?,
            ttl_ms: row.get(at + 7)?,
            since: moment(row, at + 8)?,
            expires: moment(row, at + 9)?,
            handed: row.get(at + 10)?,
        })
    }

    /// Moves its end, never to an earlier moment: its holder has been promised the later one.
    pub(super) fn lasts_until(&mut self, moment: Moment) {
        self.expires = self.expires.max(moment);
    }

    pub(super) fn view(&self, value: Option<Value>, now: Moment) -> HeldView {
        HeldView {
            who: self.token.who().clone(),
            token_prefix: self.token.prefix(),
            mode: self.mode,
            fence: self.block.first,
            slot: self.slot,
            ttl: Duration::from_millis(self.ttl_ms.into()),
            remaining: Some(self.expires.since(now)),
            held: now.since(self.since),
            value,
            ending: self.condition != Condition::Sound,
        }
    }
}

impl Held for Hold {
    fn token(&self) -> &Token {
        &self.token
    }
    fn mode(&self) -> Mode {
        self.mode
    }
    fn slot(&self) -> Option<u32> {
        self.slot
    }
    fn condition(&self) -> Condition {
        self.condition
    }
    fn expires(&self) -> Moment {
        self.expires
    }
}

/// What a lease is made from: an ask, at once or when its turn comes.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub(super) token: Token,
    pub(super) mode: Mode,
    pub(super) ttl: Duration,
    pub(super) block: u32,
    pub(super) value: Option<Value>,
}

impl From<&Ask> for Wish {
    fn from(ask: &Ask) -> Self {
        Self {
            token: ask.token.clone(),
            mode: ask.mode,
            ttl: ask.ttl,
            block: ask.block,
            value: ask.value.clone(),
        }
    }
}

/// A place in the queue.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) seq: i64,
    pub(super) wish: Wish,
    pub(super) client: i64,
    pub(super) since: Moment,
    pub(super) expires: Moment,
}

/// The columns of [`Place::read`], in its order.
macro_rules! place_columns {
    () => {
        "p.token, p.who, p.mode, p.seq, p.ttl_us, p.block, p.client, p.since_us, p.expires_us, \
         p.value"
    };
}
pub(super) use place_columns;

impl Place {
    /// Reads a place from the columns that begin at `at`.
    pub(super) fn read(row: &Row<'_>, at: usize) -> SqlResult<Self> {
        Ok(Self {
            seq: row.get(at + 3)?,
            wish: Wish {
                token: token(row, at)?,
                mode: mode(row, at + 2)?,
                ttl: Duration::from_micros(row.get::<_, i64>(at + 4)?.cast_unsigned()),
                block: row.get(at + 5)?,
                value: value(row, at + 9)?,
            },
            client: row.get(at + 6)?,
            since: moment(row, at + 7)?,
            expires: moment(row, at + 8)?,
        })
    }

    pub(super) fn view(&self, now: Moment) -> WaiterView {
        WaiterView {
            who: self.wish.token.who().clone(),
            token_prefix: self.wish.token.prefix(),
            mode: self.wish.mode,
            waited: now.since(self.since),
        }
    }
}

/// The random part of a token as it is stored: who it belongs to stands in a column of its own.
pub(super) fn key(token: &Token) -> [u8; 16] {
    token.random().to_be_bytes()
}

fn token(row: &Row<'_>, at: usize) -> SqlResult<Token> {
    let who = Arc::from(row.get_ref(at + 1)?.as_str()?);
    Ok(Token::new(u128::from_be_bytes(row.get(at)?), who))
}

pub(super) fn name(row: &Row<'_>, at: usize) -> SqlResult<Name> {
    Name::new(row.get_ref(at)?.as_str()?).map_err(|e| unexpected(at, Type::Text, e))
}

pub(super) fn value(row: &Row<'_>, at: usize) -> SqlResult<Option<Value>> {
    let bytes = row.get_ref(at)?.as_blob_or_null()?;
    bytes.map(Value::new).transpose().map_err(|e| unexpected(at, Type::Blob, e))
}

pub(super) fn fence(row: &Row<'_>, at: usize) -> SqlResult<Fence> {
    Ok(Fence::new(row.get::<_, i64>(at)?.cast_unsigned()))
}

fn moment(row: &Row<'_>, at: usize) -> SqlResult<Moment> {
    let micros = row.get::<_, i64>(at)?.cast_unsigned();
    Ok(Moment::from_nanos(micros.saturating_mul(1_000)))
}

/// A moment as it is stored.
pub(super) fn micros(moment: Moment) -> i64 {
    (moment.as_nanos() / 1_000).cast_signed()
}

/// A length of time as it is stored.
pub(super) fn length_us(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// A length of time in the milliseconds that are shown.
pub(super) fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

fn mode(row: &Row<'_>, at: usize) -> SqlResult<Mode> {
    let code: i64 = row.get(at)?;
    match code {
        0 => Ok(Mode::Exclusive),
        -1 => Ok(Mode::Shared),
        capacity => u32::try_from(capacity)
            .map(|capacity| Mode::Permit { capacity })
            .map_err(|e| unexpected(at, Type::Integer, e)),
    }
}

/// A mode as it is stored.
pub(super) fn mode_code(mode: Mode) -> i64 {
    match mode {
        Mode::Exclusive => 0,
        Mode::Shared => -1,
        Mode::Permit { capacity } => capacity.into(),
    }
}

fn condition(row: &Row<'_>, at: usize) -> SqlResult<Condition> {
    match row.get(at)? {
        0 => Ok(Condition::Sound),
        1 => Ok(Condition::Broken),
        2 => Ok(Condition::Kept),
        other => Err(rusqlite::Error::IntegralValueOutOfRange(at, other)),
    }
}

/// A condition as it is stored.
pub(super) fn condition_code(condition: Condition) -> i64 {
    match condition {
        Condition::Sound => 0,
        Condition::Broken => 1,
        Condition::Kept => 2,
    }
}

fn unexpected(
    at: usize,
    kind: Type,
    error: impl Into<Box<dyn error::Error + Send + Sync>>,
) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(at, kind, error.into())
}
