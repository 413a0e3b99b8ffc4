//! Operations as arguments of the database's functions.

use std::{collections::HashMap, error, time::Duration};

use tokio_postgres::types::{IsNull, ToSql, Type, private::BytesMut, to_sql_checked};

use crate::{
    Mode, Token,
    store::{Ask, IfBusy, Operation},
};

/// Kinds of operations, as `submit` knows them.
mod kind {
    pub(super) const ASK_TELL: i16 = 1;
    pub(super) const ASK_QUEUE: i16 = 2;
    pub(super) const RENEW: i16 = 3;
    pub(super) const RELEASE: i16 = 4;
    pub(super) const SETTLE: i16 = 5;
}

/// The random part of a token: who it belongs to stands in a column of its own.
#[derive(Debug)]
pub(super) struct Key([u8; 16]);

impl From<&Token> for Key {
    fn from(token: &Token) -> Self {
        Self(token.random().to_be_bytes())
    }
}

impl ToSql for Key {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn error::Error + Sync + Send>> {
        self.0.as_slice().to_sql(ty, out)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::BYTEA
    }

    to_sql_checked!();
}

/// One value with its type.
pub(super) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// A batch, column by column.
#[derive(Debug, Default)]
pub(super) struct Columns<'a> {
    /// Where each row's operation stands in the batch.
    pub(super) places: Vec<usize>,
    /// How many of the first rows may be of the simple kinds.
    pub(super) simple: i32,
    kinds: Vec<i16>,
    names: Vec<&'a str>,
    tokens: Vec<Key>,
    whos: Vec<&'a str>,
    modes: Vec<i32>,
    spans: Vec<i64>,
    blocks: Vec<i32>,
    /// For how long a name stays blocked after its lease ran out: not at all. The function has a parameter for it.
    delays: Vec<i64>,
    contents: Vec<Option<&'a [u8]>>,
}

impl<'a> Columns<'a> {
    /// The operations at these places of a batch, those on one name next to each other and in their order.
    pub(super) fn of(batch: &'a [Operation], places: &[usize], waits: bool) -> Self {
        let mut counts: HashMap<&str, u32> = HashMap::with_capacity(places.len());
        for place in places {
            *counts.entry(batch[*place].name()).or_default() += 1;
        }
        let is_simple = |place: &usize| {
            !waits && is_plain(&batch[*place]) && counts[&**batch[*place].name()] == 1
        };
        let mut columns = Self::default();
        let (simple, mut rest): (Vec<usize>, Vec<usize>) =
            places.iter().partition(|at| is_simple(at));
        // All transactions that wait for rows take them in this order, so that none waits for one that waits for it.
        rest.sort_by(|a, b| batch[*a].name().cmp(batch[*b].name()));
        columns.simple = i32::try_from(simple.len()).unwrap_or(0);
        for place in simple.into_iter().chain(rest) {
            columns.places.push(place);
            columns.push(&batch[place]);
        }
        columns
    }

    /// Names that are to be settled.
    pub(super) fn to_settle(names: &'a [String]) -> Self {
        let mut columns = Self::default();
        for name in names {
            columns.row(kind::SETTLE, name, Key([0; 16]), "", 0);
        }
        columns
    }

    fn push(&mut self, operation: &'a Operation) {
        let name = operation.name();
        match operation {
            Operation::Ask(ask) => {
                let kind = match ask.if_busy {
                    IfBusy::Tell => kind::ASK_TELL,
                    IfBusy::Queue => kind::ASK_QUEUE,
                };
                self.row(kind, name, Key::from(&ask.token), ask.token.who(), micros(ask.ttl));
                *last(&mut self.modes) = mode_code(ask.mode);
                *last(&mut self.blocks) = number(ask.block);
                *last(&mut self.contents) = content(ask);
            }
            Operation::Renew(renew) => {
                self.row(kind::RENEW, name, Key::from(&renew.token), "", micros(renew.ttl));
            }
            Operation::Release(release) => {
                self.row(kind::RELEASE, name, Key::from(&release.token), "", micros(release.keep));
            }
        }
    }

    fn row(&mut self, kind: i16, name: &'a str, token: Key, who: &'a str, span: i64) {
        self.kinds.push(kind);
        self.names.push(name);
        self.tokens.push(token);
        self.whos.push(who);
        self.modes.push(0);
        self.spans.push(span);
        self.blocks.push(0);
        self.delays.push(0);
        self.contents.push(None);
    }

    pub(super) fn params(&self) -> [Param<'_>; 9] {
        [
            (&self.kinds, Type::INT2_ARRAY),
            (&self.names, Type::TEXT_ARRAY),
            (&self.tokens, Type::BYTEA_ARRAY),
            (&self.whos, Type::TEXT_ARRAY),
            (&self.modes, Type::INT4_ARRAY),
            (&self.spans, Type::INT8_ARRAY),
            (&self.blocks, Type::INT4_ARRAY),
            (&self.delays, Type::INT8_ARRAY),
            (&self.contents, Type::BYTEA_ARRAY),
        ]
    }
}

fn last<T>(column: &mut [T]) -> &mut T {
    column.last_mut().expect("BUG: a row was begun")
}

/// Whether the database may carry it out together with all others of its like.
fn is_plain(operation: &Operation) -> bool {
    match operation {
        Operation::Ask(ask) => ask.mode == Mode::Exclusive,
        Operation::Renew(_) => true,
        Operation::Release(release) => release.keep.is_zero(),
    }
}

pub(super) fn content(ask: &Ask) -> Option<&[u8]> {
    ask.value.as_ref().map(|value| value.as_bytes())
}

pub(super) fn number(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// A mode as it is stored.
pub(super) fn mode_code(mode: Mode) -> i32 {
    match mode {
        Mode::Exclusive => 0,
        Mode::Shared => -1,
        Mode::Permit { capacity } => number(capacity),
    }
}

/// Rounded up: a lease never ends before its time.
pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos().div_ceil(1_000)).unwrap_or(i64::MAX)
}
