//! Waiting: nodes tell when a key changes, and once a majority of them may be free it is worth asking again.
//!
//! Redis tells a client that tracks a key (client-side caching, RESP3) once it changes, if the client has read it: whoever
//! changes it, a lease of ours that ends or one of another library. One change is told once; whoever finds the name still
//! held watches it again. The timer of the engine is the net.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use redis::{PushInfo, PushKind, Value};

use super::client::Client;
use crate::{Name, store::Push, stores::redis::watch::track};

/// The names that are watched, and at how many nodes each may be free: one bit a node.
#[derive(Debug, Default)]
pub(super) struct Watched(Mutex<HashMap<Name, u64>>);

impl Watched {
    /// Whether it was not watched before.
    fn begin(&self, name: &Name) -> bool {
        self.0.lock().insert(name.clone(), 0).is_none()
    }

    /// Notes that a name may be free at a node; says whether that makes a majority.
    fn free_at(&self, name: &Name, node: usize, needed: usize) -> bool {
        let mut watched = self.0.lock();
        let Some(free) = watched.get_mut(name) else { return false };
        *free |= 1 << (node % 64);
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

impl Client {
    /// Watches a name that somebody else holds, unless it is watched already.
    pub(super) fn watch(self: &Arc<Self>, name: &Name) {
        if !self.watched.begin(name) {
            return;
        }
        for (at, member) in self.members.iter().enumerate() {
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
