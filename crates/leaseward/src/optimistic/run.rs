//! Tries with their lock, for tasks and for threads.

use std::ops::ControlFlow;

use super::{
    Failure, GaveUp, HotLock, Retry, Try, Why,
    rounds::{Ambiguity, Ended, Rounds},
};
use crate::{Error, ErrorKind};

/// What all tries came to, or that there is another one.
pub type Settled<T> = ControlFlow<Result<T, GaveUp>>;

/// Try after try in a task, for what has no `transact` of its own: an object store with `If-Match`, another database.
///
/// Dropped, it gives the lock of [`Retry::escalate`] back in the background, if it was taken. Tries under that lock should
/// send [`Try::fence`] along.
///
/// ```
/// use leaseward::optimistic::{Ambiguity, Conflict, Retry, Tries, Version};
/// use std::ops::ControlFlow;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leaseward::optimistic::GaveUp> {
/// let retry = Retry::new();
/// let mut tries = Tries::new(&retry, Ambiguity::Ends);
/// let done = loop {
///     let this = tries.next().await?;
///     // Here: read, compute, save if nobody was faster. The first time somebody was.
///     let outcome = match this.number() {
///         1 => Err(Conflict::Changed { current: Version::new(8) }.into()),
///         number => Ok(number),
///     };
///     if let ControlFlow::Break(settled) = tries.settle(outcome).await {
///         break settled?;
///     }
/// };
/// assert_eq!(done, 2);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Tries<'a> {
    rounds: Rounds<'a>,
    held: Option<crate::Guard>,
}

impl<'a> Tries<'a> {
    /// No try yet.
    pub fn new(retry: &'a Retry, ambiguity: Ambiguity) -> Self {
        Self { rounds: Rounds::new(retry, ambiguity), held: None }
    }

    /// The next try, under the lock if it is time for it.
    ///
    /// # Errors
    /// [`GaveUp`] if the lock could not be taken.
    ///
    /// # Cancel safety
    /// Cancel safe: the lock is given back.
    pub async fn next(&mut self) -> Result<Try, GaveUp> {
        let is_held = self.held.as_ref().is_some_and(crate::Guard::is_held);
        if let Some(lock) = self.rounds.hot_lock()
            && !is_held
        {
            // The old one is given back before the new one is asked for: it stands in its way.
            drop(self.held.take());
            let taken = match lock {
                HotLock::Task(lock) => lock.clone().wait(self.rounds.left()).acquire().await,
                HotLock::Thread(_) => Err(wrong_kind("a lock of `leaseward::Locks`")),
            };
            self.held = Some(taken.map_err(|error| no_lock(&self.rounds, error))?);
        }
        let lease = self.held.as_ref().map(crate::Guard::lease);
        Ok(Try { number: self.rounds.begin_try(), lease })
    }

    /// Ends it, or waits for as long as is good before the next try.
    ///
    /// # Cancel safety
    /// Dropped, the next try begins sooner than it should.
    pub async fn settle<T>(&mut self, outcome: Result<T, Ended>) -> Settled<T> {
        let settled = match outcome {
            Ok(done) => Ok(done),
            Err(ended) => {
                let is_ours = self.held.is_some();
                match self.rounds.after(drop_if_stale(ended, &mut self.held), is_ours) {
                    Ok(wait) => {
                        tokio::time::sleep(wait).await;
                        return ControlFlow::Continue(());
                    }
                    Err(gave_up) => Err(gave_up),
                }
            }
        };
        if let Some(guard) = self.held.take() {
            // What became of it matters to nobody: the transaction is over, and was fenced.
            let _ = guard.release().await;
        }
        ControlFlow::Break(settled)
    }
}

/// Try after try on a thread; see [`Tries`].
#[derive(Debug)]
pub struct BlockingTries<'a> {
    rounds: Rounds<'a>,
    held: Option<crate::blocking::Guard>,
}

impl<'a> BlockingTries<'a> {
    /// No try yet.
    pub fn new(retry: &'a Retry, ambiguity: Ambiguity) -> Self {
        Self { rounds: Rounds::new(retry, ambiguity), held: None }
    }

    /// The next try, under the lock if it is time for it.
    ///
    /// # Errors
    /// [`GaveUp`] if the lock could not be taken.
    // No iterator: it fails, and what comes next depends on what the caller tells.
    #[expect(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Try, GaveUp> {
        let is_held = self.held.as_ref().is_some_and(|guard| guard.is_held());
        if let Some(lock) = self.rounds.hot_lock()
            && !is_held
        {
            drop(self.held.take());
            let taken = match lock {
                HotLock::Thread(lock) => lock.clone().wait(self.rounds.left()).acquire(),
                HotLock::Task(_) => Err(wrong_kind("a lock of `leaseward::blocking::Locks`")),
            };
            self.held = Some(taken.map_err(|error| no_lock(&self.rounds, error))?);
        }
        let lease = self.held.as_ref().map(|guard| guard.lease());
        Ok(Try { number: self.rounds.begin_try(), lease })
    }

    /// Ends it, or waits for as long as is good before the next try.
    pub fn settle<T>(&mut self, outcome: Result<T, Ended>) -> Settled<T> {
        let ended = match outcome {
            Ok(done) => return ControlFlow::Break(Ok(done)),
            Err(ended) => ended,
        };
        let is_ours = self.held.is_some();
        match self.rounds.after(drop_if_stale(ended, &mut self.held), is_ours) {
            Ok(wait) => {
                std::thread::sleep(wait);
                ControlFlow::Continue(())
            }
            Err(gave_up) => ControlFlow::Break(Err(gave_up)),
        }
    }
}

/// A lease whose fence was refused is over, whatever its guard believes: the next try takes a new one.
fn drop_if_stale<G>(ended: Ended, held: &mut Option<G>) -> Ended {
    if matches!(ended, Ended::Failed(Failure::Stale(_))) {
        drop(held.take());
    }
    ended
}

fn wrong_kind(wanted: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, "the lock for a hot row is of the wrong kind")
        .hint(format!("give `Retry::escalate` {wanted}"))
}

fn no_lock(rounds: &Rounds<'_>, error: Error) -> GaveUp {
    let why = if error.kind() == ErrorKind::Timeout { Why::Budget } else { Why::Final };
    rounds.give_up(why, Failure::Lock(error))
}
