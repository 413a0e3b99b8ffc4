//! Two guests race for one table: one wins, one gets a clean 'busy'.

use leaseward::{Attempt, Guard};

use super::{
    Set,
    stage::{Doing, Stage},
};
use crate::{failure::Failure, printer::Printer, units};

const ABOUT: &str = "\
Two guests ask for the same table at the same moment. Without a lock both
see it free and both book it. With one, one of them has the table and the
other is told who.";

pub(super) async fn play(set: &Set, printer: Printer) -> Result<bool, Failure> {
    let mut stage = Stage::open("race: two guests, one table", ABOUT, printer)?;
    let name = set.name("table:42");
    let (alice, bob) = (set.client("alice").await?, set.client("bob").await?);
    stage.turn("alice", Doing::Waiting, "asks for the table")?;
    stage.turn("bob", Doing::Waiting, "asks for the table")?;
    let (hers, his) = (alice.lock(&name).ttl(set.ttl(2_000)), bob.lock(&name).ttl(set.ttl(2_000)));
    let (hers, his) = tokio::join!(hers.try_acquire(), his.try_acquire());
    let mut winners: Vec<Guard> = Vec::new();
    let mut told = 0;
    for (guest, attempt) in [("alice", hers?), ("bob", his?)] {
        match attempt {
            Attempt::Granted(guard) => {
                stage.turn(guest, Doing::Holding, &format!("has it, fence {}", guard.fence()))?;
                winners.push(guard);
            }
            Attempt::Busy(busy) => {
                let holder = busy.holder.as_ref();
                told += usize::from(holder.is_some());
                let who = holder.map_or("somebody", |holder| &*holder.who);
                let left = holder.and_then(|holder| holder.remaining).map(units::shown);
                let left = left.unwrap_or_else(|| "a while".to_owned());
                let text = format!("is told at once: busy, held by {who} for another {left}");
                stage.turn(guest, Doing::Nothing, &text)?;
            }
        }
    }
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    stage.claim("exactly one of them has the table", winners.len() == 1)?;
    stage.claim("the other knows who has it", told == 1)?;
    for guard in winners {
        guard.release().await?;
    }
    stage.close()
}
