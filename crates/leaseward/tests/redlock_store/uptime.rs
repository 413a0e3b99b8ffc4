//! How long a node has been running, by its own clock, which somebody may set.

use leaseward::{Guard, Locks};
use leaseward_testkit::{Fsync, PATIENCE, RedisServer, Skew};

use crate::{
    help::{LONG, Lines, busy, is_away, until_held_at},
    nodes::Nodes,
    operations::{connect, take, until},
};

const HOUR_MS: i64 = 3_600_000;
/// Longer than any test: what waits for it does not vote here.
const WAITING: &str = "max_ttl=1m";

/// Five nodes, the third of which forgets and looks as if it had been running for an hour.
struct Old {
    nodes: Nodes,
    clock: Skew,
}

impl Old {
    async fn start() -> Self {
        let clock = Skew::new();
        clock.set_ms(-HOUR_MS);
        let nodes = Nodes::start(5, |at| match at {
            2 => RedisServer::builder().skew(&clock),
            _ => RedisServer::builder().appendonly(Fsync::Always),
        });
        let this = Self { nodes, clock };
        this.step_forward().await;
        this
    }

    /// Its clock was an hour behind when it started, and is set right now.
    async fn step_forward(&self) {
        self.clock.set_ms(0);
        until("it looks old", PATIENCE, || async {
            let uptime = self.nodes[2].info("server").remove("uptime_in_seconds")?;
            (uptime.parse::<i64>().ok()? >= HOUR_MS / 1_000).then_some(())
        })
        .await;
    }

    /// Somebody has a lease at the first three nodes; the third restarts empty and looks old again.
    async fn forget(&self, first: &Locks) -> Guard {
        [3, 4].iter().for_each(|at| self.nodes[*at].kill());
        let held = take(first.lock("a").ttl(LONG).no_renewal()).await;
        until_held_at(&self.nodes[..3], "a", 3).await;
        self.clock.set_ms(-HOUR_MS);
        [2, 3, 4].iter().for_each(|at| self.nodes[*at].restart());
        self.step_forward().await;
        held
    }
}

/// Waits until a client is connected to all nodes; answers which of them do not vote.
async fn waiting(locks: &Locks) -> Vec<String> {
    until("all are connected", PATIENCE, || async {
        let found = locks.diagnose().await.ok()?;
        let away: Vec<_> = found.iter().filter(|one| is_away(one)).map(|one| &one.what).collect();
        let is_there = away.iter().all(|what| what.contains("does not vote for"));
        is_there.then(|| away.into_iter().cloned().collect())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_stepped_forward_makes_no_restarted_node_old() {
    let old = Old::start().await;
    let lines = Lines::to(&old.nodes);
    let (first, second) =
        (connect(&old.nodes.url(WAITING)).await, connect(&lines.url(WAITING)).await);
    assert!(waiting(&second).await.is_empty());
    // It comes back to the second client only once it looks old.
    lines.cut(&[2]);
    let held = old.forget(&first).await;
    lines.mend();
    let [waits] = &waiting(&second).await[..] else { panic!("one has forgotten") };
    assert!(waits.contains(&lines.0[2].address()), "{waits}");
    assert!(busy(second.lock("a").ttl(LONG).try_acquire().await).holder.is_some());
    // Nor after another connection to the same run of it.
    lines.0[2].cut();
    assert_eq!(waiting(&second).await.len(), 1);
    assert!(busy(second.lock("a").ttl(LONG).try_acquire().await).holder.is_some());
    assert!(held.is_held());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_connects_for_the_first_time_believes_the_clock_of_a_node() {
    let old = Old::start().await;
    let held = old.forget(&connect(&old.nodes.url(WAITING)).await).await;
    let second = connect(&old.nodes.url(WAITING)).await;
    assert!(waiting(&second).await.is_empty());
    let again = take(second.lock("a").ttl(LONG)).await;
    assert!(held.is_held() && again.is_held(), "clocks of such nodes must not be set forward");
    assert!(again.fence() > held.fence(), "{:?} after {:?}", again.fence(), held.fence());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_set_back_makes_a_node_new() {
    let old = Old::start().await;
    // As if it were to start in an hour.
    old.clock.set_ms(-2 * HOUR_MS);
    until("it says so", PATIENCE, || async {
        let uptime = old.nodes[2].info("server").remove("uptime_in_seconds")?;
        uptime.starts_with('-').then_some(())
    })
    .await;
    assert_eq!(waiting(&connect(&old.nodes.url(WAITING)).await).await.len(), 1);
}
