//! Somebody else was faster.

use std::{error, fmt};

use super::Version;

/// Why a row was not saved: it is no longer what was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// It is not there any more.
    Gone,
    /// It was changed, and has this version now.
    Changed {
        /// The version to read, and to begin again with.
        current: Version,
    },
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("the row is gone"),
            Self::Changed { current } => write!(f, "the row was changed and is {current} now"),
        }
    }
}

impl error::Error for Conflict {}

/// Why a row was not saved; `E` is the driver's own error.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SaveError<E> {
    /// It is no longer what was read. Nothing changed.
    Conflict(Conflict),
    /// The database or its connection failed.
    Driver(E),
}

impl<E> SaveError<E> {
    /// The conflict, if that is why.
    pub fn conflict(&self) -> Option<Conflict> {
        match self {
            Self::Conflict(conflict) => Some(*conflict),
            Self::Driver(_) => None,
        }
    }
}

impl<E: fmt::Display> fmt::Display for SaveError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict(conflict) => conflict.fmt(f),
            Self::Driver(error) => error.fmt(f),
        }
    }
}

impl<E: error::Error + 'static> error::Error for SaveError<E> {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Conflict(_) => None,
            Self::Driver(error) => error.source(),
        }
    }
}

impl<E> From<Conflict> for SaveError<E> {
    fn from(conflict: Conflict) -> Self {
        Self::Conflict(conflict)
    }
}
