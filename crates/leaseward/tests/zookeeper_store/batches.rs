//! Operations that go to the server together: each has its own answer, whatever becomes of the others.
//!
//! On one thread, so that all operations of a batch have been asked for before the first is sent.

use std::sync::Arc;

use futures_util::future::join_all;
use leaseward::{
    ErrorKind, Fence, Mode,
    store::{Answer, Ask, Break, IfBusy, LockView, Operation, Query, Release, Reply, Store},
};
use leaseward_testkit::{Proxy, ZooKeeper};

use crate::{
    help::{LONG, store, until},
    line::received,
    names::{name, token},
};

fn ask(at: u128, mode: Mode, if_busy: IfBusy, of: &str) -> Operation {
    Operation::Ask(Ask {
        name: name(of),
        token: token(at),
        mode,
        ttl: LONG,
        if_busy,
        block: 1,
        value: None,
    })
}

fn release(at: u128, of: &str) -> Operation {
    let keep = std::time::Duration::ZERO;
    Operation::Release(Release { name: name(of), token: token(at), keep })
}

/// Token `n` asks for name `n`.
fn asks(count: u128) -> Vec<Operation> {
    let one = |at: u128| ask(at, Mode::Exclusive, IfBusy::Queue, &at.to_string());
    (1..=count).map(one).collect()
}

fn releases(count: u128) -> Vec<Operation> {
    (1..=count).map(|at| release(at, &at.to_string())).collect()
}

fn fence(answer: &Answer) -> Fence {
    match answer {
        Ok(Reply::Granted(grant)) => grant.block.first,
        other => panic!("it must be granted: {other:?}"),
    }
}

async fn views(store: &Arc<dyn Store>) -> Vec<LockView> {
    let views = store.inspect(Query::all()).await.expect("it answers");
    views.into_iter().filter(|view| !view.holders.is_empty()).collect()
}

async fn view(store: &Arc<dyn Store>, at: u128) -> Option<LockView> {
    let views = store.inspect(Query::Name(name(&at.to_string()))).await.expect("it answers");
    views.into_iter().find(|view| !view.holders.is_empty())
}

/// Each is held once, with the fence that its holder was told, and nobody waits.
async fn are_held(by: &Arc<dyn Store>, answers: &[Answer]) {
    let views = views(by).await;
    assert_eq!(views.len(), answers.len());
    for view in views {
        let at: usize = view.name.parse().expect("a number");
        assert_eq!((view.holders.len(), view.waiters.len()), (1, 0), "{view:?}");
        assert_eq!(view.holders[0].fence, fence(&answers[at - 1]), "{view:?}");
    }
}

#[tokio::test]
async fn a_batch_costs_as_many_requests_as_one_operation() {
    const COUNT: u128 = 40;
    let server = ZooKeeper::start();
    for url in [server.url("open"), format!("zookeeper://me:secret@{}/own", server.hosts())] {
        let one = store(&url, "one").await;
        // Makes the nodes of the names, and the one that the session writes to.
        one.carry_out(asks(COUNT)).await;
        one.carry_out(releases(COUNT)).await;
        let before = received(&server);
        let answers = one.carry_out(asks(COUNT)).await;
        let asked = received(&server) - before;
        are_held(&one, &answers).await;
        let before = received(&server);
        let answers = one.carry_out(releases(COUNT)).await;
        let released = received(&server) - before;
        assert!(answers.iter().all(|answer| matches!(answer, Ok(Reply::Released))), "{answers:?}");
        // A transaction and a read, a transaction. Heartbeats, and the counting itself, are among them.
        assert!(asked <= 10 && released <= 10, "{asked} requests to ask, {released} to release");
        assert!(views(&one).await.is_empty());
    }
}

/// Where the transaction is numbered by another server than the one that answers, and others write meanwhile.
#[tokio::test]
async fn a_batch_at_a_follower_is_told_its_fences() {
    const COUNT: u128 = 20;
    let servers = ZooKeeper::builder().servers(3).start();
    let at = |server: usize, root: &str| {
        format!("zookeeper://127.0.0.1:{}/{root}", servers.port(server))
    };
    let (one, other) =
        tokio::join!(async { store(&at(servers.follower(), "x"), "one").await }, async {
            store(&at(servers.leader(), "y"), "other").await
        });
    for _ in 0..10 {
        let (answers, _) = tokio::join!(one.carry_out(asks(COUNT)), other.carry_out(asks(COUNT)));
        are_held(&one, &answers).await;
        tokio::join!(one.carry_out(releases(COUNT)), other.carry_out(releases(COUNT)));
    }
}

