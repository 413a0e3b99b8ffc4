//! Sequential bookings: the lock when nothing goes wrong.

use super::{
    Set,
    stage::{Doing, Stage},
};
use crate::{failure::Failure, printer::Printer};

const ABOUT: &str = "\
Three bookings of one table, one after the other. Each gets the lock at
once, and each gets a larger fence than the one before.";

pub(super) async fn play(set: &Set, printer: Printer) -> Result<bool, Failure> {
    let mut stage = Stage::open("bookings: one after the other", ABOUT, printer)?;
    let name = set.name("table:1");
    let mut fences = Vec::new();
    for guest in ["alice", "bob", "carol"] {
        let locks = set.client(guest).await?;
        let guard = locks.lock(&name).ttl(set.ttl(2_000)).acquire().await?;
        stage.turn(guest, Doing::Holding, &format!("books, fence {}", guard.fence()))?;
        fences.push(guard.fence());
        tokio::time::sleep(std::time::Duration::from_millis(150)).await;
        guard.release().await?;
        stage.turn(guest, Doing::Nothing, "is done and gives the table back")?;
        locks.shutdown().await;
    }
    stage.claim("every fence is larger than the one before", fences.is_sorted_by(|a, b| a < b))?;
    stage.close()
}
