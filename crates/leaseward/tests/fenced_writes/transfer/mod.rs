//! Money is transferred between accounts by many processes, of which some are stopped past the end of their lease.
//!
//! The way lock users do it: take the lock, read two balances, think (ask the fraud department), write two new balances.
//! Nothing but the lock keeps others out between the reading and the writing, and a stopped process does not know that its
//! lease has ended. With the fence its late write is refused; without, it undoes what others did meanwhile.

mod bank;
mod worker;

use std::time::{Duration, Instant};

use self::{
    bank::Bank,
    worker::{Order, Said, Team},
};
use crate::help::SERVER;

/// Accounts, and what is on each in the beginning.
const ACCOUNTS: usize = 4;
const BEGIN: i64 = 1_000;

/// Long past the end of a lease.
const STOPPED_MAX: Duration = Duration::from_millis(1_000);

/// Long enough for whatever has to happen, on a machine that is busy with other things too.
const LONG: Duration = Duration::from_secs(60);

fn sqlite() -> (tempfile::TempDir, Bank) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name| folder.path().join(name).display().to_string();
    let bank = Bank::new(file("bank.db"), format!("sqlite:{}", file("leases.db")));
    (folder, bank)
}

/// Leases and accounts in one database.
fn postgres(database: &str) -> Bank {
    let url = SERVER.database(database);
    Bank::new(url.clone(), url)
}

#[test]
fn sqlite_stopped_holders_change_nothing() {
    let (_folder, bank) = sqlite();
    stopped_holders_change_nothing(&bank);
}

#[test]
fn sqlite_without_the_fence_they_do() {
    let (_folder, bank) = sqlite();
    without_the_fence_they_do(&bank);
}

#[test]
fn sqlite_workers_stopped_at_random_lose_nothing() {
    let (_folder, bank) = sqlite();
    workers_stopped_at_random_lose_nothing(&bank);
}

#[test]
fn postgres_stopped_holders_change_nothing() {
    let bank = postgres("bank_fenced");
    stopped_holders_change_nothing(&bank);
}

#[test]
fn postgres_without_the_fence_they_do() {
    let bank = postgres("bank_open");
    without_the_fence_they_do(&bank);
}

#[test]
fn postgres_workers_stopped_at_random_lose_nothing() {
    let bank = postgres("bank_chaos");
    workers_stopped_at_random_lose_nothing(&bank);
}

/// What is on the accounts according to those who moved money.
fn expected(moves: &[Said]) -> Vec<i64> {
    let mut balances = vec![BEGIN; ACCOUNTS];
    for said in moves {
        if let Said::Moved { from, to, amount } = *said {
            balances[from as usize] -= amount;
            balances[to as usize] += amount;
        }
    }
    balances
}

/// A holder reads and is stopped; others move money from or to the same accounts; the holder wakes and writes. Answers
/// with what everybody said.
fn one_is_stopped(bank: &Bank, order: Order) -> Vec<Said> {
    let mut all = Vec::new();
    let mut sleeper = Team::start(bank, 1, Order { transfers: 1, waits: true, ..order });
    let Some(Said::Read { from, to, sum }) = sleeper.hear() else { panic!("it says what it read") };
    sleeper.stop(0);
    let mut others = Team::start(bank, 4, order);
    loop {
        all.extend(others.hear_all());
        let balances = bank.balances();
        // Money has left or reached the two accounts: what the sleeper knows is wrong.
        if balances[from as usize] + balances[to as usize] != sum {
            break;
        }
        others = Team::start(bank, 2, order);
    }
    sleeper.resume(0);
    sleeper.tell(0);
    all.extend(sleeper.hear_all());
    all
}

fn stopped_holders_change_nothing(bank: &Bank) {
    bank.open(ACCOUNTS, BEGIN);
    let mut all = Vec::new();
    for round in 1..=2 {
        let said = one_is_stopped(bank, Order { fenced: true, transfers: 5, waits: false });
        assert!(matches!(said.last(), Some(Said::Refused)), "round {round}: {said:?}");
        all.extend(said);
        let balances = bank.balances();
        assert_eq!(balances.iter().sum::<i64>(), BEGIN * ACCOUNTS as i64, "money came or went");
        assert_eq!(balances, expected(&all), "round {round}: an update was lost");
    }
}

fn without_the_fence_they_do(bank: &Bank) {
    bank.open(ACCOUNTS, BEGIN);
    let said = one_is_stopped(bank, Order { fenced: false, transfers: 5, waits: false });
    assert!(matches!(said.last(), Some(Said::Moved { .. })), "{said:?}");
    let balances = bank.balances();
    assert_ne!(balances.iter().sum::<i64>(), BEGIN * ACCOUNTS as i64, "this test shows nothing");
    assert_ne!(balances, expected(&said), "this test shows nothing");
}

/// Any worker, at any moment: before it asks, while it waits, between reading and writing, while it releases.
fn workers_stopped_at_random_lose_nothing(bank: &Bank) {
    bank.open(ACCOUNTS, BEGIN);
    let order = Order { fenced: true, transfers: 12, waits: false };
    let mut team = Team::start(bank, 6, order);
    let mut all = Vec::new();
    for stopped in 0..6 {
        team.stop(stopped);
        let (begin, before) = (Instant::now(), all.len());
        // Until others have gone on in its place. Not for ever: stopped inside a transaction, it keeps them from it.
        while all.len() < before + 3 && begin.elapsed() < STOPPED_MAX {
            all.extend(team.hear_within(Duration::from_millis(10)));
        }
        team.resume(stopped);
    }
    all.extend(team.hear_all());
    assert!(all.iter().any(|said| matches!(said, Said::Moved { .. })), "nobody moved anything");
    let balances = bank.balances();
    assert_eq!(balances.iter().sum::<i64>(), BEGIN * ACCOUNTS as i64, "money came or went");
    assert_eq!(balances, expected(&all), "an update was lost");
}
