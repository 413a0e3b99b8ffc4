//! Operations as arguments of the script, and its answers back.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use redis::{Cmd, Value};

use super::{
    error::{self, Reaction},
    keys::{Keys, Slot},
    script::{SCRIPT, code, reason},
};
use crate::{
    Block, Error, ErrorKind, Fence, Holder, LostReason, Mode, Name, Token,
    store::{
        self, Answer, Ask, Evidence, Grant, IfBusy, Operation, Place, Push, Renewal, Reply,
        Standing,
    },
};

/// How the script is called: by its hash, or with its text where the server does not know it.
#[derive(Clone, Copy, Debug)]
pub(super) enum By {
    Hash,
    Text,
}

/// What every call to a node carries.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    /// The end of the channel for that node's pushes. Another for each node: on a cluster a message goes to all of them,
    /// and would be heard as often as there are connections.
    pub(super) client: Arc<str>,
    /// `auto`, `always` or `never`.
    pub(super) handover: &'static str,
}

/// A call of the script.
#[derive(Debug)]
pub(super) struct Call<'a> {
    keys: &'a Keys,
    slot: Slot,
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

impl Item<'_> {
    fn names(&self) -> &[Name] {
        match self {
            Self::Operation(Operation::Ask(ask)) => &ask.names,
            Self::Operation(operation) => std::slice::from_ref(operation.name()),
            Self::Look(name) | Self::Break(name, _) => std::slice::from_ref(name),
        }
    }
}

impl<'a> Call<'a> {
    pub(super) fn new(keys: &'a Keys, slot: Slot) -> Self {
        Self { keys, slot, items: Vec::new() }
    }

    pub(super) fn operation(&mut self, operation: &'a Operation) {
        self.items.push(Item::Operation(operation));
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
        let names = self.items.iter().map(|item| item.names().len()).sum::<usize>();
        let count = 1 + names * self.keys.stride();
        let mut command = Cmd::with_capacity(count + self.items.len() * 4 + 7, names * 128 + 256);
        match by {
            By::Hash => command.arg("EVALSHA").arg(&SCRIPT.hash),
            By::Text => command.arg("EVAL").arg(&SCRIPT.text),
        };
        command.arg(count).arg(self.keys.fence_key(self.slot));
        let mut scratch = String::new();
        for name in self.items.iter().flat_map(Item::names) {
            self.keys.declare(name, &side, &mut command, &mut scratch);
        }
        command.arg(&side).arg(&*sender.client).arg(sender.handover).arg(self.keys.stride());
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
            command.arg(millis(renew.ttl)).arg(renew.block);
        }
        Operation::Release(release) => {
            command.arg("r").arg(text_of(&release.token, scratch)).arg(millis(release.keep));
        }
    }
}

fn write_ask(ask: &Ask, command: &mut Cmd, scratch: &mut String) {
    let is_plain = ask.mode == Mode::Exclusive && ask.block == 1 && ask.lock_delay.is_zero();
    let several = ask.names.len() > 1;
    command.arg(match (several, ask.if_busy, is_plain) {
        (true, _, _) => "m",
        (false, IfBusy::Tell, true) => "a",
        (false, IfBusy::Queue, true) => "q",
        (false, IfBusy::Tell, false) => "A",
        (false, IfBusy::Queue, false) => "Q",
    });
    command.arg(text_of(&ask.token, scratch)).arg(millis(ask.ttl));
    match &ask.value {
        None => command.arg(""),
        Some(value) => command.arg(prefixed(value.as_bytes())),
    };
    if several || !is_plain {
        let (mode, capacity) = match ask.mode {
            Mode::Exclusive => ("x", 0),
            Mode::Shared => ("s", 0),
            Mode::Permit { capacity } => ("p", capacity),
        };
        command.arg(mode).arg(capacity).arg(ask.block).arg(millis(ask.lock_delay));
    }
    if several {
        command.arg(ask.names.len());
    }
}

/// A token's text, without a memory block of its own.
fn text_of<'a>(token: &Token, scratch: &'a mut String) -> &'a str {
    scratch.clear();
    token.reveal_into(scratch);
    scratch
}

/// A value as it travels: marked, so that an empty one is not none.
fn prefixed(value: &[u8]) -> Vec<u8> {
    [b"=", value].concat()
}

/// A value as it came back.
pub(super) fn value_from(text: &[u8]) -> Option<crate::Value> {
    text.strip_prefix(b"=").and_then(|value| crate::Value::new(value).ok())
}

/// Rounded up: a lease never ends before its time.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
}

