//! What comes alone goes a short way through the database: functions of their own for the two operations that nearly all
//! work consists of, asking for an exclusive lease and giving one back.

use tokio_postgres::{Row, types::Type};

use super::{
    client::Client,
    lines::Failure,
    wire::{self, Key, Param},
};
use crate::{
    Mode,
    store::{Ask, IfBusy, Operation, Release},
};

/// For how long a name stays blocked after its lease ran out: not at all. The function has a parameter for it.
const NO_DELAY: i64 = 0;

/// The statements, for the schema that the store's URL names.
#[derive(Debug)]
pub(super) struct Statements {
    take: String,
    give_back: String,
}

impl Statements {
    /// `call` writes the call of a function with so many arguments.
    pub(super) fn new(call: impl Fn(&str, usize) -> String) -> Self {
        Self { take: call("take", 10), give_back: call("give_back", 4) }
    }
}

impl Client {
    /// Sends a batch of one the short way, if there is one for it.
    pub(super) async fn send_lone(&self, batch: &[Operation]) -> Option<Result<Vec<Row>, Failure>> {
        match batch {
            [Operation::Ask(ask)] if ask.mode == Mode::Exclusive => Some(self.take(ask).await),
            [Operation::Release(release)] if release.keep.is_zero() => {
                Some(self.give_back(release).await)
            }
            _ => None,
        }
    }

    async fn take(&self, ask: &Ask) -> Result<Vec<Row>, Failure> {
        let (queues, name) = (ask.if_busy == IfBusy::Queue, ask.name.as_str());
        let (token, who) = (Key::from(&ask.token), &**ask.token.who());
        let ttl = wire::micros(ask.ttl);
        let params: [Param<'_>; 10] = [
            (&self.me, Type::INT8),
            (&self.late(), Type::INT8),
            (&queues, Type::BOOL),
            (&name, Type::TEXT),
            (&token, Type::BYTEA),
            (&who, Type::TEXT),
            (&ttl, Type::INT8),
            (&wire::number(ask.block), Type::INT4),
            (&NO_DELAY, Type::INT8),
            (&wire::content(ask), Type::BYTEA),
        ];
        self.lines.call(&self.lone.take, &params).await
    }

    async fn give_back(&self, release: &Release) -> Result<Vec<Row>, Failure> {
        let (name, token) = (release.name.as_str(), Key::from(&release.token));
        let params: [Param<'_>; 4] = [
            (&self.me, Type::INT8),
            (&self.late(), Type::INT8),
            (&name, Type::TEXT),
            (&token, Type::BYTEA),
        ];
        self.lines.call(&self.lone.give_back, &params).await
    }
}
