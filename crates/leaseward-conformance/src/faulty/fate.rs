//! What befalls an operation.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use leaseward::store::Operation;
use rand::{RngExt, SeedableRng, rngs::StdRng};

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An ask.
    Ask,
    /// A renewal.
    Renew,
    /// A release.
    Release,
}

impl Kind {
    pub(super) fn of(operation: &Operation) -> Self {
        match operation {
            Operation::Ask(_) => Self::Ask,
            Operation::Renew(_) => Self::Renew,
            Operation::Release(_) => Self::Release,
        }
    }
}

/// What befalls one operation. What holds one back holds back the batch it is in, as a slow line would.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    /// It passes.
    #[default]
    Through,
    /// It is turned away: *unavailable*, nothing happened.
    Refuse,
    /// It never arrives: *indeterminate*, nothing happened.
    LoseRequest,
    /// It is carried out, and the reply never arrives: *indeterminate*.
    LoseReply,
    /// It arrives twice; the second reply counts.
    Repeat,
    /// It waits at the gate before it is carried out.
    HoldRequest,
    /// It is carried out, and the reply waits at the gate.
    HoldReply,
    /// It is carried out, and the reply waits at the gate, where it is lost: *indeterminate*.
    HoldAndLoseReply,
    /// It is slow, both ways.
    Delay(Duration),
}

/// What befalls pushes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PushFate {
    /// They arrive.
    #[default]
    Through,
    /// They never arrive.
    Drop,
    /// They are kept until they are delivered.
    Hold,
}

/// Of a hundred operations of a bad line, so many meet each fate.
const CHAOS: [(u32, Fate); 5] = [
    (12, Fate::LoseReply),
    (8, Fate::LoseRequest),
    (4, Fate::Refuse),
    (10, Fate::Repeat),
    (10, Fate::Delay(Duration::from_millis(3))),
];

/// Of a hundred pushes of a bad line, so many are lost.
const CHAOS_PUSHES_LOST: u32 = 30;

#[derive(Default)]
pub(super) struct Script {
    planned: HashMap<Kind, VecDeque<Fate>>,
    otherwise: Fate,
    chaos: Option<StdRng>,
}

impl Script {
    pub(super) fn plan(&mut self, kind: Kind, fates: impl IntoIterator<Item = Fate>) {
        self.planned.entry(kind).or_default().extend(fates);
    }

    pub(super) fn otherwise(&mut self, fate: Fate) {
        self.otherwise = fate;
    }

    pub(super) fn chaos(&mut self, seed: u64) {
        self.chaos = Some(StdRng::seed_from_u64(seed));
    }

    pub(super) fn heal(&mut self) {
        *self = Self::default();
    }

    pub(super) fn fate(&mut self, kind: Kind) -> Fate {
        if let Some(fate) = self.planned.get_mut(&kind).and_then(VecDeque::pop_front) {
            return fate;
        }
        let Some(random) = &mut self.chaos else { return self.otherwise };
        let mut roll = random.random_range(0..100);
        for (share, fate) in CHAOS {
            if roll < share {
                return fate;
            }
            roll -= share;
        }
        Fate::Through
    }

    pub(super) fn loses_push(&mut self) -> bool {
        self.chaos.as_mut().is_some_and(|random| random.random_range(0..100) < CHAOS_PUSHES_LOST)
    }
}
