//! Strong mode: releases of tokens whose ask nobody answered.
//!
//! Asks have a connection of their own there. One that was not answered may still be on its way when that connection is given
//! up, until the next one has ended it at the server. A release over the connection that carries everything would overtake
//! it, and what it then takes would be nobody's for a whole TTL. So it goes over the asks' own connection.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;

use super::{
    calls::Via,
    client::{Client, Unsorted},
    strong::{Line, Strong},
};
use crate::{
    ErrorKind, Token,
    store::{Answer, Batch, Operation},
};

/// How many tokens are remembered: more than ask while a time-out passes. Those that are forgotten last for their TTL.
const KEPT: usize = 4_096;

/// The tokens whose last ask was not answered.
#[derive(Debug, Default)]
pub(super) struct Late(Mutex<VecDeque<Token>>);

impl Late {
    /// Takes note of what came of a batch.
    pub(super) fn note(&self, batch: &Batch, answers: &[Answer]) {
        let mut late = self.0.lock();
        for (operation, answer) in batch.iter().zip(answers) {
            let (token, is_late) = match operation {
                Operation::Ask(ask) => (&ask.token, is_unknown(answer)),
                Operation::Release(release) if answer.is_ok() => (&release.token, false),
                _ => continue,
            };
            // Nearly always there are none.
            if !late.is_empty() {
                late.retain(|other| other != token);
            }
            if is_late {
                if late.len() == KEPT {
                    late.pop_front();
                }
                late.push_back(token.clone());
            }
        }
    }

    /// Which releases of a batch are of such a token.
    fn releases(&self, batch: &Batch) -> Vec<usize> {
        let late = self.0.lock();
        let is_late = |operation: &Operation| match operation {
            Operation::Release(release) => late.contains(&release.token),
            _ => false,
        };
        (0..batch.len()).filter(|place| is_late(&batch[*place])).collect()
    }
}

fn is_unknown(answer: &Answer) -> bool {
    answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Indeterminate)
}

impl Client {
    /// Carries out those releases of a batch that must come after an ask of theirs.
    pub(super) async fn release_late(
        self: &Arc<Self>,
        strong: &Strong,
        batch: &Batch,
        answers: &mut Unsorted,
    ) {
        let places = strong.late.releases(batch);
        if places.is_empty() {
            return;
        }
        let parts = self.split(batch, places.into_iter());
        let via = Via::Line { strong, line: Line::Asks, waits: false };
        let outcomes = self.carry_out(batch, &parts, via).await;
        self.read_all(batch, &parts, outcomes, answers);
    }
}
