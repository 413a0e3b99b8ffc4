//! Waiting: nodes tell when a key changes, and once a majority of them may be free it is worth asking again.
//!
//! Redis tells a client that tracks a key (client-side caching, RESP3) once it changes, if the client has read it: whoever
//! changes it, a lease of ours that ends or one of another library. One change is told once; whoever finds the name still
//! held watches it again. The timer of the engine is the net.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use parking_lot::Mutex;
use redis::{PushInfo, PushKind, Value};

use super::client::Client;
use crate::{Name, store::Push, stores::redis::watch::track};

/// The names that are watched, and at how many nodes each may be free: one bit a node. A node whose bit is set has told
/// all that it will tell.
#[derive(Debug, Default)]
pub(super) struct Watched(Mutex<HashMap<Name, u64>>);

impl Watched {
    /// Watches a name that was found held. Says at which nodes its key is to be tracked: at all of them, or at those that
    /// have told something since, which may be held again by now.
    fn begin(&self, name: &Name) -> u64 {
        match self.0.lock().entry(name.clone()) {
            Entry::Vacant(unwatched) => {
                unwatched.insert(0);
                u64::MAX
            }
            Entry::Occupied(mut watched) => std::mem::take(watched.get_mut()),
        }
    }

    /// Notes that a name may be free at a node; says whether that makes a majority.
    fn free_at(&self, name: &Name, node: usize, needed: usize) -> bool {
        let mut watched = self.0.lock();
        let Some(free) = watched.get_mut(name) else { return false };
        *free |= bit(node);
        if usize::try_from(free.count_ones()).is_ok_and(|count| count < needed) {
            return false;
        }
        watched.remove(name);
        true
    }

    fn names(&self) -> Vec<Name> {
        self.0.lock().keys().cloned().collect()
    }
}

fn bit(node: usize) -> u64 {
    1 << (node % 64)
}

impl Client {
    /// Watches a name that somebody else holds, wherever it is not watched already.
    pub(super) fn watch(self: &Arc<Self>, name: &Name) {
        let untracked = self.watched.begin(name);
        for (at, member) in self.members.iter().enumerate() {
            if untracked & bit(at) == 0 {
                continue;
            }
            let Ok(link) = member.node.link() else { continue };
            let (client, name) = (self.clone(), name.clone());
            self.spawn(async move {
                let key = format!("{}{name}", client.prefix);
                if let Some(Value::Int(-2)) = track(&link, &key).await {
                    client.free_at(&name, at);
                }
            });
        }
    }

    /// A node told something that nobody asked for.
    pub(super) fn hear(self: &Arc<Self>, at: usize, info: &PushInfo) {
        if info.kind != PushKind::Invalidate {
            return;
        }
        match info.data.first() {
            Some(Value::Array(keys)) => {
                for key in keys {
                    if let Some(name) = self.name_of(key) {
                        self.free_at(&name, at);
                    }
                }
            }
            // All of them may have changed.
            _ => self.may_be_free_at(at),
        }
    }

    /// What happened at a node meanwhile is not known.
    fn may_be_free_at(self: &Arc<Self>, at: usize) {
        for name in self.watched.names() {
            self.free_at(&name, at);
        }
    }

    /// A node is connected, perhaps for the second time.
    pub(super) fn came_back(self: &Arc<Self>, at: usize) {
        // Whoever sends something first does this first, too; this is for when nobody does.
        self.pay_later(at);
        self.may_be_free_at(at);
    }

    fn free_at(self: &Arc<Self>, name: &Name, at: usize) {
        if self.watched.free_at(name, at, self.quorum.needed()) {
            self.push(Push::Woken { name: name.clone() });
        }
    }

    fn name_of(&self, key: &Value) -> Option<Name> {
        let Value::BulkString(key) = key else { return None };
        let name = key.strip_prefix(self.prefix.as_bytes())?;
        Name::new(std::str::from_utf8(name).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_asks_between_two_pushes_loses_neither() {
        let (watched, name) = (Watched::default(), Name::new("a").expect("a name"));
        assert_eq!(watched.begin(&name), u64::MAX, "nothing is tracked yet");
        assert_eq!(watched.begin(&name), 0, "all of them tell yet");
        assert!(!watched.free_at(&name, 1, 2));
        // Somebody asks, and it is still held by a majority: the node that told tells no more unless it is asked to.
        assert_eq!(watched.begin(&name), bit(1));
        assert!(!watched.free_at(&name, 1, 2), "asked, it says that it is still free");
        assert!(watched.free_at(&name, 2, 2), "a majority may be free");
        assert_eq!(watched.begin(&name), u64::MAX, "it was woken, and is watched anew");
    }

    #[test]
    fn a_node_that_is_held_again_does_not_count() {
        let (watched, name) = (Watched::default(), Name::new("a").expect("a name"));
        watched.begin(&name);
        assert!(!watched.free_at(&name, 0, 2));
        watched.begin(&name);
        assert!(!watched.free_at(&name, 1, 2), "one of them is free");
        assert!(watched.free_at(&name, 0, 2));
    }
}
