//! Waiting for clients of other libraries: nobody of ours hands their locks over, so the key itself is watched.
//!
//! Redis tells a client that tracks a key (client-side caching, RESP3) once it changes, if the client has read it. Keys
//! are tracked one by one, by name: tracking whatever scripts read would have the server remember every key ever
//! released. One change is told once; whoever finds the name still held watches it again.

use std::{
    collections::HashSet,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use redis::Value;

use super::{client::Client, node::Link};
use crate::{Name, store::Push};

/// Where the server does not let us watch, the name is asked for again this often.
const POLL: Duration = Duration::from_millis(250);

/// The names that are watched.
#[derive(Debug, Default)]
pub(super) struct Watched(Mutex<HashSet<Name>>);

impl Watched {
    /// Whether it was not watched before.
    fn begin(&self, name: &Name) -> bool {
        self.0.lock().insert(name.clone())
    }

    fn end(&self, name: &Name) -> bool {
        self.0.lock().remove(name)
    }

    /// Ends all watches: those of a connection end with it.
    pub(super) fn end_all(&self) -> HashSet<Name> {
        std::mem::take(&mut *self.0.lock())
    }
}

/// What came of an attempt to watch a key.
enum Armed {
    Watching,
    /// The key is gone already.
    Free,
    /// The server does not let us, or the connection is gone.
    No,
}

impl Client {
    /// Watches a name that somebody else holds, if it is not watched yet.
    pub(super) fn watch(self: &Arc<Self>, name: &Name) {
        if !self.watched.begin(name) {
            return;
        }
        let (client, name) = (self.clone(), name.clone());
        self.spawn(async move {
            match client.arm(&name).await {
                Armed::Watching => {}
                Armed::Free => client.changed(&name),
                Armed::No => {
                    tokio::time::sleep(POLL).await;
                    client.changed(&name);
                }
            }
        });
    }

    async fn arm(&self, name: &Name) -> Armed {
        let key = self.keys.lock_key(name);
        let node = self.servers().node_of(self.keys.slot(name));
        let Ok(link) = node.and_then(|node| node.link()) else { return Armed::No };
        match track(&link, &key).await {
            Some(Value::Int(-2)) => Armed::Free,
            Some(Value::Int(_)) => Armed::Watching,
            _ => Armed::No,
        }
    }

    /// The server says that keys have changed, or, without any, that all may have.
    pub(super) fn invalidated(&self, data: &[Value]) {
        match data.first() {
            Some(Value::Array(keys)) => {
                for key in keys {
                    if let Value::BulkString(key) = key
                        && let Some(name) = self.keys.name(key)
                    {
                        self.changed(&name);
                    }
                }
            }
            _ => {
                for name in self.watched.end_all() {
                    self.push(Push::Woken { name });
                }
            }
        }
    }

    fn changed(&self, name: &Name) {
        if self.watched.end(name) {
            self.push(Push::Woken { name: name.clone() });
        }
    }
}

/// Reads a key's remaining time such that the next change of the key is told.
pub(in crate::stores) async fn track(link: &Link, key: &str) -> Option<Value> {
    let mut pipeline = redis::pipe();
    if !link.is_tracking.load(Ordering::Acquire) {
        pipeline.cmd("CLIENT").arg("TRACKING").arg("ON").arg("OPTIN");
    }
    pipeline.cmd("CLIENT").arg("CACHING").arg("YES");
    pipeline.cmd("PTTL").arg(key);
    let mut answers = link.pipeline(&pipeline).await.ok()?;
    let left = answers.pop()?;
    if answers.iter().any(|answer| matches!(answer, Value::ServerError(_))) {
        return None;
    }
    link.is_tracking.store(true, Ordering::Release);
    Some(left)
}
