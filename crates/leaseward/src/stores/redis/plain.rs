//! The small script: which operations are for it, how they travel, and what it answers.
//!
//! It does what is usual, in fewer calls to the server than the careful script, and for operations of one kind on different
//! names in fewer still. What it finds unusual it leaves as it is and answers as odd; the careful script then does it.

use std::time::Duration;

use redis::Cmd;

use super::{
    answers::{Answers, IsForeign, plainly_granted, unexpected},
    script::code,
    wire::{millis, text_of, write_value},
};
use crate::{
    Error, Fence, Mode, Value,
    store::{Answer, Ask, Evidence, IfBusy, Operation, Renewal, Reply},
};

/// A run is looked at by one call to the server, and Lua passes on no more than a few thousand words at once.
const RUN_MAX: usize = 1_000;

/// Whether an operation is of the usual kind.
pub(super) fn is_plain(operation: &Operation) -> bool {
    match operation {
        Operation::Ask(ask) => ask.mode == Mode::Exclusive,
        Operation::Renew(_) => true,
        Operation::Release(release) => release.keep.is_zero(),
    }
}

/// Where an operation stands among those of different names.
pub(super) fn rank(operation: &Operation) -> u8 {
    match operation {
        Operation::Ask(_) => 0,
        Operation::Renew(_) => 1,
        Operation::Release(_) => 2,
    }
}

/// What the script is told of a call beforehand.
pub(super) fn outline<'a>(
    mut operations: impl Iterator<Item = &'a Operation>,
    is_distinct: bool,
) -> &'static str {
    match (operations.next(), operations.next(), operations.next()) {
        (Some(Operation::Ask(_)), None, _) => "a",
        (Some(Operation::Release(_)), None, _) => "r",
        (Some(Operation::Release(release)), Some(Operation::Ask(ask)), None)
            if ask.if_busy == IfBusy::Queue && ask.name == release.name =>
        {
            "h"
        }
        _ if is_distinct => "1",
        _ => "0",
    }
}

/// What the operations of a run have in common.
#[derive(Clone, Copy, PartialEq)]
enum Kind<'a> {
    Ask { if_busy: IfBusy, ttl: Duration, value: Option<&'a Value>, block: u32 },
    Renew { ttl: Duration },
    Release,
}

impl<'a> Kind<'a> {
    fn of(operation: &'a Operation) -> Self {
        match operation {
            Operation::Ask(Ask { if_busy, ttl, value, block, .. }) => {
                Self::Ask { if_busy: *if_busy, ttl: *ttl, value: value.as_ref(), block: *block }
            }
            Operation::Renew(renew) => Self::Renew { ttl: renew.ttl },
            Operation::Release(_) => Self::Release,
        }
    }

    fn write(self, count: usize, command: &mut Cmd) {
        match self {
            Self::Ask { if_busy, ttl, value, block } => {
                let letter = if if_busy == IfBusy::Queue { "q" } else { "a" };
                command.arg(letter).arg(count).arg(millis(ttl));
                write_value(value, command);
                command.arg(block);
            }
            Self::Renew { ttl } => {
                command.arg("n").arg(count).arg(millis(ttl));
            }
            Self::Release => {
                command.arg("r").arg(count);
            }
        }
    }
}

/// Writes operations, in runs.
pub(super) fn write<'a>(
    operations: impl Iterator<Item = &'a Operation> + Clone,
    command: &mut Cmd,
    scratch: &mut String,
) {
    let mut rest = operations.peekable();
    while let Some(first) = rest.peek() {
        let kind = Kind::of(first);
        let alike = |operation: &&Operation| Kind::of(operation) == kind;
        let count = rest.clone().take(RUN_MAX).take_while(alike).count();
        kind.write(count, command);
        for operation in rest.by_ref().take(count) {
            let token = match operation {
                Operation::Ask(ask) => &ask.token,
                Operation::Renew(renew) => &renew.token,
                Operation::Release(release) => &release.token,
            };
            command.arg(text_of(token, scratch));
        }
    }
}

/// What became of an operation.
#[derive(Debug)]
pub(super) enum Outcome {
    /// What the script does not mention: renewed or released.
    Plain,
    /// An ask that was granted.
    Granted(Fence),
    /// Unchanged: for the careful script.
    Odd,
    Answered(Answer, IsForeign),
}