/// The script's flat answer, read from front to back.
#[derive(Debug)]
pub(super) struct Answers {
    values: std::vec::IntoIter<Value>,
    misplaced: Option<Error>,
}

impl Answers {
    pub(super) fn new(value: Value) -> Result<Self, Error> {
        match value {
            Value::Array(values) => Ok(Self { values: values.into_iter(), misplaced: None }),
            other => Err(unexpected(&other)),
        }
    }

    pub(super) fn number(&mut self) -> Result<i64, Error> {
        match self.values.next() {
            Some(Value::Int(number)) => Ok(number),
            other => Err(unexpected(&other.unwrap_or_default())),
        }
    }

    pub(super) fn bytes(&mut self) -> Result<Vec<u8>, Error> {
        match self.values.next() {
            Some(Value::BulkString(bytes)) => Ok(bytes),
            Some(Value::SimpleString(text)) => Ok(text.into_bytes()),
            Some(Value::Okay) => Ok(b"OK".to_vec()),
            other => Err(unexpected(&other.unwrap_or_default())),
        }
    }

    /// A list of texts; what is missing is empty.
    pub(super) fn list(&mut self) -> Result<Vec<Vec<u8>>, Error> {
        let Some(Value::Array(values)) = self.values.next() else {
            return Err(unexpected(&Value::Nil));
        };
        let text = |value| match value {
            Value::BulkString(bytes) => bytes,
            _ => Vec::new(),
        };
        Ok(values.into_iter().map(text).collect())
    }

