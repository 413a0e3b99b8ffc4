//! Which job, and how urgent.

use std::{fmt, str::FromStr};

use leaseward::{Error, ErrorKind};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bits for a job's number: at 100,000 jobs a second they last for five years, at a thousand for five hundred.
const NUMBER_BITS: u32 = 44;
const PRIORITY_BITS: u32 = 4;

/// The most queues there can be in one database.
pub(crate) const QUEUES_MAX: i32 = (1 << 15) - 1;

/// Which job. It holds its queue's number, its priority and its own number, in that order: comparing ids compares who is
/// claimed first. Written `queue-priority-number`, such as `1-8-1042`. Stays the same through retries and replays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(i64);

impl JobId {
    /// An id as databases keep it.
    pub const fn new(value: i64) -> Self {
        Self(value)
    }

    /// As databases keep it.
    pub const fn get(self) -> i64 {
        self.0
    }

    pub(crate) const fn queue(self) -> i32 {
        // Fifteen bits: they fit.
        (self.0 >> (NUMBER_BITS + PRIORITY_BITS)) as i32
    }

    /// How urgent it is.
    pub const fn priority(self) -> Priority {
        Priority(((self.0 >> NUMBER_BITS) & 15) as u8)
    }

    const fn number(self) -> i64 {
        self.0 & ((1 << NUMBER_BITS) - 1)
    }

    /// The ids of a queue at a priority lie above the first and below the second, both excluded.
    pub(crate) const fn range(queue: i32, priority: Priority) -> (i64, i64) {
        let low = slot(queue, priority);
        (low, low + (1 << NUMBER_BITS))
    }

    /// The ids of a whole queue, in the same way.
    pub(crate) const fn queue_range(queue: i32) -> (i64, i64) {
        (slot(queue, Priority(0)), slot(queue + 1, Priority(0)))
    }
}

/// An id without its number.
pub(crate) const fn slot(queue: i32, priority: Priority) -> i64 {
    ((queue as i64) << PRIORITY_BITS | priority.0 as i64) << NUMBER_BITS
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.queue(), self.priority(), self.number())
    }
}

impl FromStr for JobId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut parts = text.splitn(3, '-').map(|part| part.parse::<i64>().ok());
        let mut part =
            |max: i64| parts.next().flatten().filter(|number| (0..=max).contains(number));
        let found = part(QUEUES_MAX.into()).zip(part(Priority::LAST.0.into()));
        let found = found.zip(part((1 << NUMBER_BITS) - 1));
        found.map(|((q, p), n)| Self((q << PRIORITY_BITS | p) << NUMBER_BITS | n)).ok_or_else(
            || {
                Error::new(ErrorKind::InvalidInput, format!("`{text}` is no id of a job"))
                    .hint("it is written like `1-8-1042`; `leaseward queue ls` shows them")
            },
        )
    }
}

impl Serialize for JobId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for JobId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// How urgent a job is: 0 comes first, 15 last, 8 if not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u8);

impl Priority {
    /// Before all others.
    pub const FIRST: Self = Self(0);
    /// After all others.
    pub const LAST: Self = Self(15);
    /// In the middle: what a job has if it is not told otherwise.
    pub const NORMAL: Self = Self(8);

    /// A priority, if the number is one.
    pub const fn new(value: u8) -> Option<Self> {
        if value <= Self::LAST.0 { Some(Self(value)) } else { None }
    }

    /// The number.
    pub const fn get(self) -> u8 {
        self.0
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..=Self::LAST.0).map(Self)
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self::NORMAL
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_queue_priority_and_number_and_read_back() {
        let id = JobId::new(slot(QUEUES_MAX, Priority::LAST) + 17);
        assert_eq!(id.to_string(), "32767-15-17");
        assert_eq!(id.to_string().parse::<JobId>().expect("an id"), id);
        assert_eq!((id.queue(), id.priority(), id.number()), (QUEUES_MAX, Priority::LAST, 17));
        assert!(slot(1, Priority::LAST) < slot(2, Priority::FIRST));
        let (low, high) = JobId::range(3, Priority::NORMAL);
        assert_eq!((JobId::new(low + 1).queue(), JobId::new(high - 1).queue()), (3, 3));
        assert_eq!(
            JobId::queue_range(3),
            (JobId::range(3, Priority::FIRST).0, slot(4, Priority::FIRST))
        );
        for bad in ["", "1", "1-2", "1-16-3", "40000-1-1", "1-1--1", "x-1-1"] {
            assert!(bad.parse::<JobId>().is_err(), "{bad}");
        }
    }
}
