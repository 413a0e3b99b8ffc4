//! The small script: which operations are for it, how they travel, and what it answers.
//!
//! It does what is usual, in fewer calls to the server than the careful script, and for operations of one kind on different
//! names in fewer still. What it finds unusual it leaves as it is and answers as odd; the careful script then does it.

use std::time::Duration;

use redis::Cmd;

use super::{
    answers::{Answers, IsForeign, plainly_granted},
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
        Operation::Ask(ask) => {
            ask.names.len() == 1 && ask.mode == Mode::Exclusive && ask.lock_delay.is_zero()
        }
        Operation::Renew(renew) => renew.block == 0,
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
    match (operations.next(), operations.next()) {
        (Some(Operation::Ask(_)), None) => "a",
        (Some(Operation::Release(_)), None) => "r",
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
                block: None,
            }),
            (_, Operation::Release(_)) => Reply::Released,
            (_, Operation::Ask(_)) => {
                return Some((
                    Err(super::answers::unexpected(&redis::Value::Nil)),
                    IsForeign(false),
                ));
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
        let unexpected = || super::answers::unexpected(&redis::Value::Nil);
        let at = usize::try_from(answers.number()? - 1).map_err(|_| unexpected())?;
        let behind = outcomes.get_mut(at..).filter(|behind| !behind.is_empty());
        let behind = behind.ok_or_else(unexpected)?;
        match answers.number()? {
            code::RUN => {
                let many = usize::try_from(answers.number()?).map_err(|_| unexpected())?;
                let mut fence = answers.fence()?;
                for (outcome, at) in behind.iter_mut().zip(at..).take(many) {
                    let Operation::Ask(ask) = operation(at) else { return Err(unexpected()) };
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
