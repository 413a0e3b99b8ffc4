//! What the tests share: a server with a connection of its own to look behind the scenes, and our clients of it.

use std::{sync::Arc, time::Duration};

use leaseward::{
    Attempt, Busy, Error, Guard, Locks, Mode, Name, Token,
    clock::{BoxFuture, Clock, Moment, SystemClock},
    store::{self, Ask, IfBusy, OpenContext, Operation, Push, Release, Renew, Store},
};
use leaseward_testkit::{RedisBuilder, RedisServer};
use redis::{FromRedisValue, aio::MultiplexedConnection};
use tokio::{sync::mpsc, task::JoinHandle};

/// Far more than anything here takes, even on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A time to live that does not end within a test.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// A server, and a look at it.
pub(crate) struct Server {
    pub(crate) server: RedisServer,
    connection: MultiplexedConnection,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::with(RedisServer::builder()).await
    }

    pub(crate) async fn with(options: RedisBuilder) -> Self {
        let server = options.start();
        let client = redis::Client::open(server.url()).expect("a URL");
        let connection = client.get_multiplexed_async_connection().await.expect("it answers");
        Self { server, connection }
    }

    /// For clients of other libraries.
    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    /// For ours, with the key of a name being the name.
    pub(crate) fn our_url(&self) -> String {
        format!("{}?prefix=", self.server.url())
    }

    pub(crate) async fn locks(&self) -> Locks {
        leaseward::connect(&self.our_url()).await.expect("the server is there")
    }

    /// A client whose time stands still: no refresh and no look at the end of a lease ever comes. What wakes its
    /// waiters was pushed.
    pub(crate) async fn timeless_locks(&self) -> Locks {
        Self::timeless(&self.our_url()).await
    }

    /// The same, at another URL.
    pub(crate) async fn timeless(url: &str) -> Locks {
        let clock = Arc::new(StillClock);
        Locks::builder().clock(clock).connect(url).await.expect("the server is there")
    }

    /// The seam itself.
    pub(crate) async fn store(&self, settings: &str) -> Arc<dyn Store> {
        self.store_and_pushes(settings).await.0
    }

    /// The seam, and what it pushes.
    pub(crate) async fn store_and_pushes(
        &self,
        settings: &str,
    ) -> (Arc<dyn Store>, mpsc::UnboundedReceiver<Push>) {
        let context = OpenContext { clock: Arc::new(SystemClock), who: Arc::from("test:1") };
        let url = format!("{}{settings}", self.our_url());
        let store = store::open(&url, context).await.expect("the server is there");
        let (sender, pushes) = mpsc::unbounded_channel();
        store.start(Arc::new(move |push| drop(sender.send(push))));
        (store, pushes)
    }

    /// A way to it beside ours.
    pub(crate) fn connection(&self) -> MultiplexedConnection {
        self.connection.clone()
    }

    /// What the server answers to a command.
    pub(crate) async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        let answer = command.query_async(&mut self.connection.clone()).await;
        answer.unwrap_or_else(|error| panic!("{}: {error}", words.join(" ")))
    }

    pub(crate) async fn do_it(&self, words: &[&str]) {
        let _: redis::Value = self.ask(words).await;
    }

    pub(crate) async fn pipeline(&self, commands: &redis::Pipeline) {
        let answer = commands.query_async::<redis::Value>(&mut self.connection.clone()).await;
        answer.expect("the server is there");
    }

    pub(crate) async fn pttl(&self, key: &str) -> i64 {
        self.ask(&["PTTL", key]).await
    }

    pub(crate) async fn value(&self, key: &str) -> Option<Vec<u8>> {
        self.ask(&["GET", key]).await
    }

    /// A number of the server's own books.
    pub(crate) async fn figure(&self, section: &str, of: &str) -> u64 {
        let info: String = self.ask(&["INFO", section]).await;
        let figure = info.lines().find_map(|line| line.strip_prefix(of)?.strip_prefix(':'));
        figure.map_or(0, |text| {
            let text = text.split(',').next().and_then(|text| text.rsplit('=').next());
            text.and_then(|text| text.parse().ok()).expect("a number")
        })
    }

    /// How often our script has been called.
    pub(crate) async fn calls(&self) -> u64 {
        self.figure("commandstats", "cmdstat_evalsha").await
    }

    /// Waits for what the server alone knows.
    pub(crate) async fn until(&self, what: &str, is_so: impl AsyncFn(&Self) -> bool) {
        let wait = async {
            while !is_so(self).await {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let outcome = tokio::time::timeout(PATIENCE, wait).await;
        assert!(outcome.is_ok(), "not within {PATIENCE:?}: {what}");
    }

    /// Waits until so many places are taken in the queue of a key.
    pub(crate) async fn until_waiting(&self, key: &str, places: u64) {
        let queue = format!("leaseward:q:{key}");
        self.until("places in the queue", async |server| {
            server.ask::<u64>(&["LLEN", &queue]).await == 2 * places
        })
        .await;
    }

    /// Waits until some client of ours is told of changes of a key.
    pub(crate) async fn until_watched(&self) {
        self.until("a key is watched", async |server| {
            server.figure("stats", "tracking_total_keys").await == 1
        })
        .await;
    }
}

#[derive(Debug)]
struct StillClock;

impl Clock for StillClock {
    fn now(&self) -> Moment {
        Moment::from_nanos(1_000_000_000_000)
    }

    fn wall_us(&self) -> u64 {
        1_700_000_000_000_000
    }

    fn sleep_until(&self, _at: Moment) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

/// Who is in the way.
pub(crate) fn busy(attempt: Result<Attempt, Error>) -> Busy {
    match attempt {
        Ok(Attempt::Busy(busy)) => busy,
        other => panic!("not busy: {other:?}"),
    }
}

/// Somebody of ours who waits.
pub(crate) fn wait_for(locks: &Locks, key: &str) -> JoinHandle<Guard> {
    // No longer than what a hand-over gives, so that no renewal has to lift it to its full length.
    let lock = locks.lock(key).ttl(Duration::from_secs(10));
    tokio::spawn(async move { lock.acquire().await.expect("it comes free") })
}

/// The end of such a wait.
pub(crate) async fn served(waiting: JoinHandle<Guard>) -> Guard {
    in_time(waiting).await.expect("nobody panicked")
}

pub(crate) async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("it does not take that long")
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).expect("a good name")
}

pub(crate) fn token(random: u128) -> Token {
    Token::new(random << 96 | random, Arc::from(format!("host:{random}")))
}

fn ask(what: &str, who: u128, if_busy: IfBusy) -> Operation {
    Operation::Ask(Ask {
        name: name(what),
        token: token(who),
        mode: Mode::Exclusive,
        ttl: Duration::from_secs(30),
        if_busy,
        block: 1,
        value: None,
    })
}

pub(crate) fn take(what: &str, who: u128) -> Operation {
    ask(what, who, IfBusy::Tell)
}

pub(crate) fn queue(what: &str, who: u128) -> Operation {
    ask(what, who, IfBusy::Queue)
}

pub(crate) fn renew(what: &str, who: u128) -> Operation {
    let ttl = Duration::from_secs(30);
    Operation::Renew(Renew { name: name(what), token: token(who), ttl })
}

pub(crate) fn release(what: &str, who: u128) -> Operation {
    Operation::Release(Release { name: name(what), token: token(who), keep: Duration::ZERO })
}
