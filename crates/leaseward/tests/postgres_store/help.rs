//! What the tests share: clients, and short forms of operations.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    time::Duration,
};

use leaseward::{
    Locks,
    store::{IfBusy, Operation, Push, Query, Release, Renew, Reply, Store},
};
use leaseward_testkit::{PATIENCE, Postgres};

pub(crate) use crate::basics::{ask, connect, granted, one, take, try_open, until};
use crate::names::{name, token};

/// Longer than any test.
pub(crate) const LONG: Duration = Duration::from_secs(3_600);

/// Whether to do what takes longer than is good for every run.
pub(crate) fn is_full() -> bool {
    std::env::var_os("LEASEWARD_FULL").is_some()
}

/// A store that hears notifications.
pub(crate) async fn open(url: &str) -> Arc<dyn Store> {
    let store = try_open(url).await.expect("the server can be reached");
    hearing(&*store).await;
    store
}

/// Waits until a store hears notifications: who waits is then told no more to ask four times a second.
pub(crate) async fn hearing(store: &dyn Store) {
    let own = own_token();
    let what = format!("warm-up-{own}");
    granted(one(store, taking(&what, own)).await);
    until("it hears", PATIENCE, || async {
        let answer = one(store, queueing(&what, own + 1)).await;
        let Ok(Reply::Queued(place)) = answer else { panic!("not queued: {answer:?}") };
        (place.standing.free_in? > Duration::from_secs(1)).then_some(())
    })
    .await;
    for who in [own + 1, own] {
        one(store, releasing(&what, who)).await.expect("given back");
    }
}

/// A token, and the one after it, that no other store of this program has.
fn own_token() -> u128 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    u128::from(NEXT.fetch_add(2, Ordering::Relaxed)) << 16
}

/// Collects what a store pushes.
pub(crate) fn listen(store: &dyn Store) -> mpsc::Receiver<Push> {
    let (sender, receiver) = mpsc::channel();
    store.start(Arc::new(move |push| drop(sender.send(push))));
    receiver
}

pub(crate) fn taking(what: &str, who: u128) -> Operation {
    Operation::Ask(ask(what, who, IfBusy::Tell, LONG))
}

pub(crate) fn queueing(what: &str, who: u128) -> Operation {
    Operation::Ask(ask(what, who, IfBusy::Queue, LONG))
}

pub(crate) fn renewing(what: &str, who: u128) -> Operation {
    Operation::Renew(Renew { name: name(what), token: token(who), ttl: LONG })
}

pub(crate) fn releasing(what: &str, who: u128) -> Operation {
    let keep = Duration::ZERO;
    Operation::Release(Release { name: name(what), token: token(who), keep })
}

/// A server for one test.
pub(crate) fn server() -> Postgres {
    Postgres::builder().in_memory().start()
}

/// A connection of a user's own.
pub(crate) async fn session(url: &str) -> tokio_postgres::Client {
    let (client, connection) =
        tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("it can be reached");
    tokio::spawn(async move { drop(connection.await) });
    client
}

/// A transaction that holds the fence row of a name until it is dropped or ended.
pub(crate) async fn holding_fence(url: &str, what: &str) -> tokio_postgres::Client {
    let client = session(url).await;
    let sql = format!("BEGIN; SELECT FROM leaseward.fences WHERE name = '{what}' FOR SHARE");
    client.batch_execute(&sql).await.expect("the row is free");
    client
}

/// Waits until that many wait for a name.
pub(crate) async fn queue_of(locks: &Locks, what: &str, count: usize) {
    until("they wait", PATIENCE, || async {
        let views = locks.inspect(Query::Name(name(what))).await.expect("the server answers");
        (views.first().map_or(0, |view| view.waiters.len()) == count).then_some(())
    })
    .await;
}
