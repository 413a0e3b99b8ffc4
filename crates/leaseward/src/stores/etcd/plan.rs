//! From a batch to rounds: what can go into one transaction. Pure.
//!
//! etcd decides all comparisons of a transaction, nested ones too, before it does anything, and keys made in one
//! transaction share their create revision. So a round has at most one ask for each name; releases may stand before it,
//! because what an ask does not compare but reads it reads after them.

use std::collections::HashMap;

use crate::{
    Name,
    store::{IfBusy, Operation},
};

/// etcd takes 128 operations in a transaction, those of nested ones included; an ask needs three inside.
pub(super) const ROUND_MAX: usize = 100;

/// What a round has of a name so far.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Touched {
    Released,
    Otherwise,
}

/// The rounds of a batch: positions in it, in their order.
pub(super) fn rounds(batch: &[Operation]) -> Vec<Vec<usize>> {
    let mut rounds = Vec::new();
    let mut rest: Vec<usize> = (0..batch.len()).collect();
    while !rest.is_empty() {
        let (round, later) = first(batch, &rest);
        rounds.push(round);
        rest = later;
    }
    rounds
}

fn first(batch: &[Operation], places: &[usize]) -> (Vec<usize>, Vec<usize>) {
    let mut touched: HashMap<&Name, Touched> = HashMap::new();
    let (mut round, mut later) = (Vec::new(), Vec::new());
    for place in places {
        let operation = &batch[*place];
        let joins_releases = match operation {
            Operation::Ask(ask) => ask.if_busy == IfBusy::Queue,
            Operation::Release(_) => true,
            Operation::Renew(_) => false,
        };
        let name = operation.name();
        let fits = match touched.get(name) {
            None => true,
            Some(Touched::Released) => joins_releases,
            Some(Touched::Otherwise) => false,
        };
        let is_release = matches!(operation, Operation::Release(_));
        let how = if is_release && fits { Touched::Released } else { Touched::Otherwise };
        touched.insert(name, how);
        if fits && round.len() < ROUND_MAX {
            round.push(*place);
        } else {
            later.push(*place);
        }
    }
    (round, later)
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::{
        Mode, Token,
        store::{Ask, Release, Renew},
    };

    fn name(text: &str) -> Name {
        Name::new(text).expect("a good name")
    }

    fn token(number: u128) -> Token {
        Token::new(number, Arc::from("me"))
    }

    fn ask(text: &str, if_busy: IfBusy) -> Operation {
        Operation::Ask(Ask {
            name: name(text),
            token: token(1),
            mode: Mode::Exclusive,
            ttl: Duration::from_secs(5),
            if_busy,
            block: 1,
            value: None,
        })
    }

    fn release(text: &str, number: u128) -> Operation {
        let keep = Duration::ZERO;
        Operation::Release(Release { name: name(text), token: token(number), keep })
    }

    fn renew(text: &str) -> Operation {
        let (name, token) = (name(text), token(1));
        Operation::Renew(Renew { name, token, ttl: Duration::from_secs(5) })
    }

    #[test]
    fn different_names_go_together() {
        let batch = [ask("a", IfBusy::Queue), ask("b", IfBusy::Tell), release("c", 1), renew("d")];
        assert_eq!(rounds(&batch), [[0, 1, 2, 3]]);
    }

    #[test]
    fn one_ask_a_name_behind_its_releases() {
        let (queue, tell) = (IfBusy::Queue, IfBusy::Tell);
        let batch = [release("a", 1), ask("a", queue), ask("a", queue), release("a", 2)];
        assert_eq!(rounds(&batch), [vec![0, 1], vec![2], vec![3]]);
        let batch = [release("a", 1), ask("a", tell)];
        assert_eq!(rounds(&batch), [[0], [1]], "it would be compared before the release");
        let batch = [ask("a", tell), ask("a", queue), release("b", 1), release("b", 2)];
        assert_eq!(rounds(&batch), [vec![0, 2, 3], vec![1]]);
    }

    #[test]
    fn rounds_are_bounded() {
        let batch: Vec<_> = (0..250).map(|at| renew(&at.to_string())).collect();
        let sizes: Vec<_> = rounds(&batch).iter().map(Vec::len).collect();
        assert_eq!(sizes, [100, 100, 50]);
    }
}
