//! The primary is lost at the worst moment.

use std::time::Duration;

use leaseward::{Attempt, Error, ErrorKind};
use leaseward_testkit::{Cluster, RedisServer, Sentinels};

use crate::help::{
    PATIENT, STRONG, acquire_in_time, blocking, connect, granted, is_held_at, primary_with,
    strong_url,
};

/// Longer than any failover.
const LONG: Duration = Duration::from_secs(600);

fn rounds() -> usize {
    if std::env::var_os("LEASEWARD_FULL").is_some() { 10 } else { 3 }
}

/// The recipe that without strong mode gives two holders every time.
#[tokio::test(flavor = "multi_thread")]
async fn with_all_replicas_required_nobody_believes_in_a_lost_grant() {
    for round in 0..rounds() {
        let set = blocking(|| Sentinels::start(2));
        blocking(|| set.primary().wait_for_replicas(2));
        let (sentinels, main) = (set.sentinel_addresses().join(","), set.master_name());
        let url = format!("redis+sentinel://{sentinels}/{main}");
        // Short, or Sentinel counts the replicas as down too.
        let strong = connect(&format!("{url}?replicas=2&replica_timeout=200ms")).await;
        drop(granted(strong.lock("before").try_acquire().await));

        blocking(|| set.isolate_replicas());
        let refusal = strong.lock("job").try_acquire().await.expect_err("no replica has it");
        assert_eq!(refusal.kind(), ErrorKind::Unavailable, "round {round}: {refusal}");
        assert!(!blocking(|| is_held_at(set.primary(), "job")), "round {round}: it was given back");
        blocking(|| {
            set.kill_primary();
            set.resume_replicas();
            set.wait_for_new_primary();
        });

        let second = connect(&url).await;
        let guard = granted(second.lock("job").try_acquire().await);
        assert!(guard.is_held(), "round {round}: the only believer");
    }
}

/// The same on a cluster, where the replica takes the primary's place by itself. What was given out is there.
#[tokio::test(flavor = "multi_thread")]
async fn on_a_cluster_no_grant_is_given_that_gets_lost() {
    for (is_cut_off, setting) in [(true, STRONG), (false, PATIENT)] {
        let cluster = blocking(Cluster::start);
        let url = format!("redis+cluster://{}", cluster.addresses().join(","));
        let strong = connect(&format!("{url}?{setting}1")).await;
        let old = cluster.primary_of("lock:job");
        blocking(|| old.wait_for_replicas(1));
        let cut_off = if is_cut_off {
            blocking(|| cluster.isolate_replicas_of(&old.address()))
        } else {
            Vec::new()
        };
        let attempt = strong.lock("job").ttl(LONG).no_renewal().try_acquire().await;
        assert_eq!(blocking(|| is_held_at(old, "job")), !is_cut_off, "else it was given back");
        blocking(|| {
            old.kill();
            cut_off.iter().for_each(|replica| replica.resume());
            cluster.wait_for_new_primary_of("lock:job", &old.address());
        });
        let second = connect(&url).await.lock("job").try_acquire().await;
        let all = [&attempt, &second].into_iter().filter(|attempt| is_believed(attempt));
        assert_eq!(all.count(), 1, "{attempt:?}, then {second:?}");
        let refused = attempt.err().map(|error| error.kind());
        assert_eq!(refused, is_cut_off.then_some(ErrorKind::Unavailable));
    }
}

fn is_believed(attempt: &Result<Attempt, Error>) -> bool {
    matches!(attempt, Ok(Attempt::Granted(guard)) if guard.is_held())
}

/// A primary and two replicas, one of which is cut off. A grant that the other acknowledged is lost if the one that was
/// cut off is promoted.
async fn after_promotion_of_the_one_cut_off(required: usize) -> (RedisServer, Outcome) {
    let (primary, mut replicas) = blocking(|| primary_with(2));
    let first = connect(&strong_url(&primary, required)).await;
    let cut_off = replicas.pop().expect("two of them");
    // What is promoted later, with what it had: nothing.
    blocking(|| cut_off.cli(&["replicaof", "no", "one"]));
    let attempt = first.lock("job").try_acquire().await;
    blocking(|| {
        primary.kill();
        replicas[0].kill();
    });
    let second = connect(&cut_off.url()).await;
    let other = second.lock("job").try_acquire().await;
    let believers = usize::from(is_believed(&other)) + usize::from(is_believed(&attempt));
    let refused = attempt.err().map(|error| error.kind());
    (cut_off, Outcome { believers, refused })
}

struct Outcome {
    believers: usize,
    refused: Option<ErrorKind>,
}

#[tokio::test(flavor = "multi_thread")]
async fn with_fewer_required_than_there_are_the_wrong_one_may_be_promoted() {
    let (_server, outcome) = after_promotion_of_the_one_cut_off(1).await;
    assert_eq!((outcome.believers, outcome.refused), (2, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn with_all_required_one_cut_off_is_enough_to_refuse() {
    let (_server, outcome) = after_promotion_of_the_one_cut_off(2).await;
    assert_eq!((outcome.believers, outcome.refused), (1, Some(ErrorKind::Unavailable)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_all_acknowledged_is_there_after_a_failover_and_clients_follow() {
    let set = blocking(|| Sentinels::start(2));
    blocking(|| set.primary().wait_for_replicas(2));
    let (sentinels, main) = (set.sentinel_addresses().join(","), set.master_name());
    let url = |replicas| format!("redis+sentinel://{sentinels}/{main}?{STRONG}{replicas}");
    let (of_all, of_one) = (connect(&url(2)).await, connect(&url(1)).await);
    let _kept = granted(of_all.lock("kept").try_acquire().await);
    let _other = granted(of_one.lock("other").try_acquire().await);
    let promoted = blocking(|| {
        set.kill_primary();
        set.wait_for_new_primary()
    });
    assert!(blocking(|| is_held_at(promoted, "kept")));
    assert!(acquire_in_time(&of_one, "after").await.is_held());
}
