//! Clocks of clients that are wrong: fences grow all the same, and nothing is kept for longer than it should.

use std::{sync::Arc, time::Duration};

use leaseward::{
    Fence,
    clock::{BoxFuture, Clock, Moment, SystemClock},
    store::{self, OpenContext, Reply, Store},
};

use crate::{
    help::{LONG, calls, releasing, taking},
    nodes::Nodes,
    operations::{granted, one},
};

/// The right time, but for a wall clock that is wrong by so many microseconds.
#[derive(Debug)]
struct Wrong(i64);

impl Clock for Wrong {
    fn now(&self) -> Moment {
        SystemClock.now()
    }

    fn wall_us(&self) -> u64 {
        SystemClock.wall_us().saturating_add_signed(self.0)
    }

    fn sleep_until(&self, at: Moment) -> BoxFuture<'static, ()> {
        SystemClock.sleep_until(at)
    }
}

const SECOND: i64 = 1_000_000;
const DAY: i64 = 24 * 3_600 * SECOND;

async fn wrong_by(nodes: &Nodes, micros: i64) -> Arc<dyn Store> {
    let context = OpenContext { clock: Arc::new(Wrong(micros)), who: Arc::from("test:1") };
    store::open(&nodes.url(""), context).await.expect("they can be reached")
}

/// Takes a name and gives it back.
async fn turn(store: &dyn Store, what: &str, who: u128) -> Fence {
    let fence = granted(one(store, taking(what, who)).await).fence();
    let released = one(store, releasing(what, who)).await;
    assert!(matches!(released, Ok(Reply::Released)), "{released:?}");
    fence
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_clients_think_the_time_is_fences_grow_and_keys_end() {
    let nodes = Nodes::keeping();
    let right = wrong_by(&nodes, 0).await;
    let mut fence = turn(&*right, "a", 1).await;
    // The last two are near enough to be believed.
    for micros in [-DAY, DAY, -600 * SECOND, 600 * SECOND, -240 * SECOND, 240 * SECOND] {
        let wrong = wrong_by(&nodes, micros).await;
        for (store, who) in [(&wrong, 2), (&right, 1), (&wrong, 2)] {
            let next = turn(&**store, "a", who).await;
            assert!(next > fence, "{next} after {fence} with a clock wrong by {micros} µs");
            fence = next;
        }
        turn(&*wrong, &format!("by {micros}"), 2).await;
    }
    // What a ballot is remembered for: the allowance, a lease, and by how much clocks may be ahead.
    let longest = Duration::from_secs(600 + 300) + LONG;
    for node in nodes.iter() {
        for key in crate::operations::keys(node) {
            let left: i64 = node.cli(&["pttl", &key]).parse().expect("a number");
            let left = Duration::from_millis(u64::try_from(left).expect("everything ends"));
            assert!(left <= longest, "{key} lasts {left:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clocks_that_differ_a_little_cost_a_round_only_on_the_same_name() {
    const TURNS: u64 = 40;
    let nodes = Nodes::keeping();
    let behind = wrong_by(&nodes, -25_000).await;
    let ahead = wrong_by(&nodes, 25_000).await;
    // Distinct names: nobody is ever refused.
    for at in 0..TURNS {
        turn(&*ahead, &format!("a{at}"), 1).await;
        turn(&*behind, &format!("b{at}"), 2).await;
    }
    let distinct = calls(&nodes[0]) - 2 * 2 * TURNS;
    // The same: whoever is behind is told how far the other was, once each time, and no more.
    let before = calls(&nodes[0]);
    let mut fence = Fence::ZERO;
    for _ in 0..TURNS {
        for (store, who) in [(&ahead, 1), (&behind, 2)] {
            let next = turn(&**store, "same", who).await;
            assert!(next > fence, "{next} after {fence}");
            fence = next;
        }
    }
    let same = calls(&nodes[0]) - before - 2 * 2 * TURNS;
    println!("refused rounds of {}: {distinct} on distinct names, {same} on one", 2 * TURNS);
    assert_eq!(distinct, 0);
    assert!(same <= TURNS, "{same} rounds were refused in {TURNS} turns");
}
