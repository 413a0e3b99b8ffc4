//! What a node says about its place, for whoever looks.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{Fence, Value, store::Ask};

/// The data of a node, as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// `host:pid`.
    pub(super) who: Arc<str>,
    pub(super) ttl_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) value: Option<String>,
    /// A value that is no text, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) value_hex: Option<String>,
    /// Of a lease that was taken over, whose node is newer than the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) fence: Option<u64>,
    /// When it was first created, of the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) since_ms: Option<i64>,
    /// Which permit it is, once it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) slot: Option<u32>,
    /// Its holder does not keep it: it ends at this time, in milliseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ends_ms: Option<u64>,
    /// An operator broke it: it is not renewed any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) broken: bool,
}

impl Record {
    pub(super) fn of(ask: &Ask) -> Self {
        let text = ask.value.as_ref().map(|value| std::str::from_utf8(value.as_bytes()));
        let (value, value_hex) = match (text, &ask.value) {
            (Some(Ok(text)), _) => (Some(text.to_owned()), None),
            (Some(Err(_)), Some(value)) => (None, Some(hex(value.as_bytes()))),
            _ => (None, None),
        };
        Self {
            who: ask.token.who().clone(),
            ttl_ms: u64::try_from(ask.ttl.as_millis()).unwrap_or(u64::MAX),
            value,
            value_hex,
            ..Self::default()
        }
    }

    /// `None` if the node is not ours.
    pub(super) fn read(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }

    pub(super) fn to_data(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(super) fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }

    pub(super) fn set_ttl(&mut self, ttl: Duration) {
        self.ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
    }

    pub(super) fn value(&self) -> Option<Value> {
        let bytes = match (&self.value, &self.value_hex) {
            (Some(text), _) => text.clone().into_bytes(),
            (None, Some(digits)) => unhex(digits)?,
            (None, None) => return None,
        };
        Value::new(bytes).ok()
    }

    pub(super) fn fence_or(&self, of_node: Fence) -> Fence {
        self.fence.map_or(of_node, Fence::new)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_being_written_down() {
        let all: Vec<u8> = (0..=255).collect();
        for value in [&b"10.0.0.7:9000"[..], &all] {
            let ask = Ask {
                name: crate::Name::new("x").expect("a name"),
                token: crate::Token::new(7, Arc::from("web-3:4121")),
                mode: crate::Mode::Exclusive,
                ttl: Duration::from_secs(3),
                if_busy: crate::store::IfBusy::Tell,
                block: 1,
                value: Some(Value::new(value).expect("short")),
            };
            let read = Record::read(&Record::of(&ask).to_data()).expect("ours");
            assert_eq!((&*read.who, read.ttl()), ("web-3:4121", ask.ttl));
            assert_eq!(read.value(), ask.value);
        }
        for foreign in [&b""[..], b"web-3", b"{}"] {
            assert_eq!(Record::read(foreign), None);
        }
    }
}
