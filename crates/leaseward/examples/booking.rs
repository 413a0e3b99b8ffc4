//! Two guests want the same table: one books it, the other hears at once that it is taken.
//!
//! `cargo run --example booking`

use std::time::Duration;

use leaseward::{Attempt, Error, Locks};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let locks = leaseward::connect("memory:").await?;
    let (anna, ben) = tokio::join!(book(&locks, "Anna"), book(&locks, "Ben"));
    let booked = [anna?, ben?].into_iter().filter(|booked| *booked).count();
    assert_eq!(booked, 1, "one table, one booking");
    Ok(())
}

async fn book(locks: &Locks, guest: &str) -> Result<bool, Error> {
    match locks.lock("table:42").ttl(Duration::from_secs(5)).try_acquire().await? {
        Attempt::Granted(guard) => {
            println!("{guest} books the table under fence {}", guard.fence());
            // The booking itself: send the fence along with the write.
            tokio::time::sleep(Duration::from_millis(20)).await;
            guard.release().await?;
            Ok(true)
        }
        Attempt::Busy(busy) => {
            println!("{guest} is told: the table is {busy}");
            Ok(false)
        }
    }
}
