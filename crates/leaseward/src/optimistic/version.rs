//! Versions: numbers that tell one state of a row from another.

use std::{error, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Which state of a row somebody has read; it grows by one with each change.
///
/// Not a [`Fence`](crate::Fence): that one orders *holders*, this one *states*, and neither can be put in the other's place.
/// It is written `v42`, in JSON too, and as an ETag `"v42"`.
///
/// ```
/// use leaseward::optimistic::Version;
///
/// let version = Version::new(42);
/// assert_eq!(version.etag(), "\"v42\"");
/// assert_eq!("v42".parse(), Ok(version));
/// assert_eq!(serde_json::to_string(&version)?, "\"v42\"");
/// # Ok::<(), serde_json::Error>(())
/// ```
///
/// ```compile_fail
/// use leaseward::{Fence, optimistic::Version};
///
/// let same = Version::new(42) == Fence::new(42); // they have nothing to do with each other
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Version(u64);

impl Version {
    /// A version read back from where it was kept.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number itself.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// As a strong ETag, quotes and all: for the header `ETag` of an answer, `If-Match` of the request that follows.
    pub fn etag(self) -> String {
        format!("\"{self}\"")
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

/// What was given for a version, or for a list of ETags, is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoVersion(pub(super) String);

impl fmt::Display for NoVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no version", self.0)
    }
}

impl error::Error for NoVersion {}

impl FromStr for Version {
    type Err = NoVersion;

    fn from_str(text: &str) -> Result<Self, NoVersion> {
        let digits = text.strip_prefix('v').filter(|rest| rest.bytes().all(|b| b.is_ascii_digit()));
        let number = digits.and_then(|digits| digits.parse().ok());
        // One way to write each: as a text it is compared by others.
        let version = number.map(Self).filter(|version| version.to_string() == text);
        version.ok_or_else(|| NoVersion(text.into()))
    }
}

impl From<Version> for String {
    fn from(version: Version) -> Self {
        version.to_string()
    }
}

impl TryFrom<String> for Version {
    type Error = NoVersion;

    fn try_from(text: String) -> Result<Self, NoVersion> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_way_to_write_a_version() {
        for text in ["v0", "v42", "v18446744073709551615"] {
            assert_eq!(text.parse::<Version>().expect("a version").to_string(), text);
        }
        for text in ["", "v", "42", "V42", "v042", "v+1", "v-1", " v1", "v18446744073709551616"] {
            assert!(text.parse::<Version>().is_err(), "`{text}`");
        }
        assert!(serde_json::from_str::<Version>("42").is_err(), "a bare number may be a fence");
    }
}