#[tokio::test]
async fn what_is_refused_in_a_batch_is_refused_by_itself() {
    const COUNT: u128 = 20;
    let server = ZooKeeper::start();
    let (one, other) = (store(&server.url("x"), "one").await, store(&server.url("x"), "two").await);
    let stranger = format!("zookeeper://me:secret@{}/x", server.hosts());
    let stranger = store(&stranger, "stranger").await;
    stranger.carry_out(vec![ask(91, Mode::Exclusive, IfBusy::Queue, "5")]).await;
    one.carry_out(asks(COUNT)).await;
    one.carry_out(releases(COUNT)).await;
    // One name's node has gone; one is held; one belongs to a stranger.
    server.remove("/x/3");
    other.carry_out(vec![ask(92, Mode::Exclusive, IfBusy::Queue, "7")]).await;
    let answers = one.carry_out(asks(COUNT)).await;
    let (refused, queued) = (&answers[4], &answers[6]);
    assert!(matches!(refused, Err(error) if error.kind() == ErrorKind::Refused), "{refused:?}");
    assert!(matches!(queued, Ok(Reply::Queued(_))), "{queued:?}");
    let others = || (1..=COUNT).zip(&answers).filter(|(at, _)| ![5, 7].contains(at));
    for (at, answer) in others() {
        let view = view(&one, at).await.expect("it is held");
        assert_eq!((view.holders.len(), view.waiters.len()), (1, 0), "{view:?}");
        assert_eq!(view.holders[0].fence, fence(answer), "{view:?}");
    }
    // One lease is ended by somebody else.
    other.break_lease(Break { name: name("1"), now: true }).await.expect("broken");
    let answers = one.carry_out(releases(COUNT)).await;
    for (at, answer) in (1..).zip(&answers) {
        let is_right = match at {
            1 => matches!(answer, Ok(Reply::NotYours(_))),
            5 => matches!(answer, Err(error) if error.kind() == ErrorKind::Refused),
            _ => matches!(answer, Ok(Reply::Released)),
        };
        assert!(is_right, "{at}: {answer:?}");
    }
    for at in (1..=COUNT).filter(|at| *at != 5) {
        let left = view(&other, at).await;
        assert_eq!(left.is_some(), at == 7, "{left:?}");
    }
    assert_eq!(view(&other, 7).await.map(|view| view.waiters.len()), Some(0));
}

/// Nodes of one transaction share its number, of which fences are made.
#[tokio::test]
async fn who_asks_for_one_name_at_the_same_time_has_a_fence_of_its_own() {
    let server = ZooKeeper::start();
    let one = store(&server.url("same"), "one").await;
    one.carry_out(vec![ask(1, Mode::Shared, IfBusy::Queue, "x")]).await;
    for mode in [Mode::Shared, Mode::Permit { capacity: 8 }] {
        one.carry_out((1..=8).map(|at| release(at, "x")).collect()).await;
        let asks = (1..=8).map(|at| one.carry_out(vec![ask(at, mode, IfBusy::Queue, "x")]));
        let others = (11..=18).map(|at| one.carry_out(vec![ask(at, mode, IfBusy::Queue, "y")]));
        join_all(asks.chain(others)).await;
        for of in ["x", "y"] {
            let view = until("all hold it", || async {
                let view = views(&one).await.into_iter().find(|view| *view.name == *of)?;
                (view.holders.len() == 8).then_some(view)
            })
            .await;
            let mut fences: Vec<_> = view.holders.iter().map(|held| held.fence).collect();
            fences.sort_unstable();
            fences.dedup();
            assert_eq!(fences.len(), 8, "{view:?}");
        }
        one.carry_out((11..=18).map(|at| release(at, "y")).collect()).await;
    }
}

/// Sends a batch until each of its operations has come to this; whether it had at once.
async fn insist(store: &Arc<dyn Store>, batch: &[Operation], is_it: fn(&Answer) -> bool) -> bool {
    let first = store.carry_out(batch.to_vec()).await;
    let mut at_once = true;
    for (operation, answer) in batch.iter().zip(first) {
        if is_it(&answer) {
            continue;
        }
        at_once = false;
        let kind = answer.as_ref().err().map(leaseward::Error::kind);
        let in_doubt = [ErrorKind::Indeterminate, ErrorKind::Unavailable].map(Some);
        assert!(in_doubt.contains(&kind), "{operation:?} came to {answer:?}");
        until("it is answered", || async {
            let answer = store.carry_out(vec![operation.clone()]).await.pop()?;
            is_it(&answer).then_some(())
        })
        .await;
    }
    at_once
}

/// Cut after every so many bytes of the answers to a batch, until it is answered whole.
#[tokio::test]
async fn a_batch_that_is_cut_at_any_step_leaves_nothing_behind() {
    const COUNT: u128 = 6;
    const STEP: usize = 40;
    let server = ZooKeeper::start();
    let proxy = Proxy::start(&format!("127.0.0.1:{}", server.port(0)));
    let url = format!("zookeeper://{}/cut?timeout=1s", proxy.address());
    let (one, other) = (store(&url, "one").await, store(&server.url("cut"), "other").await);
    let (asks, releases) = (asks(COUNT), releases(COUNT));
    let is_granted = |answer: &Answer| matches!(answer, Ok(Reply::Granted(_)));
    // One whose answer was lost is not there any more.
    let is_released = |answer: &Answer| matches!(answer, Ok(Reply::Released | Reply::NotYours(_)));
    let mut cuts = [0, 0];
    let mut is_whole = [false, false];
    while is_whole != [true, true] {
        if !is_whole[0] {
            proxy.cut_after_reply_bytes(cuts[0] * STEP);
            cuts[0] += 1;
        }
        is_whole[0] |= insist(&one, &asks, is_granted).await;
        proxy.pass();
        // The same tokens are told the same fences.
        are_held(&other, &one.carry_out(asks.clone()).await).await;
        if !is_whole[1] {
            proxy.cut_after_reply_bytes(cuts[1] * STEP);
            cuts[1] += 1;
        }
        is_whole[1] |= insist(&one, &releases, is_released).await;
        proxy.pass();
        let left = views(&other).await;
        assert!(left.is_empty(), "after {cuts:?} cuts: {left:?}");
    }
    assert!(cuts[0] > 10 && cuts[1] > 1, "cut at {cuts:?} places only");
}
