//! How strong a store's promises are.

use std::fmt;

use serde::Serialize;

use super::Reach;
use crate::{Error, ErrorKind};

/// How firmly something holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// It may break without anybody doing wrong.
    MayBreak,
    /// It holds as long as clocks, delays or restarts stay within stated bounds.
    WithinBounds,
    /// It holds.
    Holds,
}

/// What a store, as it is set up, promises to holders that obey their deadline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Guarantee {
    /// At most one exclusive holder at a time.
    pub exclusion: Level,
    /// A later acquisition has a larger fence.
    pub fences: Level,
    /// How far both reach.
    pub reach: Reach,
    /// What breaks them.
    pub breaks_when: Vec<String>,
}

impl Guarantee {
    /// Checks that this is at least what a caller needs.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] naming the first shortfall.
    pub fn require(&self, needed: &Self) -> Result<(), Error> {
        let shortfall = if self.exclusion < needed.exclusion {
            format!("exclusion here {}, but {} was required", self.exclusion, needed.exclusion)
        } else if self.fences < needed.fences {
            format!("fence order here {}, but {} was required", self.fences, needed.fences)
        } else if self.reach < needed.reach {
            format!("exclusion reaches {}, but {} was required", self.reach, needed.reach)
        } else {
            return Ok(());
        };
        let hint = if self.breaks_when.is_empty() {
            "choose another store".to_owned()
        } else {
            format!("it breaks when: {}", self.breaks_when.join("; "))
        };
        Err(Error::new(ErrorKind::Unsupported, shortfall).hint(hint))
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MayBreak => "may break",
            Self::WithinBounds => "holds within bounds",
            Self::Holds => "holds",
        })
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Process => "one process",
            Self::Machine => "one machine",
            Self::Network => "every machine that reaches the store",
        })
    }
}
