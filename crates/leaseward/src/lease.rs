//! Words about leases that the seam and the users share.

use std::{fmt, sync::Arc, time::Duration};

use serde::Serialize;

use crate::{Error, ErrorKind};

/// The shortest TTL: below it, scheduling noise on an ordinary machine ends leases.
pub const TTL_MIN: Duration = Duration::from_millis(100);
/// The longest TTL: a crashed holder should never block a name for longer than a day.
pub const TTL_MAX: Duration = Duration::from_secs(24 * 3600);
/// The TTL where none is asked for.
pub const TTL_DEFAULT: Duration = Duration::from_secs(30);
/// The most permits a semaphore can have.
pub const CAPACITY_MAX: u32 = 1_000_000;
/// The largest value that travels with a lease, in bytes.
pub const VALUE_MAX_BYTES: usize = 1024;

/// How a name is held.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// By one holder alone.
    Exclusive,
    /// By any number of readers, as long as nobody holds it otherwise.
    Shared,
    /// By up to `capacity` holders of a permit each.
    Permit {
        /// How many permits there are; fixed by the first holder.
        capacity: u32,
    },
}

/// A [`Mode`] in one word, for where a hundred thousand of them are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PackedMode(u32);

impl PackedMode {
    const EXCLUSIVE: Self = Self(0);
    const SHARED: Self = Self(u32::MAX);

    pub(crate) fn get(self) -> Mode {
        match self {
            Self::EXCLUSIVE => Mode::Exclusive,
            Self::SHARED => Mode::Shared,
            Self(capacity) => Mode::Permit { capacity },
        }
    }
}

impl From<Mode> for PackedMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Exclusive => Self::EXCLUSIVE,
            Mode::Shared => Self::SHARED,
            // No capacity is nothing, and none is above `CAPACITY_MAX`.
            Mode::Permit { capacity } => Self(capacity.clamp(1, u32::MAX - 1)),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("exclusive"),
            Self::Shared => f.write_str("shared"),
            Self::Permit { capacity } => write!(f, "permit of {capacity}"),
        }
    }
}

/// Up to 1 KiB that travels with a lease and is shown to whoever looks: a label, a leader's address.
#[derive(Clone, PartialEq, Eq)]
pub struct Value(Arc<[u8]>);

impl Value {
    /// Checks a value.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if it is longer than [`VALUE_MAX_BYTES`].
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, Error> {
        let bytes = bytes.as_ref();
        if bytes.len() > VALUE_MAX_BYTES {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!("a value of {} bytes is too long", bytes.len()),
            )
            .hint(format!(
                "at most {VALUE_MAX_BYTES} bytes: store more elsewhere, put its address here"
            )));
        }
        Ok(Self(Arc::from(bytes)))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// As text, with what is not UTF-8 replaced.
    pub fn to_text(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Value({:?})", self.to_text())
    }
}

/// Why a lease is no longer ours.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LostReason {
    /// Its deadline passed without a confirmed renewal, or it reached its longest hold.
    Expired,
    /// The store says it belongs to somebody else, or to nobody: freed at once by an operator, of which no store keeps a
    /// record, evicted, deleted by another program, or forgotten in a restart.
    NotOurs,
    /// An operator broke it, by refusing its renewals.
    Broken,
    /// The store's session that carried it ended.
    SessionEnded,
    /// This `Locks` was shut down.
    ShutDown,
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its deadline passed without a renewal",
            Self::NotOurs => "the store says it is no longer ours",
            Self::Broken => "an operator broke it",
            Self::SessionEnded => "the session with the store ended",
            Self::ShutDown => "the program is shutting down",
        })
    }
}

/// Who holds a name, as far as the store can tell.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// The readable part of the holder's token: `host:pid`.
    pub who: Arc<str>,
    /// How long its lease lasts yet if it is not renewed; `None` if no expiry is known: it has none, or ends with a
    /// session that its holder keeps alive.
    #[serde(rename = "remaining_ms", serialize_with = "as_ms")]
    pub remaining: Option<Duration>,
    /// How it holds the name.
    pub mode: Mode,
}

impl Holder {
    /// A holder as a store reports it.
    pub fn new(who: Arc<str>, mode: Mode, remaining: Option<Duration>) -> Self {
        Self { who, remaining, mode }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.who)?;
        match self.remaining {
            Some(left) => write!(f, " for another {:.1}s", left.as_secs_f64()),
            None => f.write_str(", no known expiry"),
        }
    }
}

#[allow(clippy::ref_option)] // the signature serde asks for
fn as_ms<S: serde::Serializer>(value: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(left) => to.serialize_u64(u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
        None => to.serialize_none(),
    }
}
