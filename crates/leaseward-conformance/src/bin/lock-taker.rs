//! Takes locks on command, so that it can be killed or frozen while it has them.
//!
//! `lock-taker URL` says `ready`, then obeys lines on its standard input until that ends:
//! - `hold NAME TTL_MS`: waits for the lock, then says `held NAME FENCE`; if it is lost later, `lost NAME`
//! - `release NAME`: says `released NAME` and what became of it
//! - `is-held NAME`: says `yes` or `no`
//! - `count NAME TTL_MS FILE TIMES`: so many times, adds one to the number in a file under the lock; says `counted N`
//!   for each and `done` at the end

use std::{
    collections::HashMap, error::Error, fs, io::Write, path::Path, sync::Arc, time::Duration,
};

use leaseward::{Guard, Locks};
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, BufReader};

type Held = Arc<Mutex<HashMap<String, Guard>>>;
type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    let url = std::env::args().nth(1).ok_or("usage: lock-taker URL")?;
    let locks = leaseward::connect(&url).await?;
    let held = Held::default();
    say("ready");
    let mut commands = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = commands.next_line().await? {
        obey(&line, &locks, &held).await?;
    }
    Ok(())
}

async fn obey(line: &str, locks: &Locks, held: &Held) -> Result<(), Failure> {
    let words: Vec<_> = line.split(' ').collect();
    match words.as_slice() {
        ["hold", name, ttl_ms] => {
            let lock = locks.lock(name).ttl(Duration::from_millis(ttl_ms.parse()?));
            let (name, held) = ((*name).to_owned(), held.clone());
            tokio::spawn(async move {
                let guard = match lock.acquire().await {
                    Ok(guard) => guard,
                    Err(error) => return say(&format!("failed {name} {error}")),
                };
                let lease = guard.lease();
                held.lock().insert(name.clone(), guard);
                say(&format!("held {name} {}", lease.fence()));
                lease.lost().await;
                say(&format!("lost {name}"));
            });
        }
        ["release", name] => {
            let guard = held.lock().remove(*name).ok_or("not held")?;
            say(&format!("released {name} {:?}", guard.release().await?));
        }
        ["is-held", name] => {
            let is_held = held.lock().get(*name).is_some_and(Guard::is_held);
            say(if is_held { "yes" } else { "no" });
        }
        ["count", name, ttl_ms, file, times] => {
            let lock = locks.lock(name).ttl(Duration::from_millis(ttl_ms.parse()?));
            for _ in 0..times.parse::<u32>()? {
                let guard = lock.acquire().await?;
                let count = add_one(Path::new(file))?;
                say(&format!("counted {count}"));
                guard.release().await?;
            }
            say("done");
        }
        _ => return Err(format!("not a command: {line}").into()),
    }
    Ok(())
}

/// Reads, adds, writes: two at once would lose an update. Written aside first, so that a kill leaves the old number or
/// the new one.
fn add_one(file: &Path) -> Result<u64, Failure> {
    let count = fs::read_to_string(file)?.trim().parse::<u64>()? + 1;
    let aside = file.with_extension(std::process::id().to_string());
    fs::write(&aside, count.to_string())?;
    fs::rename(&aside, file)?;
    Ok(count)
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Whoever listened has gone: then nobody needs to hear it.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
