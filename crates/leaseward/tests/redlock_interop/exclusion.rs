//! They keep us out, and we keep them out.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use leaseward::{Attempt, ErrorKind, LostReason, Release};
use leaseward_testkit::{PATIENCE as SOON, RedisServer, eventually, peers::Library};

use crate::{
    help::{LONG, Theirs, busy, in_time, ours, with_both_versions},
    nodes::Nodes,
};

const STRANGER: &str = "a client of another library";

/// Long enough for a slow machine to lengthen it in time.
const SHORT: Duration = Duration::from_millis(1_500);

with_both_versions! {
    theirs_keeps_ours_out
    ours_keeps_theirs_out
    what_a_majority_has_keeps_out_who_finds_the_others_free
    renewals_keep_the_other_out
    nobody_touches_what_another_took_meanwhile
    a_crash_ends_with_its_ttl
}

fn values(nodes: &[RedisServer], key: &str) -> Vec<String> {
    nodes.iter().map(|node| node.cli(&["get", key])).collect()
}

async fn theirs_keeps_ours_out(library: Library) {
    let nodes = Nodes::keeping();
    let (mut theirs, locks) = (Theirs::start(library, &nodes).await, ours(&nodes).await);
    assert!(theirs.acquire("a", LONG).await);
    let before = values(&nodes, "a");
    for lock in [locks.lock("a"), locks.lock("a").shared()] {
        let holder = busy(lock.try_acquire().await).holder.expect("somebody has it");
        assert_eq!(&*holder.who, STRANGER);
        assert!(holder.remaining.is_some_and(|left| left <= LONG), "{holder:?}");
    }
    let several = locks.all(["a", "b"]).try_acquire().await.expect("they answer");
    assert!(format!("{several:?}").contains(STRANGER), "{several:?}");
    assert_eq!(values(&nodes, "a"), before, "nothing of theirs is touched");
    assert!(values(&nodes, "b").iter().all(String::is_empty), "it comes after `a`");
    theirs.release().await;
    let guard = in_time(locks.lock("a").acquire()).await.expect("it is free");
    assert_eq!(guard.release().await.expect("they answer"), Release::Released);
}

async fn ours_keeps_theirs_out(library: Library) {
    let nodes = Nodes::keeping();
    let (mut theirs, locks) = (Theirs::start(library, &nodes).await, ours(&nodes).await);
    for lock in [locks.lock("a"), locks.lock("a").shared()] {
        let guard = lock.ttl(LONG).acquire().await.expect("it is free");
        assert!(!theirs.acquire("a", LONG).await);
        guard.renew().await.expect("it is ours");
        assert!(!theirs.acquire("a", LONG).await);
        guard.release().await.expect("they answer");
        eventually("it is free everywhere", SOON, || {
            values(&nodes, "a").iter().all(String::is_empty).then_some(())
        });
        assert!(theirs.acquire("a", LONG).await);
        theirs.release().await;
    }
}

