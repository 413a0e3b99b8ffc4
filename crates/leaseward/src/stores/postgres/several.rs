//! Asking for several names at once.

use tokio_postgres::{Row, types::Type};

use super::{
    answers::{self, Outcome, Said},
    client::{Client, Progress, SENDS_MAX, in_the_way},
    error::Class,
    wire::{self, Key, Param},
};
use crate::{
    Error, Name,
    store::{Answer, Ask, Grant, Operation, Reply},
};

impl Client {
    /// All names or none.
    pub(super) async fn ask_all(&self, progress: &mut Progress<'_>, ask: &Ask) -> Answer {
        let names: Vec<&str> = ask.names.iter().map(Name::as_str).collect();
        let (token, who) = (Key::from(&ask.token), &**ask.token.who());
        let (mode, span) = (wire::mode_code(ask.mode), wire::micros(ask.ttl));
        let (block, delay) = (wire::number(ask.block), wire::micros(ask.lock_delay));
        let content = wire::content(ask);
        let params: [Param<'_>; 8] = [
            (&names, Type::TEXT_ARRAY),
            (&token, Type::BYTEA),
            (&who, Type::TEXT),
            (&mode, Type::INT4),
            (&span, Type::INT8),
            (&block, Type::INT4),
            (&delay, Type::INT8),
            (&content, Type::BYTEA),
        ];
        let operation = Operation::Ask(ask.clone());
        for send in 0..SENDS_MAX {
            let rows = match self.call(&self.ask_all_sql, send > 0, None, &params).await {
                Ok(rows) => rows,
                Err(failure) if failure.class == Some(Class::Conflict) => continue,
                Err(failure) => return Err(failure.error),
            };
            if let Some(answer) = self.read_all(&rows, &operation, progress)? {
                return answer;
            }
        }
        Err(in_the_way())
    }

    /// The answers to an ask for several names as one; `None` if it has to be sent again.
    fn read_all(
        &self,
        rows: &[Row],
        operation: &Operation,
        progress: &mut Progress<'_>,
    ) -> Result<Option<Answer>, Error> {
        let mut all: Option<Answer> = None;
        for row in rows {
            match answers::read(row, |_| Some(operation))? {
                Said::To(_, Outcome::InFlight) => return Ok(None),
                Said::To(_, Outcome::Answer(answer)) => match (&mut all, answer) {
                    (Some(Ok(Reply::Granted(first))), Ok(Reply::Granted(next))) => {
                        first.blocks.extend(next.blocks);
                    }
                    // Of one name it would be said which permit it is, and how many wait.
                    (_, Ok(Reply::Granted(first))) => {
                        all = Some(Ok(Reply::Granted(Grant { slot: None, waiters: 0, ..first })));
                    }
                    (_, answer) => all = Some(answer),
                },
                Said::Clock(us) => self.database.learn(us, self.clock.now()),
                Said::Late(us) => {
                    self.database.learn(us, self.clock.now());
                    return Ok(None);
                }
                Said::Push(push) => progress.pushes.push(push),
            }
        }
        all.map(Some).ok_or_else(answers::unexpected)
    }
}
