//! Which keys a name has, and in which slot of a cluster they are.

use std::sync::LazyLock;

use redis::Cmd;

use super::reserved::{Reserved, SIDE};
use crate::Name;

/// The number of hash slots of every Redis Cluster.
const SLOTS: u16 = 16_384;

/// How names become keys.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: String,
    is_cluster: bool,
    reserved: Reserved,
}

/// A hash slot; always the first one without a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Slot(pub(super) u16);

impl Keys {
    pub(super) fn new(prefix: String, is_cluster: bool) -> Self {
        Self { reserved: Reserved::new(&prefix), prefix, is_cluster }
    }

    /// The names that must not become keys.
    pub(super) fn reserved(&self) -> &Reserved {
        &self.reserved
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The key that other libraries see.
    pub(super) fn lock_key(&self, name: &Name) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The name whose lock key this is.
    pub(super) fn name(&self, lock_key: &[u8]) -> Option<Name> {
        let name = lock_key.strip_prefix(self.prefix.as_bytes())?;
        let name = std::str::from_utf8(name).ok()?;
        if self.reserved.has(name) { None } else { Name::new(name).ok() }
    }

    /// Where the keys of a name are.
    pub(super) fn slot(&self, name: &Name) -> Slot {
        if self.is_cluster { slot_of(self.lock_key(name).as_bytes()) } else { Slot(0) }
    }

    /// What side keys of a slot begin with. On a cluster a tag of the same slot is put in front: the lock key itself
    /// cannot serve as tag if it has braces in it.
    pub(super) fn side(&self, slot: Slot) -> String {
        if self.is_cluster { format!("{SIDE}{{{}}}:", tag(slot)) } else { SIDE.to_owned() }
    }

    /// A pattern for what side keys begin with, in whatever slot.
    pub(super) fn any_side(&self) -> &'static str {
        if self.is_cluster { "leaseward:{*}:" } else { SIDE }
    }

    /// The name whose lock key or side key this is.
    pub(super) fn name_of_any(&self, key: &[u8]) -> Option<Name> {
        let side = key.strip_prefix(SIDE.as_bytes()).and_then(|rest| {
            let rest = match rest.strip_prefix(b"{") {
                Some(tagged) => tagged.get(tagged.iter().position(|b| *b == b'}')? + 2..)?,
                None => rest,
            };
            rest.strip_prefix(b"h:").or_else(|| rest.strip_prefix(b"q:"))
        });
        self.name(side.unwrap_or(key))
    }

    /// Adds the keys that a script call declares for a name, first of all its lock key. On a cluster the side keys too:
    /// while a slot is on the move the server then refuses a call of which it has not all keys, instead of running it on
    /// half of them.
    pub(super) fn declare(&self, name: &Name, side: &str, to: &mut Cmd, scratch: &mut String) {
        let kinds: &[&str] = if self.is_cluster { &["h:", "q:", "p:"] } else { &[] };
        scratch.clear();
        scratch.push_str(&self.prefix);
        scratch.push_str(name);
        to.arg(scratch.as_str());
        for kind in kinds {
            scratch.clear();
            for part in [side, kind, &self.prefix, name] {
                scratch.push_str(part);
            }
            to.arg(scratch.as_str());
        }
    }

    /// How many keys are declared for each lock key.
    pub(super) fn stride(&self) -> usize {
        if self.is_cluster { 4 } else { 1 }
    }

    /// The fence counter of a slot.
    pub(super) fn fence_key(&self, slot: Slot) -> String {
        self.side(slot) + "fence"
    }
}

/// The channel on which a client hears of a node.
pub(super) fn channel(client: &str) -> String {
    format!("{SIDE}c:{client}")
}

/// The slot of a key, by the rule that every client of a cluster follows: the text between the first `{` and the next
/// `}`, if there is any between them, else the whole key.
pub(super) fn slot_of(key: &[u8]) -> Slot {
    let tagged = key.iter().position(|b| *b == b'{').and_then(|open| {
        let inner = &key[open + 1..];
        inner.iter().position(|b| *b == b'}').filter(|len| *len > 0).map(|len| &inner[..len])
    });
    Slot(crc16(tagged.unwrap_or(key)) % SLOTS)
}

/// A hash tag of the same slot as a key.
pub(crate) fn tag_beside(key: &str) -> &'static str {
    tag(slot_of(key.as_bytes()))
}

/// The shortest number whose slot this is.
fn tag(slot: Slot) -> &'static str {
    static TAGS: LazyLock<Vec<Box<str>>> = LazyLock::new(|| {
        let mut tags: Vec<Box<str>> = vec![Box::default(); SLOTS.into()];
        let mut missing = SLOTS;
        for number in 0_u32.. {
            let text = number.to_string();
            let tag = &mut tags[usize::from(slot_of(text.as_bytes()).0)];
            if tag.is_empty() {
                *tag = text.into();
                missing -= 1;
            }
            if missing == 0 {
                break;
            }
        }
        tags
    });
    &TAGS[usize::from(slot.0)]
}

/// CRC-16/XMODEM, by which Redis Cluster spreads keys: fifteen lines do not need a crate.
fn crc16(bytes: &[u8]) -> u16 {
    const TABLE: [u16; 256] = {
        let mut table = [0; 256];
        let mut byte = 0_u16;
        while byte < 256 {
            let (mut crc, mut bit) = (byte << 8, 0);
            while bit < 8 {
                crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
                bit += 1;
            }
            table[byte as usize] = crc;
            byte += 1;
        }
        table
    };
    bytes.iter().fold(0, |crc, byte| crc << 8 ^ TABLE[usize::from((crc >> 8) ^ u16::from(*byte))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_every_cluster() {
        // The check value of the CRC, and slots that `CLUSTER KEYSLOT` answers.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        for (key, slot) in
            [("foo", 12_182), ("{foo}bar", 12_182), ("a{foo}b{bar}", 12_182), ("", 0)]
        {
            assert_eq!(slot_of(key.as_bytes()).0, slot, "{key}");
        }
        assert_ne!(slot_of(b"{}foo").0, 12_182, "an empty tag is no tag");
    }

    #[test]
    fn what_only_looks_like_a_side_key_is_nobodys() {
        let keys = Keys::new("lease".into(), true);
        let name = |key: &str| keys.name_of_any(key.as_bytes());
        for cut_off in
            ["leaseward:", "leaseward:{", "leaseward:{5", "leaseward:{5}", "leaseward:{5}:"]
        {
            assert_eq!(name(cut_off), None, "{cut_off}");
        }
        assert_eq!(name("leaseward:{5}:h:leasea"), Name::new("a").ok());
    }

    #[test]
    fn side_keys_share_the_slot_whatever_the_name() {
        let keys = Keys::new("lock:".into(), true);
        for name in ["plain", "{tag}:x", "a}b", "a{}b", "{", "x{y"] {
            let name = Name::new(name).expect("a name");
            let (key, slot) = (keys.lock_key(&name), keys.slot(&name));
            for side in [keys.fence_key(slot), keys.side(slot) + "q:" + &key] {
                assert_eq!(slot_of(side.as_bytes()), slot, "{side}");
            }
        }
    }
}
