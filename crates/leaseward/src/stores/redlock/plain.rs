//! How operations travel to the script for what is usual: in runs, of which what they have in common is said once.

use std::time::Duration;

use redis::Cmd;

use super::{
    quorum::Ballot,
    wire::{Step, digits, write_terms},
};
use crate::{
    Token, Value,
    store::{Batch, Operation},
    stores::redis::wire::{millis, text_of},
};

/// What the steps of a run have in common.
#[derive(Clone, Copy, PartialEq)]
enum Kind<'a> {
    Ask { ttl: Duration, ballot: Ballot, value: Option<&'a Value> },
    Renew { ttl: Duration },
    Release,
    Undo { first: u64 },
}

/// Where a step stands among those of different names.
pub(super) fn rank(step: &Step, batch: &Batch) -> u8 {
    match kind(step, batch) {
        (Kind::Ask { .. }, _) => 0,
        (Kind::Renew { .. }, _) => 1,
        (Kind::Release, _) => 2,
        (Kind::Undo { .. }, _) => 3,
    }
}

fn kind<'a>(step: &Step, batch: &'a Batch) -> (Kind<'a>, &'a Token) {
    let (at, ballot) = match step {
        Step::Ask(at, ballot) | Step::Undo(at, ballot) => (*at, Some(*ballot)),
        Step::Plain(at) => (*at, None),
        Step::Heal(..) | Step::Look(_) | Step::Break(..) => unreachable!("BUG: it is not plain"),
    };
    match (&batch[at], ballot) {
        (Operation::Ask(ask), Some(ballot)) => {
            let kind = match step {
                Step::Undo(..) => Kind::Undo { first: ballot.first },
                _ => Kind::Ask { ttl: ask.ttl, ballot, value: ask.value.as_ref() },
            };
            (kind, &ask.token)
        }
        (Operation::Renew(renew), None) => (Kind::Renew { ttl: renew.ttl }, &renew.token),
        (Operation::Release(release), None) => (Kind::Release, &release.token),
        _ => unreachable!("BUG: an ask has a ballot, and nothing else has"),
    }
}

