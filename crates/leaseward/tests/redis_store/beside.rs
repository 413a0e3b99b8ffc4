//! One key says that something stands beside the lock keys of some names: where it is missing, nobody looks for that.

use std::{collections::BTreeSet, time::Duration};

use leaseward::store::{Answer, IfBusy, Operation, Release, Renew, Reply};
use leaseward_testkit::{Cluster, RedisServer, Skew};

use crate::{
    help::{
        LONG, ask, keys, listen, one, open, owner, queueing, reading, releasing, something_unusual,
        taking,
    },
    names::{name, token},
};

pub(crate) const SIGN: &str = "leaseward:beside";
const SHORT: Duration = Duration::from_secs(1);

fn lasts(server: &RedisServer, key: &str) -> i64 {
    server.cli(&["pttl", key]).parse().expect("a number")
}

/// Whatever stands beside lock keys, it is said for as long as that lasts. Answers what stands there.
pub(crate) fn assert_announced(server: &RedisServer) -> Vec<String> {
    let mut beside = keys(server);
    beside.retain(|key| key.contains(":h:") || key.contains(":q:"));
    for key in &beside {
        let side = key.split_once("h:").or(key.split_once("q:")).expect("a side key").0;
        // Asked for first: the time that passes between the two makes what is said no longer.
        let said = lasts(server, &format!("{side}beside"));
        let longest = lasts(server, key);
        // Or it has just ended.
        let is_gone = longest == -2;
        let is_said = longest >= 0 && said >= longest;
        assert!(is_gone || is_said, "{key} lasts {longest} ms, said for {said}");
    }
    beside
}

/// The last batch of each round makes something stand beside a lock key, or last longer: in the usual way and, together with
/// something unusual, in the careful one.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_stands_beside_a_lock_key_is_announced() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let _pushes = listen(&*store);
    let longer = Operation::Renew(Renew { name: name("a"), token: token(1), ttl: 2 * LONG });
    let kept = Operation::Release(Release { name: name("a"), token: token(1), keep: LONG });
    let rounds: [(&str, Vec<Vec<Operation>>); 7] = [
        ("q", vec![vec![taking("a", 1)], vec![queueing("a", 2)]]),
        (
            "q",
            vec![
                vec![taking("a", 1)],
                vec![queueing("a", 2)],
                vec![releasing("a", 1), queueing("a", 3)],
            ],
        ),
        ("h", vec![vec![taking("a", 1)], vec![longer.clone()]]),
        ("h", vec![vec![taking("a", 1)], vec![longer.clone()], vec![longer]]),
        ("h", vec![vec![reading("a", 1)]]),
        ("h", vec![vec![reading("a", 1)], vec![reading("a", 2)], vec![releasing("a", 2)]]),
        ("h", vec![vec![taking("a", 1)], vec![kept]]),
    ];
    for is_usual in [true, false] {
        for (kind, round) in &rounds {
            server.cli(&["flushall"]);
            for batch in round {
                server.cli(&["del", SIGN]);
                let rest = (!is_usual).then(something_unusual);
                for answer in store.carry_out(batch.iter().cloned().chain(rest).collect()).await {
                    answer.expect("it is carried out");
                }
            }
            let stands = assert_announced(&server);
            assert_eq!(stands, [format!("leaseward:{kind}:lock:a")], "{is_usual}: {round:?}");
        }
    }
}

/// The first of many that are asked for at once is not free, although its lock key is gone; the others are.
fn assert_only_the_first_is_busy(answers: &[Answer]) {
    let (first, rest) = answers.split_first().expect("there are many");
    assert!(matches!(first, Ok(Reply::Busy(_))), "{first:?}");
    assert!(rest.iter().all(|answer| matches!(answer, Ok(Reply::Granted(_)))), "{rest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_not_free_without_a_lock_key_is_found_among_many() {
    let skew = Skew::new();
    let server = RedisServer::builder().skew(&skew).start();
    let store = open(&server.url()).await;
    let _pushes = listen(&*store);
    let asked = || ('a'..='p').map(|what| taking(&what.to_string(), 9)).collect::<Vec<_>>();
    // Its holder vanished, and somebody waits who has not asked again yet.
    let short = Operation::Ask(ask("a", 1, IfBusy::Tell, SHORT));
    for operation in [short, queueing("a", 2)] {
        one(&*store, operation).await.expect("carried out");
    }
    skew.set_ms(2_000);
    assert_eq!(server.cli(&["exists", "lock:a"]), "0");
    assert_only_the_first_is_busy(&store.carry_out(asked()).await);
    assert_eq!(owner(&server, "lock:a"), token(2).reveal(), "it was the turn of who waited");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_slot_of_a_cluster_has_a_sign_of_its_own_that_ends_by_itself() {
    let cluster = Cluster::start_without_replicas();
    let store = open(&format!("redis+cluster://{}", cluster.addresses()[0])).await;
    for what in ["a", "b", "{a}:x"] {
        for operation in [taking(what, 1), queueing(what, 2)] {
            one(&*store, operation).await.expect("carried out");
        }
    }
    let stands = |node| assert_announced(node).len();
    assert_eq!(cluster.nodes().iter().map(stands).sum::<usize>(), 3);
    let slots: BTreeSet<_> =
        ["lock:a", "lock:b", "lock:{a}:x"].map(|key| cluster.slot_of(key)).into();
    let signs = |node: &RedisServer| node.cli(&["--raw", "keys", "*:beside"]).lines().count();
    assert_eq!(cluster.nodes().iter().map(signs).sum::<usize>(), slots.len());
}