async fn what_a_majority_has_keeps_out_who_finds_the_others_free(library: Library) {
    let nodes = Nodes::keeping();
    let (mut theirs, locks) = (Theirs::start(library, &nodes).await, ours(&nodes).await);
    // Not the first: it is the one that they are started with.
    let away = [2, 4];
    away.iter().for_each(|at| nodes[*at].kill());
    let lock = locks.lock("a").ttl(LONG).no_renewal();
    let guard = in_time(lock.acquire()).await.expect("three are enough");
    away.iter().for_each(|at| nodes[*at].restart());
    assert!(!theirs.acquire("a", LONG).await, "two are not");
    guard.release().await.expect("they answer");
    let taken = async {
        while !theirs.acquire("a", LONG).await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    in_time(taken).await;
    away.iter().for_each(|at| nodes[*at].kill());
    assert!(busy(locks.lock("a").try_acquire().await).holder.is_some());
}

/// A machine, or the disk that the nodes wait for, may stand still for longer than a lease lasts: then it ends, as it should,
/// and it is tried again with twice the time. Without a standstill that somebody else has seen, it must not.
async fn renewals_keep_the_other_out(library: Library) {
    for doubled in 0..4 {
        let ttl = SHORT * 2_u32.pow(doubled);
        let nodes = Arc::new(Nodes::keeping());
        let witness = Witness::start(nodes.clone());
        let outcome = both_are_kept(library, &nodes, ttl).await;
        let longest = witness.end();
        match outcome {
            Ok(()) => return,
            Err(why) => {
                assert!(longest >= ttl / 3, "{why}, and all nodes took {longest:?} at most")
            }
        }
    }
    panic!("the nodes stand still again and again");
}

async fn both_are_kept(library: Library, nodes: &Nodes, ttl: Duration) -> Result<(), &'static str> {
    let (mut theirs, locks) = (Theirs::start(library, nodes).await, ours(nodes).await);
    // Ours renews by itself: held for more than its TTL.
    let guard = locks.lock("a").ttl(ttl).acquire().await.expect("it is free");
    let begun = Instant::now();
    while begun.elapsed() <= 2 * ttl {
        if theirs.acquire("a", LONG).await {
            assert!(!guard.is_held(), "both have it");
            return Err("ours was not kept");
        }
        tokio::time::sleep(ttl / 5).await;
    }
    if !guard.is_held() {
        return Err("ours was lost");
    }
    guard.release().await.expect("they answer");
    // Theirs is lengthened by hand.
    let taken = async {
        while !theirs.acquire("a", ttl).await {
            tokio::time::sleep(ttl / 10).await;
        }
    };
    in_time(taken).await;
    let begun = Instant::now();
    while begun.elapsed() <= 2 * ttl {
        if !theirs.extend(ttl).await {
            return Err("theirs was lost");
        }
        let attempt = locks.lock("a").try_acquire().await;
        if let Ok(Attempt::Granted(guard)) = &attempt {
            assert!(!theirs.extend(ttl).await, "both have it: {guard:?}");
            return Err("theirs was not kept");
        }
        let holder = busy(attempt).holder;
        assert_eq!(holder.as_ref().map(|holder| &*holder.who), Some(STRANGER));
        tokio::time::sleep(ttl / 5).await;
    }
    theirs.release().await;
    Ok(())
}

/// Writes to all nodes, again and again, and keeps how long that took at most.
struct Witness {
    is_over: Arc<AtomicBool>,
    writing: thread::JoinHandle<Duration>,
}

impl Witness {
    fn start(nodes: Arc<Nodes>) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let told = is_over.clone();
        let writing = thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while !told.load(Ordering::Relaxed) {
                let begun = Instant::now();
                nodes.iter().for_each(|node| drop(node.cli(&["set", "witness", "1"])));
                // Not all the time: a standstill is seen also if it begins now.
                thread::sleep(SHORT / 20);
                longest = longest.max(begun.elapsed());
            }
            longest
        });
        Self { is_over, writing }
    }

    fn end(self) -> Duration {
        self.is_over.store(true, Ordering::Relaxed);
        self.writing.join().expect("no panic")
    }
}

async fn nobody_touches_what_another_took_meanwhile(library: Library) {
    let nodes = Nodes::keeping();
    let (mut theirs, locks) = (Theirs::start(library, &nodes).await, ours(&nodes).await);
    let guard = locks.lock("a").ttl(LONG).no_renewal().acquire().await.expect("it is free");
    eventually("all have it", SOON, || {
        values(&nodes, "a").iter().all(|value| !value.is_empty()).then_some(())
    });
    nodes.iter().for_each(|node| drop(node.cli(&["del", "a"])));
    assert!(theirs.acquire("a", LONG).await);
    let before = values(&nodes, "a");
    assert_eq!(guard.renew().await.expect_err("it is theirs").kind(), ErrorKind::Lost);
    assert_eq!(guard.lost().await, LostReason::NotOurs);
    assert_eq!(guard.release().await.expect("an answer"), Release::AlreadyExpired);
    assert_eq!(values(&nodes, "a"), before);
}

async fn a_crash_ends_with_its_ttl(library: Library) {
    let nodes = Nodes::keeping();
    let (mut theirs, locks) = (Theirs::start(library, &nodes).await, ours(&nodes).await);
    assert!(theirs.acquire("a", SHORT).await);
    theirs.crash();
    let guard = in_time(locks.lock("a").acquire()).await.expect("its time ends");
    assert!(guard.is_held());
}
