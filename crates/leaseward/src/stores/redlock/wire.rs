//! Calls of a node's script, as they travel.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use redis::Cmd;

use super::{
    ballot::ALLOWANCE,
    heal::UnderWay,
    plain,
    quorum::Ballot,
    script::{CAREFUL, PLAIN},
};
use crate::{
    Mode, Name, Value,
    store::{Ask, Batch, Operation},
    stores::redis::{
        script::Script,
        wire::{millis, text_of, write_value},
    },
};

/// One thing for a node to do.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// An ask of the batch, under a ballot.
    Ask(usize, Ballot),
    /// A renewal or release of the batch.
    Plain(usize),
    /// Puts a lease of the batch, that a majority has, to where it is not.
    Heal(usize, Ballot),
    /// Takes back what an attempt of an ask of the batch was granted.
    Undo(usize, Ballot),
    Look(Name),
    Break(Name, bool),
}

/// Which of the scripts a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Care {
    /// What is usual; the rest comes back as odd.
    Plain,
    /// Everything.
    Careful,
}

impl Care {
    fn script(self) -> &'static Script {
        match self {
            Self::Plain => &PLAIN,
            Self::Careful => &CAREFUL,
        }
    }

    /// How a batch is to be put first. Operations on one name are carried out in their order, which what is put off as odd
    /// would leave.
    pub(super) fn of(batch: &Batch) -> Self {
        let is_plain = |operation: &Operation| match operation {
            Operation::Ask(ask) => ask.mode == Mode::Exclusive,
            Operation::Renew(_) => true,
            Operation::Release(release) => release.keep.is_zero(),
        };
        let is_twice = batch.windows(2).any(|pair| pair[0].name() == pair[1].name());
        if !is_twice && batch.iter().all(is_plain) { Self::Plain } else { Self::Careful }
    }
}

/// What is sent to all nodes alike.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) batch: Arc<Batch>,
    pub(super) steps: Vec<Step>,
    prefix: Arc<str>,
    care: Care,
    /// The renewals in it end once the last node has answered.
    _under_way: Option<Arc<UnderWay>>,
}

/// For how long a name stays blocked after its lease ran out: not at all. The script has a field for it.
const NO_DELAY: u8 = 0;

/// That of a node that kept its memory.
const NO_FLOOR: u64 = 0;

/// Room for a token or a key, as long as they usually are.
const SCRATCH: usize = 64;

/// How the script is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Hash,
    Text,
}

impl Call {
    /// What is plain is sorted by its kind, so that there are long runs of it. Only attempts on one name that are taken
    /// back together name it twice, and each has a ballot, and so a run, of its own.
    pub(super) fn new(
        prefix: Arc<str>,
        batch: Arc<Batch>,
        care: Care,
        mut steps: Vec<Step>,
    ) -> Self {
        if care == Care::Plain {
            steps.sort_by_key(|step| plain::rank(step, &batch));
        }
        Self { batch, steps, prefix, care, _under_way: None }
    }

    /// With the renewals that are part of it.
    pub(super) fn during(self, under_way: Option<Arc<UnderWay>>) -> Self {
        Self { _under_way: under_way, ..self }
    }

    /// The same at other steps.
    pub(super) fn with(&self, steps: Vec<Step>) -> Self {
        Self::new(self.prefix.clone(), self.batch.clone(), self.care, steps)
    }

    /// The part of it that gives or takes back what a node may have.
    pub(super) fn giving_back(self: &Arc<Self>) -> Option<Arc<Self>> {
        self.only(|step| matches!(step, Step::Undo(..)) || self.is_release(step))
    }

    /// The same for a node that answered the call with an error, which may come from the middle of it. The careful script
    /// carries out each operation by itself: whoever answers that with an error has done nothing, and would not again.
    pub(super) fn releasing_carefully(self: &Arc<Self>) -> Option<Arc<Self>> {
        if self.care == Care::Plain { self.releasing() } else { None }
    }

    /// The part of it that gives back: it may be sent at any time, and again.
    pub(super) fn releasing(self: &Arc<Self>) -> Option<Arc<Self>> {
        self.only(|step| self.is_release(step))
    }

    fn is_release(&self, step: &Step) -> bool {
        let Step::Plain(at) = step else { return false };
        matches!(&self.batch[*at], Operation::Release(release) if release.keep.is_zero())
    }

    fn only(self: &Arc<Self>, is_kept: impl Fn(&Step) -> bool) -> Option<Arc<Self>> {
        let steps: Vec<_> = self.steps.iter().filter(|step| is_kept(step)).cloned().collect();
        match steps.len() {
            0 => None,
            all if all == self.steps.len() && self.care == Care::Careful => Some(self.clone()),
            // Nobody hears the answer, so nothing may come back as odd.
            _ => Some(Arc::new(Self { care: Care::Careful, ..self.with(steps) })),
        }
    }

