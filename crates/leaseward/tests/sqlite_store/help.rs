//! What the tests share: clients, and short forms of operations.

use std::{
    path::Path,
    sync::{Arc, mpsc},
    time::Duration,
};

use leaseward::{
    Error, Mode,
    clock::{Clock, SystemClock},
    store::{
        Answer, Ask, Grant, IfBusy, LockView, OpenContext, Operation, Push, Query, Release, Renew,
        Reply, Store,
    },
    stores::sqlite::{Durability, Sqlite},
};

use crate::names::{name, token};

pub(crate) fn context(clock: Arc<dyn Clock>) -> OpenContext {
    OpenContext { clock, who: Arc::from("test:1") }
}

pub(crate) fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Sqlite, Error> {
    Sqlite::open(path, Durability::Normal, &context(clock))
}

pub(crate) fn open_now(path: &Path) -> Sqlite {
    open(path, Arc::new(SystemClock)).expect("a good path")
}

/// Collects what a store pushes.
pub(crate) fn listen(store: &dyn Store) -> mpsc::Receiver<Push> {
    let (sender, receiver) = mpsc::channel();
    store.start(Arc::new(move |push| drop(sender.send(push))));
    receiver
}

pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

pub(crate) fn one(store: &dyn Store, operation: Operation) -> Answer {
    run(store.carry_out(vec![operation])).remove(0)
}

pub(crate) fn granted(answer: Answer) -> Grant {
    match answer {
        Ok(Reply::Granted(grant)) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

pub(crate) fn all(store: &dyn Store) -> Vec<LockView> {
    run(store.inspect(Query::all())).expect("a good file")
}

pub(crate) fn ask(what: &str, who: u128, if_busy: IfBusy) -> Ask {
    Ask {
        name: name(what),
        token: token(who),
        mode: Mode::Exclusive,
        ttl: Duration::from_secs(30),
        if_busy,
        block: 1,
        value: None,
    }
}

pub(crate) fn take(what: &str, who: u128) -> Operation {
    Operation::Ask(ask(what, who, IfBusy::Tell))
}

pub(crate) fn queue(what: &str, who: u128) -> Operation {
    Operation::Ask(ask(what, who, IfBusy::Queue))
}

pub(crate) fn renew(what: &str, who: u128) -> Operation {
    let ttl = Duration::from_secs(30);
    Operation::Renew(Renew { name: name(what), token: token(who), ttl })
}

pub(crate) fn release(what: &str, who: u128) -> Operation {
    let keep = Duration::ZERO;
    Operation::Release(Release { name: name(what), token: token(who), keep })
}
