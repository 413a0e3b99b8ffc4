//! The statement that carries out a batch: takes locks with their fences, and gives locks back.
//!
//! Fences: a sequence gives each caller another number, in ever growing order, and a lock's holder is alone between
//! taking it and giving it back; so of one lock a later fence is larger. What raises the sequence (`setval`) could also
//! lower it, if others took numbers between its looking and its setting. Hence the *gate*, an advisory lock of its own:
//! held shared, to the end of the statement, by whoever takes a number; held alone by whoever raises. Nobody waits for
//! anything else while holding the gate, so it cannot be part of a deadlock.

use super::key::{self, Slot};
use crate::Mode;

/// The sequence of a schema.
pub(super) fn sequence(schema: &str) -> String {
    format!("{schema}.advisory_fences")
}

/// The key of the gate to a schema's sequence. No namespace holds a `.`, so no name has it.
pub(super) fn gate(schema: &str) -> i64 {
    key::hash("leaseward.gate", schema)
}

/// What is done to one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing: the session is there.
    Probe,
    /// Takes the lock, and fences if it was free.
    Take(Slot, Mode, u32),
    /// Only fences.
    Fence(u32),
    /// Gives the lock back.
    Unlock(Slot, Mode),
}

impl Step {
    pub(super) fn code(self) -> i16 {
        let code = |slot, one, two| if matches!(slot, Slot::One(_)) { one } else { two };
        match self {
            Self::Probe => 0,
            Self::Fence(_) => 1,
            Self::Take(slot, Mode::Shared, _) => code(slot, 3, 7),
            Self::Take(slot, _, _) => code(slot, 2, 6),
            Self::Unlock(slot, Mode::Shared) => code(slot, 5, 9),
            Self::Unlock(slot, _) => code(slot, 4, 8),
        }
    }

    pub(super) fn key(self) -> i64 {
        match self {
            Self::Take(slot, ..) | Self::Unlock(slot, _) => slot.packed(),
            Self::Probe | Self::Fence(_) => 0,
        }
    }

    pub(super) fn block(self) -> i32 {
        match self {
            Self::Take(_, _, block) | Self::Fence(block) => {
                i32::try_from(block).unwrap_or(i32::MAX).max(1)
            }
            Self::Probe | Self::Unlock(..) => 1,
        }
    }
}

/// What a statement may need of the sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fences {
    /// Nothing: it only gives locks back, which works although the sequence is gone.
    None,
    /// Numbers one by one, with the gate held shared.
    Single,
    /// Runs of them, made by `setval`, with the gate held alone.
    Blocks,
}

impl Fences {
    /// What these steps need.
    pub(super) fn of(steps: &[Step]) -> Self {
        let takes = |step: &Step| matches!(step, Step::Take(..) | Step::Fence(_));
        match steps.iter().filter(|step| takes(step)).map(|step| step.block()).max() {
            None => Self::None,
            Some(1) => Self::Single,
            Some(_) => Self::Blocks,
        }
    }
}

/// The text of it: one row a step, in their order. Null if another connection of a pooler carries it out, and then
/// nothing is done; else the first fence, or 0 if the lock was not free; for the other steps, whether they were done.
pub(super) fn text(schema: &str, fences: Fences) -> String {
    let (gate, sequence) = (gate(schema), sequence(schema));
    let two = "(t.key >> 32)::int, t.key::bit(32)::int";
    let take = |fence: String| {
        format!(
            "WHEN 1 THEN {fence} \
             WHEN 2 THEN CASE WHEN pg_try_advisory_lock(t.key) THEN {fence} ELSE 0 END \
             WHEN 3 THEN CASE WHEN pg_try_advisory_lock_shared(t.key) THEN {fence} ELSE 0 END \
             WHEN 6 THEN CASE WHEN pg_try_advisory_lock({two}) THEN {fence} ELSE 0 END \
             WHEN 7 THEN CASE WHEN pg_try_advisory_lock_shared({two}) THEN {fence} ELSE 0 END"
        )
    };
    let takes = match fences {
        Fences::None => String::new(),
        Fences::Single => take(format!(
            "CASE WHEN pg_advisory_xact_lock_shared({gate})::text IS NOT NULL THEN nextval('{sequence}') END"
        )),
        Fences::Blocks => take(format!(
            "CASE WHEN pg_advisory_xact_lock({gate})::text IS NOT NULL THEN \
             setval('{sequence}', nextval('{sequence}') + t.block - 1) - t.block + 1 END"
        )),
    };
    format!(
        "SELECT CASE WHEN pg_backend_pid() <> $1 THEN NULL ELSE CASE t.step WHEN 0 THEN 1::bigint {takes} \
         WHEN 4 THEN pg_advisory_unlock(t.key)::int \
         WHEN 5 THEN pg_advisory_unlock_shared(t.key)::int \
         WHEN 8 THEN pg_advisory_unlock({two})::int \
         WHEN 9 THEN pg_advisory_unlock_shared({two})::int END END \
         FROM unnest($2::smallint[], $3::bigint[], $4::int[]) AS t(step, key, block)"
    )
}
