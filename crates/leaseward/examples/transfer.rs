//! Money moves between two accounts; one of those who move it sleeps past the end of its lease, then writes.
//!
//! `cargo run --example transfer --features sqlite`, and with `-- unfenced` to see what the fence is for.

use std::{error::Error, time::Duration};

use leaseward::{
    Guard, Locks,
    fenced::{self, FenceColumn, FencedError},
};
use rusqlite::{Connection, TransactionBehavior::Immediate};

const ACCOUNTS: FenceColumn = FenceColumn::new("accounts");
const TTL: Duration = Duration::from_millis(200);

type Outcome<T> = Result<T, Box<dyn Error>>;

#[tokio::main]
async fn main() -> Outcome<()> {
    let is_fenced = !std::env::args().any(|arg| arg == "unfenced");
    let mut bank = Connection::open_in_memory()?;
    bank.execute_batch(
        "CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER, fence INTEGER NOT NULL DEFAULT 0);
         INSERT INTO accounts (id, balance) VALUES (1, 100), (2, 100), (3, 100)",
    )?;
    let locks = leaseward::connect("memory:").await?;

    // Anna reads both balances, and sleeps.
    let anna = take(&locks).await?;
    let [one, two] = [read(&mut bank, 1, &anna)?, read(&mut bank, 2, &anna)?];
    anna.lost().await;
    println!("Anna's lease (fence {}) is over while she sleeps", anna.fence());

    // Ben moves 30 from account 1 to account 3.
    let ben = take(&locks).await?;
    let [first, third] = [read(&mut bank, 1, &ben)?, read(&mut bank, 3, &ben)?];
    write(&mut bank, [(1, first - 30), (3, third + 30)], &ben, is_fenced)?;
    println!("Ben (fence {}) moves 30 from account 1 to account 3", ben.fence());
    ben.release().await?;

    // Anna wakes and moves 50 from account 1 to account 2, as far as she knows.
    match write(&mut bank, [(1, one - 50), (2, two + 50)], &anna, is_fenced) {
        Ok(()) => println!("Anna writes what she believes to be right"),
        Err(FencedError::Stale(stale)) => println!("Anna is refused: {stale}"),
        Err(other) => return Err(other.into()),
    }
    let sum: i64 = bank.query_row("SELECT sum(balance) FROM accounts", [], |row| row.get(0))?;
    println!("on all accounts: {sum} of 300");
    assert_eq!(sum == 300, is_fenced, "the fence is what keeps the sum");
    Ok(())
}

async fn take(locks: &Locks) -> Result<Guard, leaseward::Error> {
    // Not renewed, as if the whole process had been paused.
    locks.lock("bank").ttl(TTL).no_renewal().acquire().await
}

/// Reads a balance, having shown the account the fence.
fn read(bank: &mut Connection, id: i64, guard: &Guard) -> Outcome<i64> {
    let tx = bank.transaction_with_behavior(Immediate)?;
    fenced::sqlite::claim(&tx, &ACCOUNTS, id, guard.fence())?;
    let sql = "SELECT balance FROM accounts WHERE id = ?1";
    let balance = tx.query_row(sql, [id], |row| row.get(0))?;
    tx.commit()?;
    Ok(balance)
}

fn write(
    bank: &mut Connection,
    balances: [(i64, i64); 2],
    guard: &Guard,
    is_fenced: bool,
) -> Result<(), FencedError<rusqlite::Error>> {
    let tx = bank.transaction_with_behavior(Immediate)?;
    for (id, balance) in balances {
        if is_fenced {
            let set = "balance = ?3";
            fenced::sqlite::update(&tx, &ACCOUNTS, id, guard.fence(), set, &[&balance])?;
        } else {
            tx.execute("UPDATE accounts SET balance = ?2 WHERE id = ?1", (id, balance))?;
        }
    }
    Ok(tx.commit()?)
}
