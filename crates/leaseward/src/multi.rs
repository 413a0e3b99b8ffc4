//! Several names at once.

use std::{fmt, future::Future, sync::Arc, task::Poll, time::Duration};

use crate::{
    Attempt, Busy, Error, ErrorKind, Fence, Guard, Lock, LostReason, Mode, Name, OwnerId, Release,
    clock::Moment, engine::Engine,
};

/// The most names in one go.
const NAMES_MAX: usize = 64;

/// Several names to be taken together, one after the other in sorted order, so two sets in opposite orders never deadlock.
/// (`several::opposite_orders_never_deadlock`)
///
/// Waiting, the next name is asked for once the one before is ours; those before stay held and renewed meanwhile
/// (`several::those_before_are_kept_while_the_next_is_waited_for`), and all are given back on time-out or cancellation. A
/// try gives back what it took at the first name that is not free. So it is not atomic: it may find busy what another try
/// has only until it is refused itself, and then both are. What is given back this way blocks no name for its minimum hold.
#[derive(Clone, Debug)]
#[must_use = "nothing happens until it is acquired"]
pub struct MultiLock {
    lock: Lock,
    names: Result<Vec<Name>, Arc<Error>>,
}

/// What a try for several names came to.
#[derive(Debug)]
#[must_use]
pub enum MultiAttempt {
    /// All are ours.
    Granted(MultiGuard),
    /// Somebody has one of them; none is ours.
    Busy(Busy),
}

impl MultiLock {
    pub(crate) fn new<I>(engine: Arc<Engine>, names: I) -> Self
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        let names = sorted(names).map_err(Arc::new);
        Self { lock: Lock::new(engine, "several names", Mode::Exclusive), names }
    }

    /// How long the leases last without renewal.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.lock = self.lock.ttl(ttl);
        self
    }

    /// How long [`acquire`](MultiLock::acquire) waits for all of them together.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.lock = self.lock.wait(wait);
        self
    }

    /// Takes each as one of any number of readers.
    pub fn shared(mut self) -> Self {
        self.lock = self.lock.shared();
        self
    }

    /// Keeps the names held at least this long.
    pub fn min_hold(mut self, min_hold: Duration) -> Self {
        self.lock = self.lock.min_hold(min_hold);
        self
    }

    /// Up to 1 KiB that is shown to whoever looks at the locks.
    pub fn value(mut self, value: impl AsRef<[u8]>) -> Self {
        self.lock = self.lock.value(value);
        self
    }

    /// Who acquires, for the detection of deadlocks.
    pub fn owner(mut self, owner: impl Into<OwnerId>) -> Self {
        self.lock = self.lock.owner(owner);
        self
    }

    /// The trace that this acquisition belongs to: see [`Lock::trace_id`].
    pub fn trace_id(mut self, trace_id: impl AsRef<str>) -> Self {
        self.lock = self.lock.trace_id(trace_id);
        self
    }

    fn names(&self) -> Result<&[Name], Error> {
        self.names.as_deref().map_err(|error| error.duplicate())
    }

    /// Asks once for all.
    ///
    /// # Errors
    /// As [`Lock::try_acquire`].
    ///
    /// # Cancel safety
    /// Cancel safe: leases already on their way are given back.
    pub async fn try_acquire(&self) -> Result<MultiAttempt, Error> {
        let attempt = self.try_untold().await?;
        if let MultiAttempt::Busy(_) = attempt {
            self.lock.engine.events.refused(self.names()?, self.lock.trace());
        }
        Ok(attempt)
    }

    async fn try_untold(&self) -> Result<MultiAttempt, Error> {
        let mut taken = Taken::default();
        for name in self.names()? {
            match self.lock.named(name.clone()).try_untold().await? {
                Attempt::Granted(guard) => taken.0.push(guard),
                Attempt::Busy(busy) => return Ok(MultiAttempt::Busy(busy)),
            }
        }
        Ok(MultiAttempt::Granted(taken.all()))
    }

    /// Waits until all are ours.
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    ///
    /// # Cancel safety
    /// Cancel safe: what was taken so far is given back.
    pub async fn acquire(&self) -> Result<MultiGuard, Error> {
        let (names, clock) = (self.names()?, &self.lock.engine.clock);
        // The limit is for all of them together.
        let limit = self.lock.options.wait.map(|wait| clock.now() + wait);
        let mut was_answered = false;
        loop {
            let mut taken = Taken::default();
            for name in names {
                let mut lock = self.lock.named(name.clone());
                if was_answered {
                    lock = lock.riding_out();
                }
                lock.options.wait = limit.map(|limit| limit.since(clock.now()));
                taken.0.push(lock.acquire().await?);
                was_answered = true;
            }
            // An outage may have taken one of them while the next was waited for.
            if taken.0.iter().all(Guard::is_held) {
                return Ok(taken.all());
            }
        }
    }
}

