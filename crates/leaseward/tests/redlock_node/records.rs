//! What becomes of the record beside a lock when an ask turns out to be unusual.

use leaseward::stores::redlock::ballot::ALLOWANCE;
use leaseward_testkit::{RedisServer, Skew};

use crate::{
    reference::{Answer, Ask, Operation, Whose},
    script::{Node, Put, key},
};

const TTL_MS: u64 = 50_000;
const DELAY_MS: u64 = 200_000;

fn node(builder: leaseward_testkit::RedisBuilder) -> (RedisServer, Node) {
    let server = builder.arg("slowlog-log-slower-than", "0").start();
    let node = Node::new(&server);
    (server, node)
}

/// By the node's clock.
fn ask(node: &mut Node, name: usize, token: usize, delay_ms: u64) -> Put {
    let first = node.clock_us();
    let ask =
        Ask { ttl_ms: TTL_MS, first, last: first, is_shared: false, delay_ms, is_plain: true };
    Put { name, token, operation: Operation::Ask(ask) }
}

fn record(name: usize) -> String {
    format!("leaseward:b:{}", key(name))
}

#[test]
fn a_lock_delay_outlives_an_ask_however_long_the_lease_was_renewed() {
    let skew = Skew::new();
    let (server, mut node) = node(RedisServer::builder().skew(&skew));
    let held = ask(&mut node, 0, 0, DELAY_MS);
    assert!(matches!(node.call_carefully(held, 0).1, Answer::Granted { .. }));
    let renewal = Put { operation: Operation::Renew { ttl_ms: TTL_MS }, ..held };
    let (mut ahead_ms, step_ms) = (0, 40_000);
    // Longer than anything is remembered that is not renewed.
    while u128::try_from(ahead_ms).unwrap_or(0)
        < ALLOWANCE.as_millis() + u128::from(TTL_MS + 2 * DELAY_MS)
    {
        ahead_ms += step_ms;
        skew.set_ms(ahead_ms);
        assert_eq!(node.call_carefully(renewal, 0).1, Answer::Renewed);
    }
    // Its holder dies.
    skew.set_ms(ahead_ms + i64::try_from(TTL_MS).unwrap_or(0) + 1_000);
    let before: i64 = server.cli(&["pttl", &record(0)]).parse().expect("a number");
    for _ in 0..2 {
        let rival = ask(&mut node, 0, 1, 0);
        assert!(node.call_plainly(&[rival], 0)[0].1.is_none(), "it is odd");
        assert_eq!(node.call_carefully(rival, 0).1, Answer::Busy(Whose::Token(0)));
    }
    let after: i64 = server.cli(&["pttl", &record(0)]).parse().expect("a number");
    assert!((before - 10_000..=before + 1).contains(&after), "was {before} ms, is {after} ms");
    skew.set_ms(ahead_ms + i64::try_from(TTL_MS + DELAY_MS).unwrap_or(0) + 1_000);
    let rival = ask(&mut node, 0, 1, 0);
    assert!(matches!(node.call_carefully(rival, 0).1, Answer::Granted { .. }));
}

#[test]
fn what_is_no_record_stays_and_spoils_nobody_elses_ask() {
    let (server, mut node) = node(RedisServer::builder());
    let long = "9".repeat(16);
    // A word; a token, as where the prefix is empty and somebody locks a name like a record's; and what begins like one.
    for garbage in
        ["garbage", crate::script::TOKENS[2], &format!("{long}s"), &format!("{long}s1 2")]
    {
        node.clear();
        server.cli(&["set", &record(1), garbage, "px", "30000"]);
        let puts = [0, 1, 2].map(|name| ask(&mut node, name, 0, 0));
        let found = node.call_plainly(&puts, 0);
        let is_granted = |at: usize| matches!(found[at].1, Some((_, Answer::Granted { .. })));
        assert!(is_granted(0) && found[1].1.is_none() && is_granted(2), "{garbage}: {found:?}");
        assert_eq!(server.cli(&["get", &key(1)]), "", "{garbage}: nothing is kept");
        assert_eq!(server.cli(&["get", &record(1)]), garbage, "it is somebody's");
        let left: i64 = server.cli(&["pttl", &record(1)]).parse().expect("a number");
        assert!(left > 0, "it still has an end");
        let refused = node.try_carefully(puts[1], 0).expect_err("it may be anything");
        assert!(refused.starts_with("WRONGTYPE"), "{refused}");
        assert_eq!(server.cli(&["get", &record(1)]), garbage, "it is still somebody's");
        // What is held all the same can be given back.
        server.cli(&["set", &key(1), crate::script::TOKENS[0], "px", "30000"]);
        let release = Put { operation: Operation::Release { keep_ms: 0 }, ..puts[1] };
        assert_eq!(node.call_carefully(release, 0).1, Answer::Released);
        assert_eq!(server.cli(&["get", &record(1)]), garbage, "it is still somebody's");
    }
}
