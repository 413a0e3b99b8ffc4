//! What the tests share.

use std::{sync::Arc, time::Duration};

use leaseward::{
    Attempt, Error, Guard, Locks, Mode, Name, Token,
    clock::SystemClock,
    store::{self, Answer, Ask, IfBusy, OpenContext, Operation, Query, Renew, Store},
};
use leaseward_testkit::{PATIENCE, RedisServer};

/// The primary's key of a lock named `name`.
pub(crate) fn is_held_at(server: &RedisServer, name: &str) -> bool {
    server.cli(&["exists", &format!("lock:{name}")]) == "1"
}

/// A primary with replicas that follow it.
pub(crate) fn primary_with(replicas: usize) -> (RedisServer, Vec<RedisServer>) {
    let primary = RedisServer::start();
    let replicas: Vec<_> =
        (0..replicas).map(|_| RedisServer::builder().replica_of(&primary).start()).collect();
    primary.wait_for_replicas(replicas.len());
    (primary, replicas)
}

/// Far longer than a replica needs: this machine may be busy.
pub(crate) const STRONG: &str = "replica_timeout=500ms&replicas=";

/// For replicas that are there: they are waited for no longer than they need.
pub(crate) const PATIENT: &str = "replica_timeout=10s&replicas=";

pub(crate) fn strong_url(server: &RedisServer, replicas: usize) -> String {
    format!("{}?{STRONG}{replicas}", server.url())
}

pub(crate) async fn connect(url: &str) -> Locks {
    Locks::builder().connect(url).await.expect("the server can be reached")
}

pub(crate) fn granted(attempt: Result<Attempt, Error>) -> Guard {
    match attempt.expect("the store answers") {
        Attempt::Granted(guard) => guard,
        other => panic!("the lock was expected to be free, not {other:?}"),
    }
}

/// Asks again while it is refused: replicas may have come back, and the breaker is not asked at once.
pub(crate) async fn acquire_in_time(locks: &Locks, name: &str) -> Guard {
    let acquire = async {
        loop {
            match locks.lock(name).acquire().await {
                Ok(guard) => return guard,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    tokio::time::timeout(PATIENCE, acquire).await.expect("it works again")
}

/// Waits until so many wait for a name in the store.
pub(crate) async fn wait_for_waiters(locks: &Locks, name: &str, count: usize) {
    let look = async {
        loop {
            let views = locks.inspect(Query::all()).await.expect("the store answers");
            let view = views.iter().find(|view| view.name.as_str() == name);
            if view.is_some_and(|view| view.waiters.len() == count) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, look).await.expect("they wait");
}

/// A client without an engine.
pub(crate) struct Bare(Arc<dyn Store>);

impl Bare {
    pub(crate) async fn open(url: &str) -> Self {
        let context = OpenContext { clock: Arc::new(SystemClock), who: Arc::from("bare") };
        let store = store::open(url, context).await.expect("the server can be reached");
        store.start(Arc::new(|_| {}));
        Self(store)
    }

    pub(crate) fn token(&self) -> Token {
        Token::new(rand::random(), Arc::from("bare"))
    }

    pub(crate) async fn ask(&self, name: &str, token: &Token) -> Answer {
        let ask = Ask {
            name: Name::new(name).expect("a good name"),
            token: token.clone(),
            mode: Mode::Exclusive,
            ttl: Duration::from_secs(30),
            if_busy: IfBusy::Queue,
            block: 1,
            value: None,
        };
        self.send(Operation::Ask(ask)).await
    }

    pub(crate) async fn renew(&self, name: &str, token: &Token) -> Answer {
        let (name, ttl) = (Name::new(name).expect("a good name"), Duration::from_secs(30));
        self.send(Operation::Renew(Renew { name, token: token.clone(), ttl })).await
    }

    async fn send(&self, operation: Operation) -> Answer {
        self.0.carry_out(vec![operation]).await.pop().expect("an answer for each operation")
    }
}

/// Keeps the test's thread free for the client while something blocks.
pub(crate) fn blocking<T>(work: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(work)
}
