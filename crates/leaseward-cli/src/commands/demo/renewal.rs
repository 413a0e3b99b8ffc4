//! A long task kept alive by renewal.

use leaseward::{Attempt, Release};

use super::{
    Set,
    stage::{Doing, Stage},
};
use crate::{failure::Failure, printer::Printer, units};

const ABOUT: &str = "\
A task takes several times as long as its lease lasts. The lease is renewed
in the background, so the task keeps the lock to its end; a short TTL costs
a long task nothing, and a crash still heals quickly.";

/// How many times its TTL the task takes.
const TIMES: u32 = 3;

pub(super) async fn play(set: &Set, printer: Printer) -> Result<bool, Failure> {
    let mut stage = Stage::open("renewal: a long task on a short lease", ABOUT, printer)?;
    let (name, ttl) = (set.name("report"), set.ttl(1_000));
    let (alice, bob) = (set.client("alice").await?, set.client("bob").await?);
    let guard = alice.lock(&name).ttl(ttl).acquire().await?;
    let fence = guard.fence();
    let text = format!("has the lock for {} at a time, fence {fence}", units::shown(ttl));
    stage.turn("alice", Doing::Holding, &text)?;
    let mut refused = 0;
    let mut got_in = 0;
    for round in 1..=TIMES {
        tokio::time::sleep(ttl).await;
        match bob.lock(&name).ttl(ttl).try_acquire().await? {
            Attempt::Busy(_) => {
                refused += 1;
                stage.tell("bob", &format!("tries after {} TTLs: busy", round))?;
            }
            Attempt::Granted(_) => got_in += 1,
        }
    }
    let held = guard.is_held() && guard.fence() == fence;
    let released = guard.release().await?;
    stage.turn("alice", Doing::Nothing, &format!("is done and releases: {released:?}"))?;
    let next = bob.lock(&name).ttl(ttl).acquire().await?;
    stage.turn("bob", Doing::Holding, &format!("has it now, fence {}", next.fence()))?;
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    stage
        .claim("one lease, one fence, for all that time", held && released == Release::Released)?;
    stage.claim("nobody got in between", got_in == 0 && refused == TIMES)?;
    next.release().await?;
    stage.close()
}
