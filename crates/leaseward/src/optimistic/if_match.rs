//! The header `If-Match`.

use std::str::FromStr;

use super::{NoVersion, Version};

/// What an HTTP client demands of the state it changes: the header `If-Match`.
///
/// ```
/// use leaseward::optimistic::{IfMatch, Version};
///
/// let demanded: IfMatch = "\"v41\", \"v42\"".parse()?;
/// assert!(demanded.allows(Version::new(42)));
/// assert!(!demanded.allows(Version::new(43))); // answer 412 Precondition Failed
/// # Ok::<(), leaseward::optimistic::NoVersion>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IfMatch {
    /// `*`: any state, as long as there is one.
    Any,
    /// One of these. Tags of others and weak ones (`W/"…"`) are left out: they match nothing.
    OneOf(Vec<Version>),
}

impl IfMatch {
    /// Whether a state may be changed.
    pub fn allows(&self, current: Version) -> bool {
        match self {
            Self::Any => true,
            Self::OneOf(versions) => versions.contains(&current),
        }
    }
}

impl FromStr for IfMatch {
    type Err = NoVersion;

    /// # Errors
    /// [`NoVersion`] if it is no list of ETags: answer 400 Bad Request.
    fn from_str(header: &str) -> Result<Self, NoVersion> {
        if header.trim() == "*" {
            return Ok(Self::Any);
        }
        let (mut versions, mut rest) = (Vec::new(), header);
        loop {
            rest = rest.trim_start_matches([' ', '\t', ',']);
            if rest.is_empty() {
                break;
            }
            let (is_weak, tag) = match rest.strip_prefix("W/") {
                Some(tag) => (true, tag),
                None => (false, rest),
            };
            // Tags may contain commas; only the quote ends one.
            let quoted = tag.strip_prefix('"').and_then(|inner| inner.split_once('"'));
            let Some((tag, after)) = quoted else { return Err(NoVersion(header.into())) };
            if !is_weak && let Ok(version) = tag.parse() {
                versions.push(version);
            }
            rest = after.trim_start_matches([' ', '\t']);
            if !rest.is_empty() && !rest.starts_with(',') {
                return Err(NoVersion(header.into()));
            }
        }
        Ok(Self::OneOf(versions))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(numbers: &[u64]) -> IfMatch {
        IfMatch::OneOf(numbers.iter().map(|number| Version::new(*number)).collect())
    }

    #[test]
    fn reads_lists_of_tags() {
        for (header, expected) in [
            ("*", IfMatch::Any),
            ("\"v1\"", of(&[1])),
            ("\"v1\",\"v2\"", of(&[1, 2])),
            (" \"v1\" ,\t\"a,b\" , \"v3\"", of(&[1, 3])),
            ("W/\"v1\", \"v2\"", of(&[2])),
            ("W/\"v1\"", of(&[])),
            ("\"other\"", of(&[])),
            ("", of(&[])),
        ] {
            assert_eq!(header.parse(), Ok(expected), "`{header}`");
        }
        for header in ["v1", "\"v1", "\"v1\"x", "\"v1\" \"v2\"", "w/\"v1\"", "*, \"v1\""] {
            assert!(header.parse::<IfMatch>().is_err(), "`{header}`");
        }
    }

    #[test]
    fn an_empty_list_allows_nothing() {
        assert!(!of(&[]).allows(Version::new(1)));
        assert!(IfMatch::Any.allows(Version::new(1)));
    }
}
