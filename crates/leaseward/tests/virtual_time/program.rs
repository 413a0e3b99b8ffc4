//! What callers do, by seed.

use std::time::Duration;

use leaseward::{Attempt, Error, ErrorKind, Guard, Lock, Locks, MultiAttempt, Release};

use crate::{dice::Dice, ledger::Ledger};

/// Names held exclusively, several at once too.
const NAMES: [&str; 2] = ["a", "b"];
/// Held by readers and writers.
const DOC: &str = "doc";
/// A semaphore and its capacity.
const POOL: (&str, u32) = ("pool", 2);

/// One task of one process.
pub(crate) struct Caller {
    pub(crate) locks: Locks,
    pub(crate) who: String,
    pub(crate) dice: Dice,
    pub(crate) ledger: Ledger,
    pub(crate) ttls_ms: &'static [u64],
}

impl Caller {
    pub(crate) async fn live(self, rounds: u32) {
        for _ in 0..rounds {
            tokio::time::sleep(self.dice.ms(0, 200)).await;
            match self.dice.below(20) {
                0..=10 => self.take_one().await,
                11..=13 => self.try_one().await,
                14..=15 => self.run_one().await,
                16 => self.change_mind().await,
                17..=18 => self.take_all().await,
                // A runtime that user code blocks: nothing runs, time goes on.
                _ => tokio::time::advance(self.dice.ms(1, 2_500)).await,
            }
        }
    }

    fn lock(&self) -> Lock {
        let lock = match self.dice.below(8) {
            0..=3 => self.locks.lock(NAMES[usize::from(self.dice.chance(30))]),
            4 => self.locks.lock(DOC),
            5 => self.locks.lock(DOC).shared(),
            _ => self.locks.semaphore(POOL.0, POOL.1),
        };
        let lock = lock.ttl(Duration::from_millis(self.dice.pick(self.ttls_ms)));
        match self.dice.below(11) {
            0 => lock.no_renewal(),
            1 => lock.min_hold(Duration::from_millis(300)),
            2 => lock.max_hold(Duration::from_millis(500)),
            _ => lock,
        }
    }

    /// What went wrong must be something that bad weather explains.
    fn failed(&self, error: &Error) {
        let expected =
            [ErrorKind::Timeout, ErrorKind::Unavailable, ErrorKind::Indeterminate, ErrorKind::Lost];
        assert!(expected.contains(&error.kind()), "{}: {error:?}", self.who);
        self.ledger.note(format!("{} failed: {error}", self.who));
    }

    async fn take_one(&self) {
        let mut lock = self.lock();
        if self.dice.chance(50) {
            lock = lock.wait(self.dice.ms(1, 5_000));
        }
        match lock.acquire().await {
            Ok(guard) => self.hold(guard).await,
            Err(error) => self.failed(&error),
        }
    }

    async fn try_one(&self) {
        match self.lock().try_acquire().await {
            Ok(Attempt::Granted(guard)) => self.hold(guard).await,
            Ok(Attempt::Busy(_)) => self.ledger.note(format!("{} busy", self.who)),
            Err(error) => self.failed(&error),
        }
    }

    /// The work must never be polled while the lease cannot be relied on.
    async fn run_one(&self) {
        let lock = self.lock().wait(Duration::from_secs(5));
        let naps: Vec<_> = (0..5).map(|_| self.dice.ms(0, 150)).collect();
        let worked = lock.run(|lease| async move {
            for nap in naps {
                assert!(lease.is_held(), "working without the lease");
                tokio::time::sleep(nap).await;
            }
        });
        match worked.await {
            Ok(()) => self.ledger.note(format!("{} worked", self.who)),
            Err(error) => self.failed(&error),
        }
    }

    /// Stops waiting in the middle of it, wherever that is.
    async fn change_mind(&self) {
        let lock = self.lock();
        let taken = tokio::time::timeout(self.dice.ms(0, 400), lock.acquire()).await;
        match taken {
            Ok(Ok(guard)) => self.hold(guard).await,
            Ok(Err(error)) => self.failed(&error),
            Err(_) => self.ledger.note(format!("{} changed its mind", self.who)),
        }
    }

    async fn take_all(&self) {
        let ttl = Duration::from_millis(self.dice.pick(self.ttls_ms));
        let all = self.locks.all(NAMES).ttl(ttl).wait(Duration::from_secs(5));
        let taken = if self.dice.chance(50) {
            match all.try_acquire().await {
                Ok(MultiAttempt::Granted(guard)) => Ok(guard),
                Ok(MultiAttempt::Busy(_)) => return,
                Err(error) => Err(error),
            }
        } else {
            all.acquire().await
        };
        match taken {
            Ok(guards) => {
                for guard in guards.into_guards() {
                    self.hold(guard).await;
                }
            }
            Err(error) => self.failed(&error),
        }
    }

    async fn hold(&self, guard: Guard) {
        let Some(start) = self.ledger.started(&guard) else {
            return self.ledger.note(format!("{} too late with {}", self.who, guard.fence()));
        };
        self.ledger.note(format!("{} holds {} with {}", self.who, guard.name(), guard.fence()));
        for _ in 0..self.dice.below(4) {
            self.write(&guard, start);
            tokio::time::sleep(self.dice.ms(0, 150)).await;
            self.ledger.look();
            if self.dice.chance(20) {
                let ttl = Duration::from_millis(self.dice.pick(&[100, 700, 4_000]));
                if let Err(error) = guard.extend(ttl).await {
                    self.failed(&error);
                }
            }
        }
        if self.dice.chance(10) {
            // Longer than some leases last.
            tokio::time::sleep(self.dice.ms(0, 4_000)).await;
        }
        self.let_go(guard).await;
    }

    async fn let_go(&self, guard: Guard) {
        let (was_held, fence) = (guard.is_held(), guard.fence());
        if self.dice.chance(30) {
            return drop(guard);
        }
        match guard.release().await {
            Ok(released) => {
                let lied = released == Release::Released && !was_held;
                assert!(!lied, "{} released {fence} after it was over", self.who);
                self.ledger.note(format!("{} {released:?} {fence}", self.who));
            }
            Err(error) => self.failed(&error),
        }
    }

    /// A write that may be long under way, as if its sender had been paused after looking at the clock.
    fn write(&self, guard: &Guard, start: u64) {
        if guard.mode() != leaseward::Mode::Exclusive || !guard.is_held() {
            return;
        }
        let (ledger, name, fence) = (self.ledger.clone(), guard.name().to_string(), guard.fence());
        let pause = self.dice.ms(0, 3_000);
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            ledger.written(&name, fence, start);
        });
    }
}
