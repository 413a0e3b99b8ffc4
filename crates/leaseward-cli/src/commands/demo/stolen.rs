//! The stolen-lock release that must not delete another's lock.

use leaseward::{Name, Release, store::Query};

use super::{
    Set,
    stage::{Doing, Stage},
};
use crate::{failure::Failure, printer::Printer};

const ABOUT: &str = "\
A guest works longer than the lease lasts and does not renew it. Somebody
else has the table by then. A release by name alone would free it under the
new holder; a release by token does nothing.";

pub(super) async fn play(set: &Set, printer: Printer) -> Result<bool, Failure> {
    let mut stage = Stage::open("stolen: a late release frees nothing", ABOUT, printer)?;
    let name = set.name("table:7");
    let (alice, bob) = (set.client("alice").await?, set.client("bob").await?);
    let short = set.ttl(600);
    let hers = alice.lock(&name).ttl(short).no_renewal().acquire().await?;
    let text = format!("has the table, fence {}, and does not renew", hers.fence());
    stage.turn("alice", Doing::Holding, &text)?;
    stage.turn("bob", Doing::Waiting, "waits in line")?;
    let his = bob.lock(&name).ttl(set.ttl(2_000)).wait(short * 8).acquire().await?;
    stage.mark("alice", Doing::Deluded);
    let text = format!("has it, because the lease ran out, fence {}", his.fence());
    stage.turn("bob", Doing::Holding, &text)?;
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    let released = hers.release().await?;
    let text = format!("comes back late and releases: {released:?}");
    stage.turn("alice", Doing::Nothing, &text)?;
    let views = bob.inspect(Query::Name(Name::new(&name)?)).await?;
    let still = views.iter().flat_map(|view| &view.holders).any(|held| &*held.who == "bob");
    stage.claim(
        "the late release is told that its lease had ended",
        released == Release::AlreadyExpired,
    )?;
    stage.claim("bob still holds the table", still && his.is_held())?;
    his.release().await?;
    stage.close()
}
