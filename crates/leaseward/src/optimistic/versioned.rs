//! A value together with the version it was read with.

use serde::{Deserialize, Serialize};

use super::Version;

/// A value and the version it was read with: what is needed to save it, in one piece.
///
/// Comes from `load`; `save` takes it, so that nobody saves what was never read. It can be sent to somebody else and come
/// back (as JSON, or its value in the body and its [`etag`](Versioned::etag) in the header of an HTTP answer).
///
/// ```
/// use leaseward::optimistic::{Version, Versioned};
///
/// let mut booking = Versioned::new("table 42", Version::new(7));
/// *booking.value_mut() = "table 43";
/// assert_eq!(booking.etag(), "\"v7\""); // still the version that was read
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versioned<T> {
    value: T,
    version: Version,
}

impl<T> Versioned<T> {
    /// A value that was read, with the version it had then.
    pub const fn new(value: T, version: Version) -> Self {
        Self { value, version }
    }

    /// The value.
    pub const fn value(&self) -> &T {
        &self.value
    }

    /// The value, to be changed. The version stays that of the reading.
    pub const fn value_mut(&mut self) -> &mut T {
        &mut self.value
    }

    /// The value alone: from here on it can no longer be saved.
    pub fn into_value(self) -> T {
        self.value
    }

    /// The version it was read with.
    pub const fn version(&self) -> Version {
        self.version
    }

    /// That version as a strong ETag.
    pub fn etag(&self) -> String {
        self.version.etag()
    }

    /// Something made of the value, read with the same version.
    pub fn map<U>(self, make: impl FnOnce(T) -> U) -> Versioned<U> {
        Versioned { value: make(self.value), version: self.version }
    }

    /// After a save: the value is what is stored now, under this version.
    pub const fn saved_as(&mut self, version: Version) {
        self.version = version;
    }
}
