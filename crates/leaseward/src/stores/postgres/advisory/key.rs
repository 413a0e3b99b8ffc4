//! Which advisory lock stands for a name. Stable for ever: other programs compute the same.

use std::{convert::Infallible, fmt, str::FromStr};

use sha2::{Digest as _, Sha256};

use crate::{Error, ErrorKind, Name};

/// The namespace that names are in unless another one is asked for.
pub(super) const NAMESPACE: &str = "leaseward";

/// The key of an advisory lock.
///
/// PostgreSQL has two kinds, which never meet: one number of 64 bits, and two of 32. A name becomes one of 64 bits: the
/// first eight bytes, most significant first, of the SHA-256 of `leaseward:` and the name, in UTF-8. The same in SQL, for
/// everybody who is to meet this program at the lock `orders`:
///
/// ```sql
/// SELECT pg_advisory_lock(
///   ('x' || left(encode(sha256(convert_to('leaseward:' || 'orders', 'UTF8')), 'hex'), 16))::bit(64)::bigint);
/// ```
///
/// Two names may have the same key and then keep each other out without need: among a million names in use at once, with
/// a probability of about 1 in 40 million.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AdvisoryKey {
    /// A name, in the namespace `leaseward`.
    Name(Name),
    /// A number, as other programs use it.
    I64(i64),
    /// Two numbers, as other programs use them.
    Pair(i32, i32),
}

impl AdvisoryKey {
    /// The key of a name in another namespace: that of a store opened with `?namespace=…`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the namespace is not made of lower-case letters, digits and `_`.
    pub fn in_namespace(namespace: &str, name: &Name) -> Result<Self, Error> {
        check_namespace(namespace)?;
        Ok(Self::I64(hash(namespace, name)))
    }

    /// The numbers it is in the server.
    pub(super) fn slot(&self) -> Slot {
        match self {
            Self::Name(name) => Slot::One(hash(NAMESPACE, name)),
            Self::I64(key) => Slot::One(*key),
            Self::Pair(first, second) => Slot::Two(*first, *second),
        }
    }
}

/// An advisory lock, as the server knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Slot {
    One(i64),
    Two(i32, i32),
}

impl Slot {
    /// As one number: the first of two is its upper half.
    pub(super) fn packed(self) -> i64 {
        match self {
            Self::One(key) => key,
            Self::Two(first, second) => {
                (i64::from(first) << 32) | i64::from(second.cast_unsigned())
            }
        }
    }

    /// From what `pg_locks` shows: its halves, and 1 or 2 for the kind.
    pub(super) fn shown(class: u32, object: u32, kind: i16) -> Self {
        if kind == 2 {
            Self::Two(class.cast_signed(), object.cast_signed())
        } else {
            Self::One(((u64::from(class) << 32) | u64::from(object)).cast_signed())
        }
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(key) => write!(f, "{key}"),
            Self::Two(first, second) => write!(f, "{first},{second}"),
        }
    }
}

pub(super) fn hash(namespace: &str, name: &str) -> i64 {
    let mut digest = Sha256::new();
    digest.update(namespace);
    // No namespace holds one, so no two pairs of namespace and name are the same text.
    digest.update(":");
    digest.update(name);
    let digest = digest.finalize();
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    i64::from_be_bytes(first)
}

pub(super) fn check_namespace(namespace: &str) -> Result<(), Error> {
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    if !namespace.is_empty() && namespace.len() <= 63 && namespace.bytes().all(is_plain) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidInput, format!("`{namespace}` cannot be a namespace"))
        .hint("lower-case letters, digits and `_`, at most 63 of them"))
}

impl From<Name> for AdvisoryKey {
    fn from(name: Name) -> Self {
        Self::Name(name)
    }
}

impl From<&Name> for AdvisoryKey {
    fn from(name: &Name) -> Self {
        Self::Name(name.clone())
    }
}

impl From<i64> for AdvisoryKey {
    fn from(key: i64) -> Self {
        Self::I64(key)
    }
}

impl From<(i32, i32)> for AdvisoryKey {
    fn from((first, second): (i32, i32)) -> Self {
        Self::Pair(first, second)
    }
}

impl TryFrom<&str> for AdvisoryKey {
    type Error = Error;

    /// A name, checked.
    fn try_from(name: &str) -> Result<Self, Error> {
        Name::new(name).map(Self::Name)
    }
}

impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// A key as people write numbers: `42`, or `1,2` for two.
impl FromStr for Slot {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let read = || match text.split_once(',') {
            None => text.parse().ok().map(Self::One),
            Some((first, second)) => Some(Self::Two(first.parse().ok()?, second.parse().ok()?)),
        };
        read().ok_or_else(|| {
            Error::new(ErrorKind::InvalidInput, format!("`{text}` is no key of an advisory lock"))
                .hint("with `keys=raw` a name is a number, `42`, or two of 32 bits, `1,2`")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed by other means, for ever: whoever changes one of them lets two programs into one critical section.
    #[test]
    fn keys_never_change() {
        for (name, key) in KNOWN {
            assert_eq!(hash(NAMESPACE, name), *key, "{name}");
        }
        let name = Name::new("orders").expect("good");
        let other = AdvisoryKey::in_namespace("billing", &name).expect("good");
        assert_eq!(other, AdvisoryKey::I64(BILLING_ORDERS));
        assert_eq!(AdvisoryKey::from(&name).slot(), Slot::One(hash(NAMESPACE, "orders")));
        AdvisoryKey::in_namespace("a:b", &name).expect_err("ambiguous");
    }

    const KNOWN: &[(&str, i64)] = &[
        ("orders", -6_373_732_629_241_131_721),
        ("table:42", 4_509_790_158_901_667_780),
        ("nightly report", -3_296_777_741_943_153_555),
        ("ä1", 6_250_706_579_270_243_181),
        ("\u{10ffff}z", -8_957_110_683_484_463_526),
        ("x", -1_302_854_699_860_284_434),
    ];
    const BILLING_ORDERS: i64 = 2_532_131_238_985_205_708;

    #[test]
    fn numbers_survive_the_way_through_the_server() {
        for slot in [
            Slot::One(0),
            Slot::One(i64::MIN),
            Slot::One(-1),
            Slot::One(i64::MAX),
            Slot::Two(i32::MIN, -1),
            Slot::Two(7, i32::MIN),
        ] {
            let (packed, kind) =
                (slot.packed().cast_unsigned(), if let Slot::One(_) = slot { 1 } else { 2 });
            let half = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).expect("32 bits");
            assert_eq!(Slot::shown(half(packed >> 32), half(packed), kind), slot);
            assert_eq!(slot.to_string().parse::<Slot>().expect("its own text"), slot);
        }
        for bad in ["", "x", "1,2,3", "9223372036854775808", "1,2147483648", "orders"] {
            bad.parse::<Slot>().expect_err(bad);
        }
    }
}
