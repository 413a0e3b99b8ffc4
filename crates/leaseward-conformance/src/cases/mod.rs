//! The cases, by group.

mod exclusion;

use crate::{Case, Group};

/// All groups.
pub static GROUPS: &[Group] = &[Group { name: "exclusion", cases: exclusion::CASES }];

/// All cases, each with the name of its group.
pub fn all() -> impl Iterator<Item = (&'static str, &'static Case)> {
    GROUPS.iter().flat_map(|group| group.cases.iter().map(|case| (group.name, case)))
}
