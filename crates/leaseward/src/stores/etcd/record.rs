//! What stands in a key: who, how, since when.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Mode, Token, Value};

/// How many characters of a token are shown.
const SHOWN: usize = 8;

/// One lease or place in a queue, as readable text: `etcdctl get --prefix` is a tool of operators.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) who: String,
    token: String,
    #[serde(default)]
    mode: Kind,
    #[serde(default, skip_serializing_if = "is_none")]
    capacity: u32,
    pub(super) ttl_ms: u64,
    /// By the clock of whoever wrote it, in microseconds since the epoch.
    pub(super) since_us: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) slot: Option<u32>,
    /// An operator broke it: it is not to be renewed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) broken: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    /// A value that is no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value_hex: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    #[default]
    Exclusive,
    Shared,
    Permit,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the signature serde asks for
fn is_none(capacity: &u32) -> bool {
    *capacity == 0
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the signature serde asks for
fn is_false(flag: &bool) -> bool {
    !flag
}

impl Record {
    pub(super) fn new(
        token: &Token,
        mode: Mode,
        ttl: Duration,
        since_us: u64,
        value: Option<&Value>,
    ) -> Self {
        let (kind, capacity) = match mode {
            Mode::Exclusive => (Kind::Exclusive, 0),
            Mode::Shared => (Kind::Shared, 0),
            Mode::Permit { capacity } => (Kind::Permit, capacity),
        };
        let text = value.map(|value| std::str::from_utf8(value.as_bytes()));
        Self {
            who: token.who().as_ref().to_owned(),
            token: mark(token),
            mode: kind,
            capacity,
            ttl_ms: u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX),
            since_us,
            slot: None,
            broken: false,
            value: text.and_then(Result::ok).map(str::to_owned),
            value_hex: value
                .filter(|_| text.is_some_and(|text| text.is_err()))
                .map(|value| to_hex(value.as_bytes())),
        }
    }

    /// `None` if it is not ours.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    pub(super) fn write(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("BUG: text and numbers can be written")
    }

    /// Whether it is this token's.
    pub(super) fn is_of(&self, token: &Token) -> bool {
        self.token == mark(token)
    }

    /// The beginning of its token, safe to show.
    pub(super) fn token_prefix(&self) -> String {
        self.token.chars().take(SHOWN).collect()
    }

    pub(super) fn mode(&self) -> Mode {
        match self.mode {
            Kind::Exclusive => Mode::Exclusive,
            Kind::Shared => Mode::Shared,
            Kind::Permit => Mode::Permit { capacity: self.capacity.max(1) },
        }
    }

    pub(super) fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }

    pub(super) fn value(&self) -> Option<Value> {
        let bytes = match (&self.value, &self.value_hex) {
            (Some(text), _) => text.as_bytes().to_vec(),
            (None, Some(hex)) => from_hex(hex)?,
            (None, None) => return None,
        };
        Value::new(bytes).ok()
    }
}

/// A token as it stands in a record.
fn mark(token: &Token) -> String {
    format!("{:032x}", token.random())
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(byte).collect())?
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let token = Token::new(7, Arc::from("web-3:4121"));
        for mode in [Mode::Exclusive, Mode::Shared, Mode::Permit { capacity: 3 }] {
            for bytes in [&b"text"[..], &[0xff, 0, 7]] {
                let value = Value::new(bytes).expect("short");
                let ttl = Duration::from_secs(5);
                let record = Record::new(&token, mode, ttl, 9, Some(&value));
                let back = Record::read(&record.write()).expect("ours");
                assert_eq!(back, record);
                assert_eq!((back.mode(), back.value()), (mode, Some(value)));
                assert!(back.is_of(&token) && !back.is_of(&Token::new(8, Arc::from("me"))));
            }
        }
        for foreign in [&b""[..], b"7587862d9ef2d2a3", b"{}", b"[1]"] {
            assert_eq!(Record::read(foreign), None);
        }
    }
}
