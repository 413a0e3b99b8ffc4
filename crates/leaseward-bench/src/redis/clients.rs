//! Lock libraries for Redis, and the common client by itself, as one task uses them.

use std::time::Duration;

use leaseward::Locks;
use redis::{
    AsyncConnectionConfig, IntoConnectionInfo, aio::MultiplexedConnection, io::tcp::TcpSettings,
};
use rslock::LockManager;

use super::raw::{ACQUIRE, FREE, RELEASE, TTL_MS};

pub(crate) const TTL: Duration = Duration::from_secs(10);

/// Somebody who can take a name and give it back.
pub(crate) trait Client: Send + Sized + 'static {
    type Held: Send;

    /// The same for another task, and another name.
    fn join(&self, name: &str) -> impl Future<Output = Result<Self, String>> + Send;
    fn acquire(&mut self) -> impl Future<Output = Result<Self::Held, String>> + Send;
    fn release(&mut self, held: Self::Held) -> impl Future<Output = Result<(), String>> + Send;
}

/// Leaseward.
pub(crate) struct Ours {
    pub(crate) locks: Locks,
    name: String,
}

impl Ours {
    pub(crate) async fn connect(url: &str, cohorts: bool) -> Result<Self, String> {
        let locks = Locks::builder().cohorts(cohorts).connect(url).await.map_err(said)?;
        Ok(Self { locks, name: String::new() })
    }
}

impl Client for Ours {
    type Held = leaseward::Guard;

    async fn join(&self, name: &str) -> Result<Self, String> {
        Ok(Self { locks: self.locks.clone(), name: name.to_owned() })
    }

    async fn acquire(&mut self) -> Result<Self::Held, String> {
        self.locks.lock(&self.name).ttl(TTL).acquire().await.map_err(said)
    }

    async fn release(&mut self, held: Self::Held) -> Result<(), String> {
        held.release().await.map(drop).map_err(said)
    }
}

/// The library of this layout for Rust.
pub(crate) struct Rslock {
    manager: LockManager,
    name: String,
}

impl Rslock {
    pub(crate) fn connect(urls: Vec<&str>) -> Self {
        Self { manager: LockManager::new(urls), name: String::new() }
    }
}

impl Client for Rslock {
    type Held = rslock::LockGuard;

    async fn join(&self, name: &str) -> Result<Self, String> {
        Ok(Self { manager: self.manager.clone(), name: name.to_owned() })
    }

    async fn acquire(&mut self) -> Result<Self::Held, String> {
        self.manager.acquire(self.name.as_str(), TTL).await.map_err(said)
    }

    async fn release(&mut self, held: Self::Held) -> Result<(), String> {
        held.release().await;
        Ok(())
    }
}

/// The common client, one multiplexed connection for all tasks.
#[derive(Clone)]
pub(crate) struct Common {
    connection: MultiplexedConnection,
    acquire: redis::Cmd,
    release: redis::Cmd,
    work: Work,
    scripts: [String; 3],
}

/// What is done for a lock.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Work {
    /// `SET NX PX`, compare and delete.
    Plain,
    /// Also a fence, a look at the queue and what is to be known of the holder.
    Same,
    /// Also a ballot that is remembered.
    Vote,
}

impl Common {
    pub(crate) async fn connect(url: &str, work: Work) -> Result<Self, String> {
        let settings = TcpSettings::default().set_nodelay(true);
        let info = url.into_connection_info().map_err(said)?.set_tcp_settings(settings);
        let client = redis::Client::open(info).map_err(said)?;
        let config = AsyncConnectionConfig::new();
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        let mut connection = connecting.await.map_err(said)?;
        let mut scripts = [const { String::new() }; 3];
        for (sha, script) in scripts.iter_mut().zip([FREE, ACQUIRE, RELEASE]) {
            let mut load = redis::cmd("SCRIPT");
            *sha = load.arg("LOAD").arg(script).query_async(&mut connection).await.map_err(said)?;
        }
        let nothing = redis::Cmd::new();
        Ok(Self { connection, acquire: nothing.clone(), release: nothing, work, scripts })
    }
}

impl Client for Common {
    type Held = ();

    async fn join(&self, name: &str) -> Result<Self, String> {
        let mut this = self.clone();
        let requests = requests(self.work, &self.scripts, name);
        [this.acquire, this.release] = requests.map(|words| {
            let mut cmd = redis::Cmd::new();
            for word in words {
                cmd.arg(word);
            }
            cmd
        });
        Ok(this)
    }

    async fn acquire(&mut self) -> Result<(), String> {
        good(self.acquire.query_async(&mut self.connection).await)
    }

    async fn release(&mut self, (): ()) -> Result<(), String> {
        good(self.release.query_async(&mut self.connection).await)
    }
}

/// The words of an acquisition and of a release, given the names of [`FREE`], [`ACQUIRE`] and [`RELEASE`].
pub(crate) fn requests(work: Work, scripts: &[String; 3], name: &str) -> [Vec<String>; 2] {
    let token = format!("{name:0>32}");
    let [free, acquire, release] = scripts;
    let lock = format!("lock:{name}");
    let (held, queue) = (format!("held:{{{lock}}}"), format!("queue:{{{lock}}}"));
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    match work {
        Work::Plain => [
            words(&["SET", &lock, &token, "NX", "PX", TTL_MS]),
            words(&["EVALSHA", free, "1", &lock, &token]),
        ],
        Work::Same => [
            words(&[
                "EVALSHA",
                acquire,
                "4",
                &lock,
                &held,
                &queue,
                "fence",
                &token,
                TTL_MS,
                ":host:1234",
            ]),
            words(&["EVALSHA", release, "3", &lock, &held, &queue, &token]),
        ],
        Work::Vote => [
            words(&["EVALSHA", acquire, "2", &lock, &held, &token, TTL_MS, ":host:1234"]),
            words(&["EVALSHA", free, "1", &lock, &token]),
        ],
    }
}

fn good(reply: redis::RedisResult<redis::Value>) -> Result<(), String> {
    match reply {
        Ok(redis::Value::Okay) => Ok(()),
        Ok(redis::Value::Int(number)) if number > 0 => Ok(()),
        Ok(other) => Err(format!("the server said {other:?}")),
        Err(error) => Err(error.to_string()),
    }
}

pub(crate) fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}