/// Writes steps, in runs.
pub(super) fn write(steps: &[Step], batch: &Batch, command: &mut Cmd, scratch: &mut String) {
    let is_alike = |a: &Step, b: &Step| kind(a, batch).0 == kind(b, batch).0;
    for run in steps.chunk_by(is_alike) {
        match kind(&run[0], batch).0 {
            Kind::Ask { ttl, ballot, value } => {
                command.arg("a").arg(run.len());
                write_terms(ttl, ballot, value, command, scratch);
            }
            Kind::Renew { ttl } => {
                command.arg("n").arg(run.len()).arg(millis(ttl));
            }
            Kind::Release => {
                command.arg("r").arg(run.len());
            }
            Kind::Undo { first } => {
                command.arg("u").arg(run.len()).arg(digits(first, scratch));
            }
        }
        for step in run {
            command.arg(text_of(kind(step, batch).1, scratch));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        Mode, Name,
        store::{Ask, IfBusy, Release, Renew},
        stores::redlock::{
            quorum::Vote,
            votes::Reply,
            wire::{By, Call, Care},
        },
    };

    fn name(at: usize) -> Name {
        Name::new(format!("n{at}")).expect("a name")
    }

    fn token(at: usize) -> Token {
        Token::new(at as u128, Arc::from("h:1"))
    }

    fn ask(at: usize) -> Operation {
        Operation::Ask(Ask {
            name: name(at),
            token: token(at),
            mode: Mode::Exclusive,
            ttl: Duration::from_millis(10),
            if_busy: IfBusy::Tell,
            block: 1,
            value: None,
        })
    }

    fn release(at: usize) -> Operation {
        Operation::Release(Release { name: name(at), token: token(at), keep: Duration::ZERO })
    }

    fn renew(at: usize) -> Operation {
        let ttl = Duration::from_secs(1);
        Operation::Renew(Renew { name: name(at), token: token(at), ttl })
    }

    #[test]
    fn steps_are_sorted_by_kind_and_what_is_common_is_said_once() {
        let batch = Arc::new(vec![release(0), ask(1), renew(2), ask(3), release(4), ask(5)]);
        let ballot = |first| Ballot { first, last: first };
        let steps = vec![
            Step::Plain(0),
            Step::Ask(1, ballot(7_000)),
            Step::Plain(2),
            Step::Ask(3, ballot(7_000)),
            Step::Plain(4),
            Step::Ask(5, ballot(8_000)),
        ];
        let call = Call::new(Arc::from("lock:"), batch, Care::Plain, steps);
        let command = call.command(By::Hash, 5);
        let words = command.args_iter().map(|word| match word {
            redis::Arg::Simple(word) => String::from_utf8_lossy(word).into_owned(),
            other => panic!("{other:?}"),
        });
        let words: Vec<_> = words.skip(2).collect();
        let token = |at: usize| token(at).reveal();
        let (seven, eight) = ("0000000000007000", "0000000000008000");
        let names = ["6", "lock:n1", "lock:n3", "lock:n5", "lock:n2", "lock:n0", "lock:n4"];
        let asks = ["a", "2", "10", seven, seven, "600017", "", &token(1), &token(3)];
        let another = ["a", "1", "10", eight, eight, "600018", "", &token(5)];
        let kept = ["n", "1", "1000", &token(2), "r", "2", &token(0), &token(4)];
        let floor = ["0000000000000005"];
        let expected = [&names[..], &floor, &asks, &another, &kept].concat();
        assert_eq!(words, expected);
    }

    #[test]
    fn a_floor_is_told_only_if_some_ballot_is_not_above_it() {
        let ballot = |first| Ballot { first, last: first + 3 };
        let call = |steps| {
            let batch = Arc::new(vec![ask(0), ask(1), renew(2), release(3)]);
            Call::new(Arc::from("lock:"), batch, Care::Careful, steps)
        };
        let asks = call(vec![Step::Ask(0, ballot(8)), Step::Heal(1, ballot(6)), Step::Plain(2)]);
        assert_eq!([4, 5, 6, 7, 8, 9].map(|floor| asks.floor_of(floor)), [0, 0, 6, 7, 8, 9]);
        let grants_nothing = call(vec![Step::Undo(0, ballot(8)), Step::Plain(2), Step::Plain(3)]);
        assert_eq!(grants_nothing.floor_of(9), 0);
    }

    #[test]
    fn one_number_is_a_yes_to_all_that_was_put_and_silence_to_nothing() {
        let batch = Arc::new(vec![ask(0), renew(1), release(2)]);
        let ballot = Ballot { first: 7, last: 7 };
        let steps = vec![Step::Ask(0, ballot), Step::Plain(1), Step::Plain(2)];
        let call = Call::new(Arc::from("lock:"), batch, Care::Plain, steps);
        let votes = |said: redis::Value| {
            let mut reply = Reply::new(said)?;
            call.steps.iter().map(|step| reply.next(&call, step)).collect::<Result<Vec<_>, _>>()
        };
        let usual = votes(redis::Value::Int(14)).expect("understood");
        let [Vote::Granted(granted), Vote::Renewed, Vote::Released] = &usual[..] else {
            panic!("{usual:?}")
        };
        assert_eq!(*granted, ballot);
        for nothing in [vec![], vec![14], vec![14, 14, 14], vec![11]] {
            assert!(votes(redis::Value::BulkString(nothing.clone())).is_err(), "{nothing:?}");
        }
        for nothing in [redis::Value::Nil, redis::Value::Okay, redis::Value::Int(11)] {
            assert!(votes(nothing.clone()).is_err(), "{nothing:?}");
        }
    }
}
