//! A lease on its way to another process.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind, Fence, Mode, Name, Token};

/// What another process needs to take over a lease: for serverless functions, CI steps, scripts. **A secret.**
///
/// Serialises to `{"name", "token", "fence", "ttl_ms"}`, with `"mode"` and `"slot"` if it is shared or a permit.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "Wire", into = "Wire")]
pub struct Handle {
    name: Name,
    token: Token,
    fence: Fence,
    ttl: Duration,
    mode: Mode,
    slot: Option<u32>,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    name: String,
    token: String,
    fence: Fence,
    ttl_ms: u64,
    #[serde(default, skip_serializing_if = "is_exclusive")]
    mode: WireMode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    slot: Option<u32>,
}

#[derive(Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireMode {
    #[default]
    Exclusive,
    Shared,
    Permit {
        capacity: u32,
    },
}

fn is_exclusive(mode: &WireMode) -> bool {
    *mode == WireMode::Exclusive
}

impl Handle {
    pub(crate) fn new(name: Name, token: Token, fence: Fence, ttl: Duration, mode: Mode) -> Self {
        Self { name, token, fence, ttl, mode, slot: None }
    }

    pub(crate) fn with_slot(mut self, slot: Option<u32>) -> Self {
        self.slot = slot;
        self
    }

    /// The name held.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The fence of the lease.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// How long each renewal lasts.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// How the name is held.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Which permit of a semaphore it is.
    pub fn slot(&self) -> Option<u32> {
        self.slot
    }

    pub(crate) fn token(&self) -> &Token {
        &self.token
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("name", &self.name)
            .field("token", &self.token)
            .field("fence", &self.fence)
            .finish_non_exhaustive()
    }
}

impl From<Handle> for Wire {
    fn from(handle: Handle) -> Self {
        Self {
            name: handle.name.as_str().to_owned(),
            token: handle.token.reveal(),
            fence: handle.fence,
            ttl_ms: u64::try_from(handle.ttl.as_millis()).unwrap_or(u64::MAX),
            mode: match handle.mode {
                Mode::Exclusive => WireMode::Exclusive,
                Mode::Shared => WireMode::Shared,
                Mode::Permit { capacity } => WireMode::Permit { capacity },
            },
            slot: handle.slot,
        }
    }
}

impl TryFrom<Wire> for Handle {
    type Error = Error;

    fn try_from(wire: Wire) -> Result<Self, Error> {
        let ttl = Duration::from_millis(wire.ttl_ms);
        if !(crate::TTL_MIN..=crate::TTL_MAX).contains(&ttl) {
            return Err(Error::new(ErrorKind::InvalidInput, "the handle's TTL is out of range"));
        }
        if wire.fence == Fence::ZERO {
            return Err(Error::new(ErrorKind::InvalidInput, "the handle has no fence"));
        }
        Ok(Self {
            name: Name::new(&wire.name)?,
            token: wire.token.parse()?,
            fence: wire.fence,
            ttl,
            mode: match wire.mode {
                WireMode::Exclusive => Mode::Exclusive,
                WireMode::Shared => Mode::Shared,
                WireMode::Permit { capacity } => Mode::Permit { capacity },
            },
            slot: wire.slot,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn survives_json_and_hides_its_token() {
        let handle = Handle::new(
            Name::new("deploy").expect("good"),
            Token::new(5, Arc::from("ci:1")),
            Fence::new(9),
            Duration::from_secs(30),
            Mode::Exclusive,
        );
        let json = serde_json::to_string(&handle).expect("serialises");
        let back: Handle = serde_json::from_str(&json).expect("reads back");
        assert_eq!(
            (back.name(), back.fence(), back.ttl()),
            (handle.name(), handle.fence(), handle.ttl())
        );
        assert_eq!(back.token(), handle.token());
        assert!(!format!("{handle:?}").contains(&handle.token().reveal()));
        assert!(serde_json::from_str::<Handle>(&json.replace("30000", "1")).is_err());
        assert!(serde_json::from_str::<Handle>(&json.replace(":9", ":0")).is_err());
    }
}
