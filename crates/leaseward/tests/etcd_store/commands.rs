//! What a hand-over costs the server: the same however many wait.

use leaseward::Locks;
use leaseward_testkit::Etcd;

use crate::help::{LONG, asking, granted, lone, queue_of, take};

/// Calls the server has answered; streams are counted when they end.
fn calls(etcd: &Etcd) -> f64 {
    etcd.metric(0, "grpc_server_handled_total{grpc_code=\"OK\"")
}

/// What came over the stream of watches.
fn watch_messages(etcd: &Etcd) -> f64 {
    etcd.metric(0, "grpc_server_msg_received_total{grpc_method=\"Watch\"")
}

const HAND_OVERS: u32 = 20;

/// Calls and watch messages for each of some hand-overs while so many wait.
async fn cost(etcd: &Etcd, locks: &Locks, name: &str, waiters: usize) -> (f64, f64) {
    let held = take(locks.lock(name).ttl(LONG)).await;
    let mut waiting = std::collections::VecDeque::new();
    for at in 0..waiters {
        waiting.push_back(asking(locks.lock(name).ttl(LONG)));
        queue_of(locks, name, at + 1).await;
    }
    let before = (calls(etcd), watch_messages(etcd));
    let mut held = held;
    for _ in 0..HAND_OVERS.min(u32::try_from(waiters).expect("few")) {
        held.release().await.expect("given back");
        held = granted(waiting.pop_front().expect("one more")).await;
    }
    let after = (calls(etcd), watch_messages(etcd));
    let each = f64::from(HAND_OVERS.min(u32::try_from(waiters).expect("few")));
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    drop(held);
    ((after.0 - before.0) / each, (after.1 - before.1) / each)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_costs_the_same_however_many_wait() {
    let etcd = Etcd::start();
    let locks = lone(&etcd.url()).await;
    let many = if std::env::var_os("LEASEWARD_FULL").is_some() { 500 } else { 150 };
    let few = cost(&etcd, &locks, "few", 2).await;
    let crowd = cost(&etcd, &locks, "crowd", many).await;
    // A release and a look. Refreshes of places come on top, a third of a call a second for each
    // waiter; what is looked for is a cost for each waiter at each hand-over.
    let allowed = |few: f64| few + f64::from(u32::try_from(many).expect("few")) / 10.0;
    assert!(few.0 <= 6.0, "{few:?} with 2, {crowd:?} with {many}");
    assert!(crowd.0 <= allowed(few.0), "{few:?} with 2, {crowd:?} with {many}");
    assert!(crowd.1 <= allowed(few.1), "{few:?} with 2, {crowd:?} with {many}");
}
