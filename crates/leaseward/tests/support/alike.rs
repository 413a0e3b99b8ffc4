//! A store on consensus beside the memory store: asked the same, the same hold and the same wait.
//!
//! Such a store counts time by its sessions, makes fences of its transactions and has every waiter look for itself. So what
//! is compared is what no clock decides: what each operation comes to, and who holds and who waits in which order once all
//! who were to be told have been.

use std::{
    collections::HashMap,
    sync::{Arc, mpsc::Receiver},
    time::{Duration, Instant},
};

use leaseward::{
    Error, Name, Token,
    clock::SystemClock,
    store::{Answer, Ask, LockView, OpenContext, Operation, Push, Query, Reply, Store, open},
    stores::memory::Memory,
};
use leaseward_testkit::PATIENCE;
use proptest::{
    prelude::*,
    test_runner::{TestCaseError, TestRunner},
};
use tokio::runtime::Runtime;

use crate::{
    names::token,
    steps::{Step, Times, a_step},
};

/// Longer than any case.
static LONG: Times =
    Times { ttls: &[60_000], renewals: &[60_000], keeps: &[0], advances: &[], set_backs: &[] };

const STEPS_MAX: usize = 16;

/// Runs random cases, each in a place of its own.
pub(crate) fn check(cases: u32, place: impl Fn(u32) -> String) {
    let runtime = Runtime::new().expect("a runtime");
    let number = std::cell::Cell::new(0);
    let config = ProptestConfig { cases, failure_persistence: None, ..Default::default() };
    let steps = prop::collection::vec(a_step(&LONG), 1..STEPS_MAX);
    let outcome = TestRunner::new(config).run(&steps, |steps| {
        number.set(number.get() + 1);
        runtime.block_on(compare(&place(number.get()), &sensible(steps)))
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

/// What both can be asked: a token belongs to one client, which asks for one thing with it,
/// until it is given back or broken.
fn sensible(mut steps: Vec<Step>) -> Vec<Step> {
    let mut wishes: HashMap<u128, Ask> = HashMap::new();
    let mut given_back: HashMap<u128, u128> = HashMap::new();
    steps.retain_mut(|step| match step {
        Step::Submit { client, batch } => {
            batch.retain(|operation| usize::from(whose(operation).random() % 2 == 1) == *client);
            for operation in &mut *batch {
                let number = whose(operation).random() & u128::from(u32::MAX);
                let times = given_back.entry(number).or_default();
                // As odd or even as before.
                let token = token(number + *times * 100);
                match operation {
                    Operation::Ask(ask) => {
                        ask.token = token.clone();
                        *ask = wishes.entry(token.random()).or_insert(ask.clone()).clone();
                    }
                    Operation::Renew(renew) => renew.token = token,
                    Operation::Release(release) => {
                        release.token = token;
                        *times += 1;
                    }
                }
            }
            !batch.is_empty()
        }
        // The others are told to stop, and do not answer here.
        Step::Break(order) => {
            for ask in wishes.values().filter(|ask| ask.name == order.name) {
                let number = ask.token.random() & u128::from(u32::MAX);
                let times = given_back.entry(number % 100).or_default();
                *times = (number / 100 + 1).max(*times);
            }
            order.now
        }
        Step::Advance(by) | Step::SetWallBack(by) => unreachable!("no time moves: {by:?}"),
    });
    steps
}

fn whose(operation: &Operation) -> &Token {
    match operation {
        Operation::Ask(ask) => &ask.token,
        Operation::Renew(renew) => &renew.token,
        Operation::Release(release) => &release.token,
    }
}

async fn client(url: &str) -> Arc<dyn Store> {
    let context = OpenContext { clock: Arc::new(SystemClock), who: Arc::from("test:1") };
    open(url, context).await.expect("the servers are reached")
}

fn listen(store: &dyn Store) -> Receiver<Push> {
    let (sender, receiver) = std::sync::mpsc::channel();
    store.start(Arc::new(move |push| drop(sender.send(push))));
    receiver
}

async fn compare(url: &str, steps: &[Step]) -> Result<(), TestCaseError> {
    let memory = Memory::new(Arc::new(SystemClock));
    let memory = [memory.another(), memory];
    let server = [client(url).await, client(url).await];
    let told = memory.each_ref().map(|store| listen(store));
    let heard = server.each_ref().map(|store| listen(store.as_ref()));
    for step in steps {
        let expected = apply(&memory.each_ref().map(|store| store as &dyn Store), step).await;
        let found = apply(&server.each_ref().map(|store| store.as_ref()), step).await;
        prop_assert_eq!(found, expected, "at {:?}", step);
        for client in 0..2 {
            for push in told[client].try_iter().filter_map(handed) {
                let got = until_handed(&heard[client], &push.0);
                prop_assert_eq!(got, Some(push.1), "pushed by {:?}", step);
            }
        }
        let expected = views(&memory[0]).await;
        let mut found = views(&*server[1]).await;
        let begin = Instant::now();
        // Which permit it is, is written once it is held.
        while found != expected && begin.elapsed() < PATIENCE / 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
            found = views(&*server[1]).await;
        }
        prop_assert_eq!(found, expected, "after {:?}", step);
    }
    for store in server {
        store.close().await;
    }
    Ok(())
}

async fn apply(stores: &[&dyn Store; 2], step: &Step) -> Vec<String> {
    match step {
        Step::Submit { client, batch } => {
            stores[*client].carry_out(batch.clone()).await.iter().map(gist).collect()
        }
        Step::Break(order) => {
            let broken = stores[0].break_lease(order.clone()).await.expect("broken");
            let mut whose: Vec<_> =
                broken.holders.iter().map(|held| held.who.to_string()).collect();
            whose.sort_unstable();
            whose
        }
        Step::Advance(_) | Step::SetWallBack(_) => Vec::new(),
    }
}

fn handed(push: Push) -> Option<(Name, String)> {
    match push {
        Push::Granted { name, token, .. } => Some((name, token.to_string())),
        _ => None,
    }
}

/// The next grant that is told, for this name.
fn until_handed(heard: &Receiver<Push>, name: &Name) -> Option<String> {
    loop {
        match heard.recv_timeout(PATIENCE).ok()? {
            Push::Granted { name: of, token, .. } if of == *name => return Some(token.to_string()),
            _ => {}
        }
    }
}

fn gist(answer: &Answer) -> String {
    match answer {
        Ok(Reply::Granted(grant)) => format!("granted {:?}", grant.slot),
        Ok(Reply::Queued(_)) => "queued".into(),
        Ok(Reply::Busy(_)) => "busy".into(),
        Ok(Reply::Renewed(_)) => "renewed".into(),
        Ok(Reply::NotYours(_)) => "not yours".into(),
        Ok(other) => format!("{other:?}"),
        Err(error) => format!("{:?}", Error::kind(error)),
    }
}

async fn views(store: &dyn Store) -> Vec<String> {
    let views = store.inspect(Query::all()).await.expect("answered");
    views.iter().filter(|view| !view.holders.is_empty()).map(view).collect()
}

fn view(view: &LockView) -> String {
    let holders =
        view.holders.iter().map(|held| format!("{} {} {:?}", held.who, held.mode, held.slot));
    let mut holders: Vec<_> = holders.collect();
    // Those who hold together are in no order.
    holders.sort_unstable();
    let waiters = view.waiters.iter().map(|waiter| format!("{} {}", waiter.who, waiter.mode));
    format!("{}: {} | {}", view.name, holders.join(", "), waiters.collect::<Vec<_>>().join(", "))
}
