//! Operations as arguments of the script.

use std::{sync::Arc, time::Duration};

use redis::Cmd;

use super::{
    keys::{Keys, Slot},
    plain,
    script::{CAREFUL, PLAIN, Script},
};
use crate::{
    Mode, Name, Token, Value,
    store::{Ask, IfBusy, Operation},
};

/// For how long a name stays blocked after its lease ran out: not at all. The script has a field for it.
const NO_DELAY: u8 = 0;

/// How the script is called: by its hash, or with its text where the server does not know it.
#[derive(Clone, Copy, Debug)]
pub(super) enum By {
    Hash,
    Text,
}

/// Which of the scripts a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Care {
    /// What is usual; the rest comes back as odd. Whether they are many, and no name stands there twice.
    Plain { is_distinct: bool },
    /// Everything.
    Careful,
}

impl Care {
    fn script(self) -> &'static Script {
        match self {
            Self::Plain { .. } => &PLAIN,
            Self::Careful => &CAREFUL,
        }
    }
}

/// What every call to a node carries.
#[derive(Clone, Debug)]
pub(in crate::stores) struct Sender {
    /// The end of the channel for that node's pushes. Another for each node: on a cluster a message goes to all of them,
    /// and would be heard as often as there are connections.
    pub(in crate::stores) client: Arc<str>,
    /// `auto`, `always` or `never`.
    pub(in crate::stores) handover: &'static str,
}

/// A call of the script.
#[derive(Debug)]
pub(super) struct Call<'a> {
    keys: &'a Keys,
    slot: Slot,
    care: Care,
    items: Vec<Item<'a>>,
}

#[derive(Debug)]
enum Item<'a> {
    Operation(&'a Operation),
    /// A look at a name.
    Look(&'a Name),
    /// An order to break the leases on a name.
    Break(&'a Name, bool),
}

impl<'a> Item<'a> {
    fn operation(&self) -> Option<&'a Operation> {
        match self {
            Self::Operation(operation) => Some(operation),
            Self::Look(_) | Self::Break(..) => None,
        }
    }

    fn name(&self) -> &Name {
        match self {
            Self::Operation(operation) => operation.name(),
            Self::Look(name) | Self::Break(name, _) => name,
        }
    }
}

impl<'a> Call<'a> {
    pub(super) fn new(keys: &'a Keys, slot: Slot) -> Self {
        Self { keys, slot, care: Care::Careful, items: Vec::new() }
    }

    /// One that carries out operations, in this order.
    pub(super) fn of(
        keys: &'a Keys,
        slot: Slot,
        care: Care,
        operations: impl Iterator<Item = &'a Operation>,
    ) -> Self {
        let items = operations.map(Item::Operation).collect();
        Self { keys, slot, care, items }
    }

    pub(super) fn look(&mut self, name: &'a Name) {
        self.items.push(Item::Look(name));
    }

    pub(super) fn break_lease(&mut self, name: &'a Name, now: bool) {
        self.items.push(Item::Break(name, now));
    }

    /// The command to send.
    pub(super) fn command(&self, by: By, sender: &Sender) -> Cmd {
        let side = self.keys.side(self.slot);
        let names = self.items.len();
        let count = 1 + names * self.keys.stride();
        let mut command = Cmd::with_capacity(count + names * 4 + 7, names * 128 + 256);
        match by {
            By::Hash => command.arg("EVALSHA").arg(&self.care.script().hash),
            By::Text => command.arg("EVAL").arg(&self.care.script().text),
        };
        command.arg(count).arg(self.keys.fence_key(self.slot));
        let mut scratch = String::new();
        for name in self.items.iter().map(Item::name) {
            self.keys.declare(name, &side, &mut command, &mut scratch);
        }
        command.arg(&side).arg(&*sender.client).arg(sender.handover).arg(self.keys.stride());
        if let Care::Plain { is_distinct } = self.care {
            let operations = self.items.iter().filter_map(Item::operation);
            command.arg(plain::outline(operations.clone(), is_distinct));
            plain::write(operations, &mut command, &mut scratch);
            return command;
        }
        for item in &self.items {
            match item {
                Item::Operation(operation) => write(operation, &mut command, &mut scratch),
                Item::Look(_) => drop(command.arg("l")),
                Item::Break(_, now) => {
                    command.arg("x").arg(if *now { "now" } else { "later" });
                }
            }
        }
        command
    }
}

fn write(operation: &Operation, command: &mut Cmd, scratch: &mut String) {
    match operation {
        Operation::Ask(ask) => write_ask(ask, command, scratch),
        Operation::Renew(renew) => {
            command.arg("n").arg(text_of(&renew.token, scratch));
            command.arg(millis(renew.ttl));
        }
        Operation::Release(release) => {
            command.arg("r").arg(text_of(&release.token, scratch)).arg(millis(release.keep));
        }
    }
}

fn write_ask(ask: &Ask, command: &mut Cmd, scratch: &mut String) {
    let is_plain = ask.mode == Mode::Exclusive && ask.block == 1;
    command.arg(match (ask.if_busy, is_plain) {
        (IfBusy::Tell, true) => "a",
        (IfBusy::Queue, true) => "q",
        (IfBusy::Tell, false) => "A",
        (IfBusy::Queue, false) => "Q",
    });
    command.arg(text_of(&ask.token, scratch)).arg(millis(ask.ttl));
    write_value(ask.value.as_ref(), command);
    if !is_plain {
        let (mode, capacity) = match ask.mode {
            Mode::Exclusive => ("x", 0),
            Mode::Shared => ("s", 0),
            Mode::Permit { capacity } => ("p", capacity),
        };
        command.arg(mode).arg(capacity).arg(ask.block).arg(NO_DELAY);
    }
}

/// What is shown of a lease to whoever looks.
pub(in crate::stores) fn write_value(value: Option<&Value>, command: &mut Cmd) {
    match value {
        None => command.arg(""),
        Some(value) => command.arg(prefixed(value.as_bytes())),
    };
}

/// A token's text, without a memory block of its own.
pub(in crate::stores) fn text_of<'a>(token: &Token, scratch: &'a mut String) -> &'a str {
    scratch.clear();
    token.reveal_into(scratch);
    scratch
}

/// A value as it travels: marked, so that an empty one is not none.
fn prefixed(value: &[u8]) -> Vec<u8> {
    [b"=", value].concat()
}

/// Rounded up: a lease never ends before its time.
pub(in crate::stores) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
}