/// What was taken so far. Dropped, it is given back.
#[derive(Default)]
struct Taken(Vec<Guard>);

impl Taken {
    /// It was everything.
    fn all(mut self) -> MultiGuard {
        MultiGuard { guards: std::mem::take(&mut self.0) }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.drain(..).for_each(Guard::give_up);
    }
}

fn sorted<I>(names: I) -> Result<Vec<Name>, Error>
where
    I: IntoIterator,
    I::Item: AsRef<str>,
{
    let mut names: Vec<_> = names.into_iter().map(Name::new).collect::<Result<_, _>>()?;
    names.sort();
    names.dedup();
    if names.is_empty() {
        return Err(Error::new(ErrorKind::InvalidInput, "there is no name to lock"));
    }
    if names.len() > NAMES_MAX {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!("{} names are too many to lock together", names.len()),
        )
        .hint(format!("at most {NAMES_MAX}; a lock on what they have in common does the same")));
    }
    Ok(names)
}

/// Several leases that are held together. Lost as soon as one of them is. Dropping it releases them in the background.
#[derive(Debug)]
#[must_use = "the leases are released when this is dropped"]
pub struct MultiGuard {
    guards: Vec<Guard>,
}

impl MultiGuard {
    /// The names and their fences, sorted by name.
    pub fn fences(&self) -> impl Iterator<Item = (&Name, Fence)> {
        self.guards.iter().map(|guard| (guard.name(), guard.fence()))
    }

    /// The fence of one of the names.
    pub fn fence(&self, name: &str) -> Option<Fence> {
        self.guards.iter().find(|guard| guard.name().as_str() == name).map(Guard::fence)
    }

    /// Whether all may be relied on at this moment.
    pub fn is_held(&self) -> bool {
        self.guards.iter().all(Guard::is_held)
    }

    /// How long all can be relied on without another renewal.
    pub fn remaining(&self) -> Duration {
        self.guards.iter().map(Guard::remaining).min().unwrap_or_default()
    }

    /// When the first of them ends without another renewal.
    pub fn deadline(&self) -> Moment {
        self.guards.iter().map(Guard::deadline).min().unwrap_or(Moment::NEVER)
    }

    /// Resolves when the first of them is lost, with its name and the reason.
    ///
    /// # Cancel safety
    /// Cancel safe: ask again at any time.
    pub async fn lost(&self) -> (Name, LostReason) {
        let mut all: Vec<_> = self.guards.iter().map(|guard| Box::pin(guard.lost())).collect();
        std::future::poll_fn(|cx| {
            for (guard, lost) in self.guards.iter().zip(&mut all) {
                if let Poll::Ready(reason) = lost.as_mut().poll(cx) {
                    return Poll::Ready((guard.name().clone(), reason));
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Gives all back; `AlreadyExpired` if one of them had ended.
    ///
    /// # Errors
    /// The first error of a release; the others are tried all the same.
    ///
    /// # Cancel safety
    /// Cancelled, the rest is released in the background.
    pub async fn release(self) -> Result<Release, Error> {
        let mut outcome = Ok(Release::Released);
        for released in all_released(self.guards).await {
            match released {
                Ok(Release::Released) => {}
                Ok(Release::AlreadyExpired) if outcome.is_ok() => {
                    outcome = Ok(Release::AlreadyExpired);
                }
                Ok(Release::AlreadyExpired) => {}
                Err(error) if outcome.is_ok() => outcome = Err(error),
                Err(_) => {}
            }
        }
        outcome
    }

    /// The leases one by one.
    pub fn into_guards(self) -> Vec<Guard> {
        self.guards
    }
}

/// All at once: they go out together, and each may take its time if the store is away.
async fn all_released(guards: Vec<Guard>) -> Vec<Result<Release, Error>> {
    let mut releases: Vec<_> =
        guards.into_iter().map(|guard| (Box::pin(guard.release()), None)).collect();
    std::future::poll_fn(|cx| {
        for (release, outcome) in releases.iter_mut().filter(|(_, outcome)| outcome.is_none()) {
            if let Poll::Ready(told) = release.as_mut().poll(cx) {
                *outcome = Some(told);
            }
        }
        if releases.iter().all(|(_, outcome)| outcome.is_some()) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    releases.into_iter().filter_map(|(_, outcome)| outcome).collect()
}

impl fmt::Display for MultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.guards.iter().map(|guard| guard.name().as_str()).collect();
        f.write_str(&names.join(", "))
    }
}
