//! What goes to the store when: batches, withdrawals, lost completions.

use std::{future::Future, pin::Pin, sync::Arc, task::Poll, time::Duration};

use leaseward::{
    Error, Guard, Locks,
    clock::{SystemClock, VirtualClock},
    store::{Operation, Query, Store},
    stores::memory::Memory,
};

use crate::gated::{Gate, Gated};

fn behind_a_gate(one_batch_at_a_time: bool) -> (Locks, Arc<Gate>) {
    let clock = Arc::new(VirtualClock::new());
    let (store, gate) = Gated::with(Memory::new(clock.clone()), one_batch_at_a_time);
    (Locks::builder().clock(clock).over(store).expect("a runtime"), gate)
}

type Asking = Pin<Box<dyn Future<Output = Result<Guard, Error>> + Send>>;

/// Asks for a name, so far that what is sent at once has been sent.
async fn asking(locks: &Locks, name: &str) -> Asking {
    let lock = locks.lock(name).ttl(Duration::from_secs(60));
    let mut asking: Asking = Box::pin(async move { lock.acquire().await });
    std::future::poll_fn(|cx| {
        assert!(asking.as_mut().poll(cx).is_pending(), "the store has kept it");
        Poll::Ready(())
    })
    .await;
    asking
}

async fn asking_for(locks: &Locks, count: usize) -> Vec<Asking> {
    let mut all = Vec::new();
    for at in 0..count {
        all.push(asking(locks, &format!("n{at}")).await);
    }
    all
}

async fn until(mut is_so: impl FnMut() -> bool) {
    let waits = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waits).await.expect("it comes to be so");
}

#[tokio::test(start_paused = true)]
async fn a_batch_goes_once_it_is_at_least_half_of_what_is_under_way() {
    let (locks, gate) = behind_a_gate(false);
    gate.keep();
    let all = asking_for(&locks, 10).await;
    assert_eq!(gate.sizes(), [1, 1, 1, 2, 3], "two of ten wait: eight are under way");
    gate.let_go();
    for asked in all {
        drop(asked.await.expect("granted"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_wants_one_batch_at_a_time_gets_one() {
    let (locks, gate) = behind_a_gate(true);
    gate.keep();
    let all = asking_for(&locks, 10).await;
    assert_eq!(gate.sizes(), [1]);
    gate.let_go();
    assert_eq!(gate.sizes(), [1, 9]);
    for asked in all {
        drop(asked.await.expect("granted"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_does_not_stand_behind_batches_that_hang() {
    for one_batch_at_a_time in [false, true] {
        let (locks, gate) = behind_a_gate(one_batch_at_a_time);
        let held = locks.lock("held").acquire().await.expect("free");
        gate.keep();
        let _all = asking_for(&locks, 8).await;
        drop(held);
        let is_release = |operation: &Operation| matches!(operation, Operation::Release(_));
        assert!(!gate.seen().iter().any(is_release), "it waits at first");
        until(|| gate.seen().iter().any(is_release)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_ask_that_was_not_sent_is_withdrawn_and_nothing_follows() {
    let (locks, gate) = behind_a_gate(true);
    gate.keep();
    let first = asking(&locks, "first").await;
    let gives_up = asking(&locks, "unsent").await;
    drop(gives_up);
    gate.let_go();
    first.await.expect("granted").release().await.expect("ours");
    assert!(gate.seen().iter().all(|operation| operation.name().as_str() != "unsent"));
}

/// Whatever becomes of a completion, the same token asks again.
#[tokio::test(start_paused = true)]
async fn an_ask_whose_completion_is_dropped_is_asked_again() {
    let (locks, gate) = behind_a_gate(false);
    gate.keep();
    let asked = tokio::spawn(asking(&locks, "x").await);
    gate.lose();
    until(|| gate.sizes().len() == 2).await;
    let tokens: Vec<_> = gate.seen().iter().map(token_of).collect();
    assert_eq!(tokens[0], tokens[1], "another token asked while the first may hold the name");
    gate.let_go();
    drop(asked.await.expect("no panic").expect("granted"));
}

fn token_of(operation: &Operation) -> String {
    match operation {
        Operation::Ask(ask) => ask.token.reveal(),
        Operation::Renew(renew) => renew.token.reveal(),
        Operation::Release(release) => release.token.reveal(),
    }
}

/// Callers that give up anywhere leave nothing: not in the store, not in the table.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_callers_that_give_up_leave_nothing_behind() {
    let store = Arc::new(Memory::new(Arc::new(SystemClock)));
    let locks = Locks::over(store.clone()).expect("a runtime");
    let mut tasks = Vec::new();
    for at in 0..10_000_u64 {
        let lock = locks.lock(format!("n{}", at % 7));
        tasks.push(tokio::spawn(async move {
            let patience = Duration::from_micros(at * 7_919 % 3_000);
            drop(tokio::time::timeout(patience, lock.acquire()).await);
        }));
    }
    for task in tasks {
        task.await.expect("no panic");
    }
    until(|| format!("{locks:?}").contains("tokens: []")).await;
    let left = store.inspect(Query::all()).await.expect("memory answers");
    assert!(left.is_empty(), "{left:?}");
}