impl Outcome {
    /// The answer, and whether the name is held by a client of another library; nothing if it is odd.
    pub(super) fn answer(self, operation: &Operation) -> Option<(Answer, IsForeign)> {
        let reply = match (self, operation) {
            (Self::Odd, _) => return None,
            (Self::Answered(answer, foreign), _) => return Some((answer, foreign)),
            (Self::Granted(first), Operation::Ask(ask)) => plainly_granted(first, ask),
            (_, Operation::Renew(renew)) => Reply::Renewed(Renewal {
                ttl: renew.ttl,
                evidence: Evidence::ThisRequest,
                waiters: 0,
            }),
            (_, Operation::Release(_)) => Reply::Released,
            (_, Operation::Ask(_)) => {
                return Some((Err(unexpected(&redis::Value::Nil)), IsForeign(false)));
            }
        };
        Some((Ok(reply), IsForeign(false)))
    }
}

/// Reads what became of the operations of a call, which stand in their order.
///
/// # Errors
/// If it says what this does not understand: then nothing is known of any of them.
pub(super) fn read<'a>(
    answers: &mut Answers,
    count: usize,
    operation: impl Fn(usize) -> &'a Operation,
) -> Result<Vec<Outcome>, Error> {
    let mut outcomes: Vec<_> = std::iter::repeat_with(|| Outcome::Plain).take(count).collect();
    while !answers.is_at_end() {
        let nonsense = || unexpected(&redis::Value::Nil);
        let at = usize::try_from(answers.number()? - 1).map_err(|_| nonsense())?;
        let behind = outcomes.get_mut(at..).filter(|behind| !behind.is_empty());
        let behind = behind.ok_or_else(nonsense)?;
        match answers.number()? {
            code::RUN => {
                let many = usize::try_from(answers.number()?).map_err(|_| nonsense())?;
                let mut fence = answers.fence()?;
                for (outcome, at) in behind.iter_mut().zip(at..).take(many) {
                    let Operation::Ask(ask) = operation(at) else { return Err(nonsense()) };
                    *outcome = Outcome::Granted(fence);
                    fence = Fence::new(fence.get() + u64::from(ask.block));
                }
            }
            code::ODD => behind[0] = Outcome::Odd,
            code => {
                let (answer, foreign) = answers.next_with(code, operation(at));
                behind[0] = Outcome::Answered(answer, foreign);
            }
        }
    }
    Ok(outcomes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use redis::Value as Said;

    use super::*;
    use crate::{
        Name, Token,
        store::{Release, Renew},
    };

    fn name(at: usize) -> Name {
        Name::new(format!("n{at}")).expect("a name")
    }

    fn token(at: usize) -> Token {
        Token::new(at as u128, Arc::from("h:1"))
    }

    fn ask(at: usize, ttl_ms: u64, block: u32) -> Operation {
        Operation::Ask(Ask {
            name: name(at),
            token: token(at),
            mode: Mode::Exclusive,
            ttl: Duration::from_millis(ttl_ms),
            if_busy: IfBusy::Queue,
            block,
            value: None,
        })
    }

    fn renew(at: usize) -> Operation {
        let ttl = Duration::from_secs(1);
        Operation::Renew(Renew { name: name(at), token: token(at), ttl })
    }

    fn release(at: usize) -> Operation {
        Operation::Release(Release { name: name(at), token: token(at), keep: Duration::ZERO })
    }

    fn said(numbers: &[i64]) -> Answers {
        let numbers = numbers.iter().map(|number| Said::Int(*number)).collect();
        Answers::new(Said::Array(numbers)).expect("a list")
    }

    #[test]
    fn operations_with_the_same_fields_are_one_run() {
        let batch = [ask(0, 10, 1), ask(1, 10, 1), ask(2, 20, 1), renew(3), release(4), release(5)];
        let mut command = Cmd::new();
        write(batch.iter(), &mut command, &mut String::new());
        let words: Vec<_> = command
            .args_iter()
            .map(|word| match word {
                redis::Arg::Simple(word) => String::from_utf8_lossy(word).into_owned(),
                other => panic!("{other:?}"),
            })
            .collect();
        let token = |at: usize| token(at).reveal();
        let expected = [
            "q",
            "2",
            "10",
            "",
            "1",
            &token(0),
            &token(1),
            "q",
            "1",
            "20",
            "",
            "1",
            &token(2),
            "n",
            "1",
            "1000",
            &token(3),
            "r",
            "2",
            &token(4),
            &token(5),
        ];
        assert_eq!(words, expected);
    }

    #[test]
    fn a_release_with_an_ask_behind_it_is_told_as_one_thing() {
        let told = |batch: &[Operation], is_distinct| outline(batch.iter(), is_distinct);
        let Operation::Ask(queueing) = ask(0, 10, 1) else { unreachable!() };
        let trying = Operation::Ask(Ask { if_busy: IfBusy::Tell, ..queueing });
        assert_eq!(told(&[release(0), ask(0, 10, 1)], false), "h");
        assert_eq!(told(&[release(0), trying], false), "0");
        assert_eq!(told(&[release(0), ask(1, 10, 1)], false), "0");
        assert_eq!(told(&[ask(0, 10, 1), release(0)], false), "0");
        assert_eq!(told(&[release(0), ask(0, 10, 1), release(0)], false), "0");
        assert_eq!(told(&[release(0)], false), "r");
        assert_eq!(told(&[ask(0, 10, 1)], false), "a");
        assert_eq!(told(&[ask(0, 10, 1), ask(1, 10, 1)], true), "1");
    }

    #[test]
    fn what_is_not_mentioned_went_plainly_and_the_later_word_counts() {
        let batch = [ask(0, 10, 2), ask(1, 10, 2), ask(2, 10, 2), renew(3), release(4), release(5)];
        let mut answers = said(&[1, code::RUN, 3, 100, 2, code::ODD, 6, code::ODD]);
        let outcomes = read(&mut answers, batch.len(), |at| &batch[at]).expect("understood");
        let mut answers = outcomes.into_iter().zip(&batch).map(|(outcome, operation)| {
            outcome.answer(operation).map(|(answer, _)| answer.expect("no error"))
        });
        let mut next = || answers.next().expect("as many as operations");
        for fence in [Some(100), None, Some(104)] {
            match (fence, next()) {
                (Some(fence), Some(Reply::Granted(grant))) => {
                    assert_eq!((grant.block.first.get(), grant.block.len), (fence, 2));
                }
                (None, None) => {}
                (fence, other) => panic!("{fence:?}: {other:?}"),
            }
        }
        assert!(matches!(next(), Some(Reply::Renewed(renewal)) if renewal.waiters == 0));
        assert!(matches!(next(), Some(Reply::Released)));
        assert!(next().is_none(), "odd");
    }

    #[test]
    fn the_most_usual_is_said_in_few_words() {
        let text = |text: &str| Said::BulkString(text.into());
        let answers = |said, batch: &[Operation]| {
            let mut said = Answers::of_plain(said).expect("understood");
            let outcomes = read(&mut said, batch.len(), |at| &batch[at]).expect("understood");
            let answer = |(outcome, operation): (Outcome, &Operation)| {
                outcome.answer(operation).expect("not odd").0.expect("no error")
            };
            outcomes.into_iter().zip(batch).map(answer).collect::<Vec<_>>()
        };
        let granted = answers(text("1794813737088715"), &[ask(0, 10, 1)]);
        let Reply::Granted(grant) = &granted[0] else { panic!("{granted:?}") };
        assert_eq!(grant.block.first.get(), 1_794_813_737_088_715);
        let released = answers(Said::Nil, &[release(0), release(1)]);
        assert!(released.iter().all(|reply| matches!(reply, Reply::Released)), "{released:?}");
        let turned = answers(text("100 7 2000 h 1:2"), &[release(0), ask(0, 10, 1)]);
        let [Reply::Released, Reply::Queued(place)] = &turned[..] else { panic!("{turned:?}") };
        assert_eq!((place.last_fence.get(), place.standing.ahead), (100, 7));
        assert_eq!(place.standing.free_in, Some(Duration::from_secs(2)));
        let holder = place.standing.holder.as_ref().expect("somebody holds it");
        assert_eq!((&*holder.who, holder.remaining), ("h 1:2", Some(Duration::from_secs(2))));
        for nonsense in ["", "x", "100 7", "100 7 2000", "100 x 2000 h"] {
            assert!(Answers::of_plain(text(nonsense)).is_err(), "{nonsense}");
        }
    }

    #[test]
    fn nonsense_is_an_error_and_an_ask_is_never_granted_by_silence() {
        let batch = [ask(0, 10, 1), release(1)];
        let nonsense: [&[i64]; 5] = [
            &[3, code::ODD],
            &[0, code::ODD],
            &[1],
            &[2, code::RUN, 1, 100],
            &[1, code::RUN, -1, 7],
        ];
        for numbers in nonsense {
            let read = read(&mut said(numbers), batch.len(), |at| &batch[at]);
            assert!(read.is_err(), "{numbers:?}: {read:?}");
        }
        let outcomes = read(&mut said(&[]), batch.len(), |at| &batch[at]).expect("understood");
        let first = outcomes.into_iter().next().expect("two").answer(&batch[0]);
        assert!(first.is_some_and(|(answer, _)| answer.is_err()));
    }
}
