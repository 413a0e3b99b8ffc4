//! The lock-order check: taking names in opposite orders is reported before it deadlocks.
//!
//! Names are grouped by their pattern, so `order:1` and `order:2` are one class. Whoever takes class B while holding
//! class A fixes the order A before B; taking them the other way round later is a violation. Within one class names are
//! to be taken in ascending order.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;

use crate::{Error, ErrorKind, Name, guard::OwnerId};

/// What to do about names taken in opposite orders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OrderCheck {
    /// Nothing: nothing is recorded.
    #[default]
    Off,
    /// Log a warning.
    Warn,
    /// Refuse with an error of kind [`ErrorKind::LockOrder`].
    Deny,
}

/// The most classes remembered; beyond it new ones are not checked. Patterns are few, unless names are chaotic.
const CLASSES_MAX: usize = 10_000;

pub(crate) struct Order {
    check: OrderCheck,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    held: HashMap<OwnerId, Vec<Name>>,
    /// What was taken while holding the key.
    after: HashMap<String, HashSet<String>>,
}

/// The pattern of a name: digits and long hexadecimal words become `*`.
pub(crate) fn class(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for word in name.split_inclusive(|c: char| !c.is_alphanumeric()) {
        let core = word.trim_end_matches(|c: char| !c.is_alphanumeric());
        let is_id = core.len() >= 8
            && core.bytes().all(|b| b.is_ascii_hexdigit())
            && core.bytes().any(|b| b.is_ascii_digit());
        if is_id {
            out.push('*');
        } else {
            let mut in_digits = false;
            for c in core.chars() {
                if c.is_ascii_digit() {
                    if !in_digits {
                        out.push('*');
                    }
                    in_digits = true;
                } else {
                    out.push(c);
                    in_digits = false;
                }
            }
        }
        out.push_str(&word[core.len()..]);
    }
    out
}

impl Order {
    pub(crate) fn new(check: OrderCheck) -> Self {
        Self { check, seen: Mutex::default() }
    }

    /// Checks a name an owner is about to take against the order seen so far.
    pub(crate) fn check(&self, owner: Option<&OwnerId>, name: &Name) -> Result<(), Error> {
        let (Some(owner), true) = (owner, self.check != OrderCheck::Off) else { return Ok(()) };
        let seen = self.seen.lock();
        let Some(held) = seen.held.get(owner) else { return Ok(()) };
        let wanted = class(name);
        for holding in held {
            let holding_class = class(holding);
            let reversed = if holding_class == wanted {
                name < holding
            } else {
                seen.reaches(&wanted, &holding_class)
            };
            if reversed {
                return self.violation(name, holding, &wanted, &holding_class);
            }
        }
        Ok(())
    }

    fn violation(&self, name: &Name, held: &Name, wanted: &str, class: &str) -> Result<(), Error> {
        let message =
            format!("taking `{name}` while holding `{held}` is against the order seen before");
        let hint = if wanted == class {
            format!(
                "take names of the pattern `{class}` in ascending order, or together with `all`"
            )
        } else {
            format!(
                "elsewhere `{wanted}` is taken before `{class}`; take both in one order, or with `all`"
            )
        };
        if self.check == OrderCheck::Warn {
            tracing::warn!(target: "leaseward", name = name.as_str(), held = held.as_str(), hint, "lock order");
            return Ok(());
        }
        Err(Error::new(ErrorKind::LockOrder, message).hint(hint))
    }

    pub(crate) fn acquired(&self, owner: Option<&OwnerId>, name: &Name) {
        let (Some(owner), true) = (owner, self.check != OrderCheck::Off) else { return };
        let mut seen = self.seen.lock();
        let wanted = class(name);
        let held = seen.held.entry(owner.clone()).or_default();
        let before: Vec<_> = held.iter().map(|name| class(name)).collect();
        held.push(name.clone());
        for earlier in before {
            if earlier != wanted && seen.after.len() < CLASSES_MAX {
                seen.after.entry(earlier).or_default().insert(wanted.clone());
            }
        }
    }

    pub(crate) fn released(&self, owner: Option<&OwnerId>, name: &Name) {
        let (Some(owner), true) = (owner, self.check != OrderCheck::Off) else { return };
        let mut seen = self.seen.lock();
        if let Some(held) = seen.held.get_mut(owner) {
            if let Some(at) = held.iter().position(|other| other == name) {
                held.remove(at);
            }
            if held.is_empty() {
                seen.held.remove(owner);
            }
        }
    }
}

impl Seen {
    /// Whether `to` was ever taken after `from`, directly or through others.
    fn reaches(&self, from: &str, to: &str) -> bool {
        let mut visited = HashSet::new();
        let mut next = vec![from];
        while let Some(class) = next.pop() {
            if class == to {
                return true;
            }
            if visited.insert(class) {
                next.extend(self.after.get(class).into_iter().flatten().map(String::as_str));
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).expect("a good name")
    }

    #[test]
    fn groups_names_by_pattern() {
        for (name, expected) in [
            ("order:1", "order:*"),
            ("order:22", "order:*"),
            ("user42:cart", "user*:cart"),
            ("job/5f2a9c01d3e4/run", "job/*/run"),
            ("deploy", "deploy"),
            ("8f14e45f-ceea-467f-a8f4-9d1c6b2e0a77", "*-ceea-*f-a*f*-*"),
        ] {
            assert_eq!(class(name), expected);
        }
    }

    #[test]
    fn opposite_orders_are_refused() {
        let order = Order::new(OrderCheck::Deny);
        let (a, b) = (OwnerId::from("a"), OwnerId::from("b"));
        order.acquired(Some(&a), &name("account:1"));
        order.acquired(Some(&a), &name("ledger"));
        order.acquired(Some(&b), &name("ledger"));
        let error = order.check(Some(&b), &name("account:2")).expect_err("reversed");
        assert_eq!(error.kind(), ErrorKind::LockOrder);
        order.released(Some(&b), &name("ledger"));
        assert!(order.check(Some(&b), &name("account:2")).is_ok());
    }

    #[test]
    fn one_class_is_taken_in_ascending_order() {
        let order = Order::new(OrderCheck::Deny);
        let owner = OwnerId::from("a");
        order.acquired(Some(&owner), &name("account:5"));
        assert!(order.check(Some(&owner), &name("account:7")).is_ok());
        assert!(order.check(Some(&owner), &name("account:3")).is_err());
    }
}
