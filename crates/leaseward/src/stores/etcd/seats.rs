//! Which key a token gets: one that this client has used for the same name before, if there is one.
//!
//! etcd remembers every key that ever was until its history is compacted, and walks over all of them when it reads a
//! name's: with a new key for each lease a busy lock would become slower with every use. So a key is used again, but only
//! if nothing that was sent for it can still be under way: whoever comes late would meet somebody else there.

use std::collections::HashMap;

use super::keys::Keys;
use crate::Name;

/// How many keys are kept to be used again. Names that are used once are many.
const FREE_MAX: usize = 4_096;

pub(super) struct Seats {
    /// No other client's seats begin so.
    client: u64,
    last: u64,
    free: HashMap<Name, Vec<Vec<u8>>>,
    count: usize,
}

impl Default for Seats {
    fn default() -> Self {
        Self { client: rand::random(), last: 0, free: HashMap::new(), count: 0 }
    }
}

impl Seats {
    /// A key that nobody uses.
    pub(super) fn take(&mut self, keys: &Keys, name: &Name) -> Vec<u8> {
        if let Some(free) = self.free.get_mut(name)
            && let Some(key) = free.pop()
        {
            self.count -= 1;
            if free.is_empty() {
                self.free.remove(name);
            }
            return key;
        }
        self.last += 1;
        keys.place(name, &format!("{:016x}-{}", self.client, self.last))
    }

    /// A key that is deleted, and that nothing under way names any more.
    pub(super) fn give_back(&mut self, name: &Name, key: Vec<u8>) {
        if self.count >= FREE_MAX {
            self.free.clear();
            self.count = 0;
        }
        self.free.entry(name.clone()).or_default().push(key);
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).expect("a good name")
    }

    #[test]
    fn a_key_is_used_again_for_its_own_name_only() {
        let (keys, mut seats) = (Keys::new("p/"), Seats::default());
        let (one, other) = (seats.take(&keys, &name("a")), seats.take(&keys, &name("a")));
        assert_ne!(one, other);
        seats.give_back(&name("a"), one.clone());
        assert_ne!(seats.take(&keys, &name("b")), one);
        assert_eq!(seats.take(&keys, &name("a")), one);
        assert!(!seats.free.contains_key(&name("a")), "nothing is kept of it");
        assert_ne!(seats.take(&keys, &name("a")), one);
    }

    #[test]
    fn they_are_bounded() {
        let (keys, mut seats) = (Keys::new("p/"), Seats::default());
        for at in 0..FREE_MAX * 2 {
            let name = name(&at.to_string());
            let key = seats.take(&keys, &name);
            seats.give_back(&name, key);
        }
        assert!(seats.free.len() <= FREE_MAX && seats.count == seats.free.len());
    }
}
