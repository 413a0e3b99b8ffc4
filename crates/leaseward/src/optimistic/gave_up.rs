//! The end of all tries.

use std::{error, fmt};

use super::Failure;

/// Why there is no further try.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Trying again mends nothing.
    Final,
    /// All tries are used up.
    Attempts,
    /// The time is up.
    Budget,
    /// The commit was sent and no answer came: it may have happened. Look, or use an idempotency key.
    Ambiguous,
}

/// All tries failed. Nothing changed, unless [`why`](GaveUp::why) is [`Why::Ambiguous`].
#[derive(Debug)]
pub struct GaveUp {
    pub(super) why: Why,
    pub(super) tries: u32,
    pub(super) last: Failure,
}

impl GaveUp {
    /// Why there was no further try.
    pub fn why(&self) -> Why {
        self.why
    }

    /// How many there were.
    pub fn tries(&self) -> u32 {
        self.tries
    }

    /// How the last one failed.
    pub fn last(&self) -> &Failure {
        &self.last
    }

    /// How the last one failed, to be kept.
    pub fn into_last(self) -> Failure {
        self.last
    }
}

impl fmt::Display for GaveUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { why, tries, last } = self;
        match why {
            Why::Final => last.fmt(f),
            Why::Attempts => write!(f, "gave up after {tries} tries: {last}"),
            Why::Budget => write!(f, "gave up after {tries} tries, out of time: {last}"),
            Why::Ambiguous => write!(f, "the commit may or may not have happened: {last}"),
        }
    }
}

impl error::Error for GaveUp {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        Some(&self.last)
    }
}