    fn text(&mut self) -> Result<String, Error> {
        self.bytes().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    fn count(&mut self) -> Result<u32, Error> {
        self.number().map(|number| u32::try_from(number).unwrap_or(0))
    }

    fn fence(&mut self) -> Result<Fence, Error> {
        self.number().map(|number| Fence::new(number.unsigned_abs()))
    }

    fn block(&mut self) -> Result<Block, Error> {
        Ok(Block { first: self.fence()?, len: self.count()? })
    }

    fn reason(&mut self) -> Result<LostReason, Error> {
        self.number().map(|number| match number {
            reason::EXPIRED => LostReason::Expired,
            reason::BROKEN => LostReason::Broken,
            _ => LostReason::NotOurs,
        })
    }

    fn standing(&mut self) -> Result<(Standing, IsForeign), Error> {
        let ahead = self.count()?;
        let (who, mode) = (self.text()?, self.text()?);
        let mode = mode_from(&mode, self.count()?);
        let (left, free_in) = (self.number()?, self.number()?);
        let foreign = who.strip_prefix('!');
        let who = foreign.map_or_else(|| Arc::from(who.as_str()), stranger);
        let holder = (!who.is_empty()).then(|| Holder::new(who, mode, time_left(left)));
        Ok((Standing { holder, free_in: time_left(free_in), ahead }, IsForeign(foreign.is_some())))
    }

    /// The answer to an operation, and whether the name is held by a client of another library.
    pub(super) fn next_for(&mut self, operation: &Operation) -> (Answer, IsForeign) {
        match self.read(operation) {
            Ok(answer) => answer,
            Err(error) => (Err(error), IsForeign(false)),
        }
    }

    fn read(&mut self, operation: &Operation) -> Result<(Answer, IsForeign), Error> {
        let ours = |reply| Ok((Ok(reply), IsForeign(false)));
        match self.number()? {
            code::PLAIN => {
                let block = Block { first: self.fence()?, len: 1 };
                ours(Reply::Granted(granted([block], None, asked_ttl(operation), 0)))
            }
            code::GRANTED => {
                let (block, slot, waiters) = (self.block()?, self.number()?, self.count()?);
                let slot = u32::try_from(slot).ok();
                ours(Reply::Granted(granted([block], slot, asked_ttl(operation), waiters)))
            }
            code::GRANTED_ALL => {
                let count = self.count()?;
                let blocks = (0..count).map(|_| self.block()).collect::<Result<Vec<_>, _>>()?;
                ours(Reply::Granted(granted(blocks, None, asked_ttl(operation), 0)))
            }
            code::QUEUED => {
                let last_fence = self.fence()?;
                let (standing, foreign) = self.standing()?;
                Ok((Ok(Reply::Queued(Place { last_fence, standing })), foreign))
            }
            code::BUSY => {
                self.standing().map(|(standing, foreign)| (Ok(Reply::Busy(standing)), foreign))
            }
            code::RENEWED => {
                let (waiters, block) = (self.count()?, self.block()?);
                let block = Some(block).filter(|block| block.len > 0);
                let (ttl, evidence) = (asked_ttl(operation), Evidence::ThisRequest);
                ours(Reply::Renewed(Renewal { ttl, evidence, waiters, block }))
            }
            code::RELEASED => ours(Reply::Released),
            code::NOT_YOURS => self.reason().and_then(|reason| ours(Reply::NotYours(reason))),
            code::GONE => self.reason().and_then(|reason| ours(Reply::Gone(reason))),
            code::CAPACITY => Err(store::capacity_error(operation.name(), self.count()?)),
            code::FAILED => {
                let (error, reaction) = error::of_operation(&self.text()?);
                if reaction == Reaction::Reconnect {
                    self.misplaced = Some(error.duplicate());
                }
                Err(error)
            }
            _ => Err(unexpected(&Value::Nil)),
        }
    }

    /// Why the node is not the one it was, if an operation said so.
    pub(super) fn misplaced(self) -> Option<Error> {
        self.misplaced
    }

    /// Whether an order was carried out.
    pub(super) fn done(&mut self) -> Result<(), Error> {
        match self.number()? {
            code::BUSY => Err(Error::new(
                ErrorKind::Unsupported,
                "it is held by a client of another library, which cannot be told to end",
            )
            .hint("breaking it `--now` deletes its key, while that client may still be at work")),
            code::FAILED => Err(error::of_operation(&self.text()?).0),
            _ => Ok(()),
        }
    }
}

/// Whether a name is held by a client of another library: nobody will push its release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IsForeign(pub(super) bool);

fn asked_ttl(operation: &Operation) -> Duration {
    match operation {
        Operation::Ask(ask) => ask.ttl,
        Operation::Renew(renew) => renew.ttl,
        Operation::Release(_) => Duration::ZERO,
    }
}

fn granted(
    blocks: impl IntoIterator<Item = Block>,
    slot: Option<u32>,
    ttl: Duration,
    waiters: u32,
) -> Grant {
    let blocks = blocks.into_iter().collect();
    Grant { blocks, slot, ttl, evidence: Evidence::ThisRequest, waiters }
}

/// What to call a holder that is none of ours, by the kind of its key.
pub(super) fn stranger(kind: &str) -> Arc<str> {
    match kind {
        "string" => Arc::from("a client of another library"),
        "hash" => Arc::from("a Redisson-style lock"),
        other => {
            let mut text = String::new();
            let _ = write!(text, "a key of the kind `{other}`, which is no lock");
            text.into()
        }
    }
}

pub(super) fn mode_from(letter: &str, capacity: u32) -> Mode {
    match letter {
        "s" => Mode::Shared,
        "p" => Mode::Permit { capacity },
        _ => Mode::Exclusive,
    }
}

/// Milliseconds as Redis says them: below zero there is no end.
pub(super) fn time_left(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

/// What came over a client's channel.
#[derive(Debug)]
pub(super) enum Heard {
    /// A lease was handed over.
    Push(Push),
    /// A name stays free for a while, then it is our turn.
    Wake(Name, Duration),
}

/// Reads a message; `None` if it is none of ours.
pub(super) fn heard(message: &[u8], keys: &Keys) -> Option<Heard> {
    let (head, key) = match message.first()? {
        b'G' => {
            let end = message.iter().position(|b| *b == b'\n')?;
            (std::str::from_utf8(&message[2..end]).ok()?, &message[end + 1..])
        }
        b'W' => {
            let (delay, key) = std::str::from_utf8(message.get(2..)?).ok()?.split_once(' ')?;
            let delay = Duration::from_millis(delay.parse().ok()?);
            return Some(Heard::Wake(keys.name(key.as_bytes())?, delay));
        }
        _ => return None,
    };
    let mut fields = head.splitn(6, ' ');
    let mut number = || fields.next()?.parse::<i64>().ok();
    let (first, len, ttl, slot, waiters) = (number()?, number()?, number()?, number()?, number()?);
    let token: Token = fields.next()?.parse().ok()?;
    let block = Block { first: Fence::new(first.unsigned_abs()), len: u32::try_from(len).ok()? };
    let grant = Grant {
        evidence: Evidence::LargerFence,
        ..granted([block], u32::try_from(slot).ok(), time_left(ttl)?, u32::try_from(waiters).ok()?)
    };
    Some(Heard::Push(Push::Granted { name: keys.name(key)?, token, grant }))
}

fn unexpected(value: &Value) -> Error {
    // Only the kind of the value: what stands in it may be a token.
    let kind = match value {
        Value::Nil => "nothing",
        Value::Int(_) => "a number",
        Value::Array(_) => "a list",
        _ => "something else",
    };
    Error::new(ErrorKind::Indeterminate, format!("the server answered a batch with {kind}"))
        .hint("is there a proxy in between that changes answers?")
}
