//! Why a fenced write did not happen.

use std::{error, fmt};

use crate::Fence;

/// A write came too late: its holder was followed by another one, who has written already.
///
/// Stop, and touch nothing that the lease protected. To go on, acquire again and begin by reading what is there now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaleFence {
    /// The fence that came with the write.
    pub given: Fence,
    /// The highest one this resource has seen.
    pub seen: Fence,
}

impl fmt::Display for StaleFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { given, seen } = self;
        write!(f, "fence {given} is stale: {seen} has been here")
    }
}

impl error::Error for StaleFence {}

/// Why a fenced write did not happen; `E` is the driver's own error.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FencedError<E> {
    /// Another holder has been here since. Nothing changed.
    Stale(StaleFence),
    /// There is no such row. Nothing changed.
    Missing,
    /// The database or its connection failed.
    Driver(E),
}

impl<E> FencedError<E> {
    /// The stale fence, if that is why.
    pub fn stale(&self) -> Option<StaleFence> {
        match self {
            Self::Stale(stale) => Some(*stale),
            Self::Missing | Self::Driver(_) => None,
        }
    }
}

impl<E: fmt::Display> fmt::Display for FencedError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale(stale) => stale.fmt(f),
            Self::Missing => f.write_str("there is no row to write"),
            Self::Driver(error) => error.fmt(f),
        }
    }
}

impl<E: error::Error + 'static> error::Error for FencedError<E> {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Stale(_) | Self::Missing => None,
            Self::Driver(error) => error.source(),
        }
    }
}

impl<E> From<StaleFence> for FencedError<E> {
    fn from(stale: StaleFence) -> Self {
        Self::Stale(stale)
    }
}
