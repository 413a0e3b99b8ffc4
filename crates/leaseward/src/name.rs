//! What is locked.

use std::{borrow::Borrow, fmt, ops::Deref, sync::Arc};

use crate::{Error, ErrorKind};

/// The longest name, in bytes. Fits every store's key limits with room for a prefix.
pub const NAME_MAX_BYTES: usize = 512;

/// The name of a lock: `table:42`. UTF-8, 1 to 512 bytes, no control characters.
///
/// Cheap to clone. Two names are the same lock exactly if their bytes are the same: there is no normalisation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// Checks a name.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if it is empty, longer than [`NAME_MAX_BYTES`] or holds a control character.
    pub fn new(name: impl AsRef<str>) -> Result<Self, Error> {
        let name = name.as_ref();
        if name.is_empty() {
            return Err(Error::new(ErrorKind::InvalidInput, "a lock's name must not be empty")
                .hint("name what is protected, such as `table:42`"));
        }
        if name.len() > NAME_MAX_BYTES {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!("a lock's name of {} bytes is too long", name.len()),
            )
            .hint(format!("at most {NAME_MAX_BYTES} bytes; hash what is longer")));
        }
        // Most names are plain ASCII: no need to decode them.
        let is_plain = name.bytes().all(|b| (b' '..=b'~').contains(&b));
        if !is_plain && let Some(bad) = name.chars().find(|c| c.is_control()) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!("a lock's name must not hold the control character {bad:?}"),
            )
            .hint("a stray line break is the usual cause"));
        }
        Ok(Self(Arc::from(name)))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for Name {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_no_store_should_see() {
        let long = "x".repeat(NAME_MAX_BYTES + 1);
        for bad in ["", "a\nb", "a\0b", "\u{7f}", "a\u{85}b", long.as_str()] {
            let error = Name::new(bad).expect_err(bad);
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{bad:?}");
        }
    }

    #[test]
    fn takes_any_other_text() {
        let long = "x".repeat(NAME_MAX_BYTES);
        for good in ["a", "table:42", "früh stück", "../..", "{tag}:x", "日本", long.as_str()] {
            assert_eq!(Name::new(good).expect("a good name").as_str(), good);
        }
    }
}
