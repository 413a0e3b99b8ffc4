//! Three members: the leader is killed, a follower is frozen, while locks are held, waited for and handed over.

use std::{sync::Arc, time::Duration};

use leaseward::Locks;
use leaseward_testkit::Etcd;

use crate::help::{LONG, Witness, asking, connect, granted, lone, queue_of, take, until};

fn three() -> Etcd {
    Etcd::builder().members(3).start()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_and_waited_for_outlasts_the_leader() {
    let etcd = three();
    let (one, other) = (connect(&etcd.url()).await, connect(&etcd.url()).await);
    let held = take(one.lock("x").ttl(Duration::from_secs(10))).await;
    let waiting = asking(other.lock("x").ttl(LONG));
    queue_of(&one, "x", 1).await;
    etcd.kill(etcd.leader());
    until("it is renewed", || async { held.renew().await.ok() }).await;
    assert!(held.is_held());
    let fence = held.fence();
    held.release().await.expect("given back");
    assert!(granted(waiting).await.fence() > fence);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_was_there_is_not_taken_for_a_wrong_address() {
    let etcd = Etcd::start();
    let locks = connect(&etcd.url()).await;
    etcd.kill(0);
    until("it is said that it was there", || async {
        let failure = locks.health().await.round_trip.err()?;
        failure.hint_text()?.contains("it was reached ").then_some(())
    })
    .await;
}

/// Clients that take turns as fast as they can.
async fn take_turns(clients: &[Locks], each: u32, witness: &Arc<Witness>) {
    let mut tasks = Vec::new();
    for locks in clients {
        let (locks, witness) = (locks.clone(), witness.clone());
        tasks.push(tokio::spawn(async move {
            let mut turns = 0;
            while turns < each {
                // Refused or never answered: nothing is held, try again.
                let Ok(guard) = locks.lock("x").ttl(Duration::from_secs(8)).acquire().await else {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                };
                witness.enter(guard.fence());
                tokio::task::yield_now().await;
                assert!(guard.is_held(), "it ended within its TTL");
                witness.leave();
                let _ = guard.release().await;
                turns += 1;
            }
        }));
    }
    for task in tasks {
        task.await.expect("never two at once, with growing fences");
    }
}

async fn turns_through(disturb: impl FnOnce(Arc<Etcd>) + Send + 'static) {
    let etcd = Arc::new(three());
    let url = etcd.url();
    let clients = [lone(&url).await, lone(&url).await, lone(&url).await];
    let witness = Arc::new(Witness::default());
    let disturbed = {
        let (etcd, witness) = (etcd.clone(), witness.clone());
        tokio::spawn(async move {
            until("they take turns", || async { (witness.entered() > 20).then_some(()) }).await;
            tokio::task::spawn_blocking(move || disturb(etcd)).await.expect("disturbed");
        })
    };
    take_turns(&clients, 120, &witness).await;
    disturbed.await.expect("disturbed");
    assert_eq!(witness.entered(), 360);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_go_on_when_the_leader_is_killed() {
    turns_through(|etcd| {
        let leader = etcd.leader();
        etcd.kill(leader);
        let next = etcd.leader();
        assert_ne!(next, leader);
        etcd.restart(leader);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_go_on_when_a_member_is_frozen() {
    turns_through(|etcd| {
        let follower = (etcd.leader() + 1) % 3;
        etcd.pause(follower);
        std::thread::sleep(Duration::from_secs(2));
        etcd.resume(follower);
        let leader = etcd.leader();
        etcd.pause(leader);
        std::thread::sleep(Duration::from_secs(3));
        etcd.resume(leader);
    })
    .await;
}

/// Without a majority nothing can be locked; with one again, everything can.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_majority_is_an_error_and_recovers() {
    let etcd = three();
    let locks = connect(&format!("{}?timeout=2s", etcd.url())).await;
    let held = take(locks.lock("x").ttl(Duration::from_secs(4))).await;
    let leader = etcd.leader();
    let others = [(leader + 1) % 3, (leader + 2) % 3];
    others.iter().for_each(|member| etcd.kill(*member));
    held.lost().await;
    locks.lock("y").try_acquire().await.expect_err("no majority");
    others.iter().for_each(|member| etcd.restart(*member));
    etcd.wait_until_healthy();
    let next = until("it can be locked", || async { locks.lock("x").acquire().await.ok() }).await;
    assert!(next.fence() > held.fence());
}
