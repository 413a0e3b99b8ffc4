//! A holder crashes and the TTL heals.

use leaseward::Release;

use super::{
    Set,
    actor::Actor,
    stage::{Doing, Stage},
};
use crate::{failure::Failure, printer::Printer, units};

const ABOUT: &str = "\
A process takes the lock and is killed with -9 before it can give it back.
A lock without a time limit would be stuck for ever; a lease runs out, and
the next in line has it without anybody doing anything.";

pub(super) async fn play(set: &Set, printer: Printer) -> Result<bool, Failure> {
    let mut stage = Stage::open("crash: the holder dies, the TTL heals", ABOUT, printer)?;
    let (name, ttl) = (set.name("kitchen"), set.ttl(1_500));
    let mut alice = Actor::start(set, &name, ttl).await?;
    let text = format!(
        "process {} has the lock, fence {}, TTL {}",
        alice.pid(),
        alice.fence(),
        units::shown(ttl)
    );
    stage.turn("alice", Doing::Holding, &text)?;
    let bob = set.client("bob").await?;
    let request = bob.lock(&name).ttl(ttl).wait(ttl * 8);
    let waiting = tokio::spawn(async move { request.acquire().await });
    stage.turn("bob", Doing::Waiting, "waits in line")?;
    tokio::time::sleep(std::time::Duration::from_millis(400)).await;
    alice.crash();
    stage.turn("alice", Doing::Dead, "is killed with -9; nobody gives the lock back")?;
    let held = waiting.await.map_err(|error| Failure::system("the waiter failed", &error))?;
    let healed = held.is_ok();
    if let Ok(guard) = held {
        let text = format!("has it once the lease has run out, fence {}", guard.fence());
        stage.turn("bob", Doing::Holding, &text)?;
        let larger = guard.fence() > alice.fence();
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        let released = guard.release().await? == Release::Released;
        stage.claim("the fence is larger than the dead holder's", larger)?;
        stage.claim("the new lease was held to its end", released)?;
    }
    stage.claim("the next in line got the lock without help", healed)?;
    stage.close()
}
