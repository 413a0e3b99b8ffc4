//! A lock of another library, whichever it is.

use std::time::Duration;

use leaseward_testkit::peers::{Library, Peer};
use rslock::{Lock, LockManager};
use serde_json::json;

use super::help::{PATIENCE, Server};

/// Makes a test of each case with each library.
macro_rules! with_every_library {
    ($($case:ident)*) => { $(
        mod $case {
            use leaseward_testkit::peers::Library;

            use super::Other;

            #[tokio::test]
            async fn node_redlock() {
                super::$case(Other::Process(Library::NodeRedlock)).await;
            }

            #[tokio::test]
            async fn node_redlock_4() {
                super::$case(Other::Process(Library::NodeRedlock4)).await;
            }

            #[tokio::test]
            async fn redis_semaphore() {
                super::$case(Other::Process(Library::RedisSemaphore)).await;
            }

            #[tokio::test]
            async fn redis_semaphore_renewing() {
                super::$case(Other::Process(Library::RedisSemaphoreRenewing)).await;
            }

            #[tokio::test]
            async fn redis_py() {
                super::$case(Other::Process(Library::RedisPy)).await;
            }

            #[tokio::test]
            async fn rslock() {
                super::$case(Other::Rslock).await;
            }
        }
    )* };
}
pub(crate) use with_every_library;

/// Another library: in a process of its own, or the crate in ours.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Other {
    Process(Library),
    Rslock,
}

/// A client of another library, that locks one key.
pub(crate) struct Theirs {
    key: String,
    client: Client,
}

enum Client {
    Process(Peer),
    Rslock(LockManager, Option<Lock>),
}

impl Other {
    /// A client of it, on the key that it makes of a name.
    pub(crate) async fn on(self, server: &Server, name: &str) -> Theirs {
        let (key, client) = match self {
            Self::Process(library) => {
                let peer = Peer::start(library, &server.url()).await;
                (library.key(name), Client::Process(peer))
            }
            Self::Rslock => {
                let mut manager = LockManager::new(vec![server.url()]);
                manager.set_retry(1, Duration::ZERO);
                (name.to_owned(), Client::Rslock(manager, None))
            }
        };
        Theirs { key, client }
    }
}

impl Theirs {
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// Tries once.
    pub(crate) async fn acquire(&mut self, ttl: Duration) -> bool {
        match &mut self.client {
            Client::Process(peer) => {
                let order = json!({ "do": "acquire", "key": self.key, "ttl_ms": ttl.as_millis() });
                peer.call(order, PATIENCE).await["ok"] == true
            }
            Client::Rslock(manager, held) => match manager.lock(self.key.as_bytes(), ttl).await {
                Ok(lock) => {
                    *held = Some(lock);
                    true
                }
                Err(_) => false,
            },
        }
    }

    /// Lengthens what was acquired last.
    pub(crate) async fn extend(&mut self, ttl: Duration) -> bool {
        match &mut self.client {
            Client::Process(peer) => {
                let order = json!({ "do": "extend", "ttl_ms": ttl.as_millis() });
                peer.call(order, PATIENCE).await["ok"] == true
            }
            Client::Rslock(manager, held) => {
                let lock = held.as_ref().expect("it has locked before");
                manager.extend(lock, ttl).await.is_ok()
            }
        }
    }

    /// Releases what was acquired last. Whether it was still held, not all of them say.
    pub(crate) async fn release(&mut self) {
        match &mut self.client {
            Client::Process(peer) => {
                peer.call(json!({ "do": "release" }), PATIENCE).await;
            }
            Client::Rslock(manager, held) => {
                manager.unlock(held.as_ref().expect("it has locked before")).await;
            }
        }
    }

    /// Ends without a word.
    pub(crate) fn crash(self) {
        match self.client {
            Client::Process(peer) => peer.kill(),
            // It does nothing when dropped.
            Client::Rslock(..) => {}
        }
    }
}