    /// The operation of the batch that a step is about.
    pub(super) fn operation(&self, step: &Step) -> Option<&Operation> {
        match step {
            Step::Ask(at, _) | Step::Plain(at) | Step::Heal(at, _) | Step::Undo(at, _) => {
                Some(&self.batch[*at])
            }
            Step::Look(_) | Step::Break(..) => None,
        }
    }

    fn name<'a>(&'a self, step: &'a Step) -> &'a Name {
        match step {
            Step::Ask(at, _) | Step::Plain(at) | Step::Heal(at, _) | Step::Undo(at, _) => {
                self.batch[*at].name()
            }
            Step::Look(name) | Step::Break(name, _) => name,
        }
    }

    /// What a node has to be told of its floor: nothing, unless some ballot of the call is not above it. So that nearly
    /// always all nodes are told the same.
    pub(super) fn floor_of(&self, floor_us: u64) -> u64 {
        let is_below = |step: &Step| match step {
            Step::Ask(_, ballot) | Step::Heal(_, ballot) => ballot.first <= floor_us,
            // Nothing is granted.
            Step::Plain(_) | Step::Undo(..) | Step::Look(_) | Step::Break(..) => false,
        };
        if self.steps.iter().any(is_below) { floor_us } else { NO_FLOOR }
    }

    /// The command for a node that grants nothing up to a floor.
    pub(super) fn command(&self, by: By, floor_us: u64) -> Cmd {
        let names = self.steps.len();
        let mut command = Cmd::with_capacity(names * 7 + 4, names * 192 + 128);
        match by {
            By::Hash => command.arg("EVALSHA").arg(&self.care.script().hash),
            By::Text => command.arg("EVAL").arg(&self.care.script().text),
        };
        command.arg(names);
        let mut scratch = String::with_capacity(SCRATCH);
        for name in self.steps.iter().map(|step| self.name(step)) {
            scratch.clear();
            scratch.push_str(&self.prefix);
            scratch.push_str(name);
            command.arg(scratch.as_str());
        }
        command.arg(digits(floor_us, &mut scratch));
        match self.care {
            Care::Plain => plain::write(&self.steps, &self.batch, &mut command, &mut scratch),
            Care::Careful => {
                for step in &self.steps {
                    self.write(step, &mut command, &mut scratch);
                }
            }
        }
        command
    }

    /// Writes a step for the careful script.
    fn write(&self, step: &Step, command: &mut Cmd, scratch: &mut String) {
        match step {
            Step::Ask(at, ballot) => {
                if let Operation::Ask(ask) = &self.batch[*at] {
                    write_ask("A", ask, *ballot, command, scratch);
                }
            }
            Step::Heal(at, ballot) => {
                if let Operation::Ask(ask) = &self.batch[*at] {
                    write_ask("h", ask, *ballot, command, scratch);
                }
            }
            Step::Plain(at) => match &self.batch[*at] {
                Operation::Ask(_) => unreachable!("BUG: an ask has a ballot"),
                Operation::Renew(renew) => {
                    command.arg("n").arg(text_of(&renew.token, scratch)).arg(millis(renew.ttl));
                }
                Operation::Release(release) => {
                    command
                        .arg("r")
                        .arg(text_of(&release.token, scratch))
                        .arg(millis(release.keep));
                }
            },
            Step::Undo(at, ballot) => {
                if let Operation::Ask(ask) = &self.batch[*at] {
                    command.arg("u").arg(text_of(&ask.token, scratch));
                    command.arg(digits(ballot.first, scratch));
                }
            }
            Step::Look(_) => {
                command.arg("l");
            }
            Step::Break(_, now) => {
                command.arg("x").arg(if *now { "now" } else { "later" });
            }
        }
    }
}

fn write_ask(letter: &str, ask: &Ask, ballot: Ballot, command: &mut Cmd, scratch: &mut String) {
    command.arg(letter).arg(text_of(&ask.token, scratch));
    write_terms(ask.ttl, ballot, ask.value.as_ref(), command, scratch);
    let mode = if ask.mode == Mode::Shared { "s" } else { "x" };
    command.arg(mode).arg(NO_DELAY);
}

/// How long a lease is asked for, under which ballot, until when that is remembered, and what is shown of it.
pub(super) fn write_terms(
    ttl: Duration,
    ballot: Ballot,
    value: Option<&Value>,
    command: &mut Cmd,
    scratch: &mut String,
) {
    command.arg(millis(ttl));
    for end in [ballot.first, ballot.last] {
        command.arg(digits(end, scratch));
    }
    command.arg(ballot.last.div_ceil(1000) + millis(ALLOWANCE + ttl));
    write_value(value, command);
}

/// A ballot as records have it: 16 digits.
pub(super) fn digits(micros: u64, scratch: &mut String) -> &str {
    scratch.clear();
    let _ = write!(scratch, "{micros:016}");
    scratch
}
