//! From names to keys and back.
//!
//! A lease or a place in the queue of `name` is the key `<prefix><name>/<seat>`: what etcd's own locks look like, whose keys
//! are `<lock>/<lease>`. Whose it is stands in the value. Only `%` and `/` of a name are escaped, so that no name's keys
//! stand among another's. What begins with `%` and no two hexadecimal digits is nobody's name: there the store keeps what is
//! its own.

use std::fmt::Write as _;

use crate::Name;

#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: String,
}

/// What stands between a name and its seats.
const SEPARATOR: char = '/';

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// What all keys of a name begin with.
    pub(super) fn room(&self, name: &Name) -> Vec<u8> {
        format!("{}{}{SEPARATOR}", self.prefix, escape(name)).into_bytes()
    }

    /// What all keys of names that begin so begin with.
    pub(super) fn beginning(&self, text: &str) -> Vec<u8> {
        format!("{}{}", self.prefix, escape(text)).into_bytes()
    }

    pub(super) fn place(&self, name: &Name, seat: &str) -> Vec<u8> {
        let mut key = self.room(name);
        key.extend_from_slice(seat.as_bytes());
        key
    }

    /// Where the scale of fences is written.
    pub(super) fn scale(&self) -> Vec<u8> {
        format!("{}%scale", self.prefix).into_bytes()
    }

    /// What the keys of a semaphore's slots begin with.
    pub(super) fn slots(&self, name: &Name) -> Vec<u8> {
        format!("{}%slot/{}{SEPARATOR}", self.prefix, escape(name)).into_bytes()
    }

    pub(super) fn slot(&self, name: &Name, slot: u32) -> Vec<u8> {
        let mut key = self.slots(name);
        key.extend_from_slice(slot.to_string().as_bytes());
        key
    }

    /// The name whose key this is, if it is one's.
    pub(super) fn name_of(&self, key: &[u8]) -> Option<Name> {
        let rest = std::str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?;
        let (name, _) = rest.split_once(SEPARATOR)?;
        Name::new(&unescape(name)?).ok()
    }
}

/// The seat in a key.
pub(super) fn seat(key: &[u8]) -> &[u8] {
    key.rsplit(|byte| char::from(*byte) == SEPARATOR).next().unwrap_or(key)
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '%' | SEPARATOR => {
                let _ = write!(escaped, "%{:02X}", u32::from(letter));
            }
            other => escaped.push(other),
        }
    }
    escaped
}

fn unescape(text: &str) -> Option<String> {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        plain.push_str(before);
        plain.push(match after.get(..2)? {
            "25" => '%',
            "2F" => SEPARATOR,
            _ => return None,
        });
        rest = &after[2..];
    }
    plain.push_str(rest);
    Some(plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).expect("a good name")
    }

    #[test]
    fn plain_names_stay_readable() {
        let keys = Keys::new("locks/");
        let key = keys.place(&name("table:42 ä..b"), "2a-7");
        assert_eq!(seat(&key), b"2a-7");
        let text = String::from_utf8(key).expect("text");
        assert_eq!(text, "locks/table:42 ä..b/2a-7");
        assert_eq!(keys.room(&name("a/b%")), b"locks/a%2Fb%25/");
    }

    #[test]
    fn the_stores_own_keys_are_nobodys() {
        let keys = Keys::new("");
        assert_eq!(keys.name_of(&keys.scale()), None);
        assert_eq!(keys.name_of(&keys.slot(&name("a"), 3)), None);
    }

    proptest! {
        #[test]
        fn names_come_back_and_never_meet(one in "[a%/0-9.]{1,6}", other in "[a%/0-9.]{1,6}") {
            let keys = Keys::new("p/");
            let (first, second) = (name(&one), name(&other));
            let key = keys.place(&first, "7-1");
            prop_assert_eq!(keys.name_of(&key), Some(first));
            prop_assert_eq!(key.starts_with(&keys.room(&second)), one == other);
        }
    }
}
