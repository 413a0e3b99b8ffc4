//! Several names at once.

use std::{fmt, future::Future, sync::Arc, task::Poll, time::Duration};

use crate::{
    Attempt, Busy, Error, ErrorKind, Fence, Guard, Lock, LostReason, Mode, Name, OwnerId, Release,
    clock::Moment,
    engine::{Engine, enter::until, several::All},
    store::IfBusy,
};

/// The most names in one go.
const NAMES_MAX: usize = 64;

/// Several names to be taken together: all or none.
///
/// A try is atomic where the store can; on a Redis Cluster if the names share a slot, for which a common tag in braces
/// does: `{order:1}:stock`, `{order:1}:bill`. Elsewhere it takes one by one, and gives them back at the first that is not
/// free. Waiting takes the names in sorted order, first come first served in each, and
/// gives all back on time-out or cancellation, so two sets in opposite orders never deadlock.
/// (`several::opposite_orders_never_deadlock`)
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
        let names = self.names()?;
        let engine = &self.lock.engine;
        let capability = engine.store.capability();
        if names.len() == 1 || !engine.store.takes_together(names) {
            return self.try_one_by_one(names).await;
        }
        let spec = self.lock.options.spec(capability, IfBusy::Tell)?;
        let owner = self.lock.options.owner();
        Ok(match engine.try_all(names, &spec, owner.as_ref()).await? {
            All::Granted(guards) => MultiAttempt::Granted(MultiGuard { guards }),
            All::Busy(standing) => MultiAttempt::Busy(standing.into()),
        })
    }

    async fn try_one_by_one(&self, names: &[Name]) -> Result<MultiAttempt, Error> {
        let mut guards = Vec::with_capacity(names.len());
        for name in names {
            match self.lock.named(name.clone()).try_untold().await? {
                Attempt::Granted(guard) => guards.push(guard),
                Attempt::Busy(busy) => return Ok(MultiAttempt::Busy(busy)),
            }
        }
        Ok(MultiAttempt::Granted(MultiGuard { guards }))
    }

    /// Waits until all are ours.
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    ///
    /// # Cancel safety
    /// Cancel safe: what was taken so far is given back.
    pub async fn acquire(&self) -> Result<MultiGuard, Error> {
        let names = self.names()?;
        let engine = &self.lock.engine;
        let (clock, began) = (&engine.clock, engine.clock.now());
        let limit = self.lock.options.wait.map(|wait| began + wait);
        let Some(attempt) = until(clock, limit, self.try_untold()).await else {
            engine.events.timed_out(names, clock.now().since(began), self.lock.trace());
            return Err(Error::new(ErrorKind::Timeout, "the store did not answer in time")
                .hint("wait longer, or see who holds what"));
        };
        if let MultiAttempt::Granted(guard) = attempt? {
            return Ok(guard);
        }
        loop {
            let guard = self.one_by_one(names, limit).await?;
            // An outage may have taken one of them while the next was waited for.
            if guard.is_held() {
                return Ok(guard);
            }
        }
    }

    /// Waits for one name after the other, each in line: from the first answer on the store is waited for, too.
    async fn one_by_one(&self, names: &[Name], limit: Option<Moment>) -> Result<MultiGuard, Error> {
        let clock = &self.lock.engine.clock;
        let mut guards = Vec::with_capacity(names.len());
        for name in names {
            let mut lock = self.lock.named(name.clone()).riding_out();
            // The limit is for all of them together.
            lock.options.wait = limit.map(|limit| limit.since(clock.now()));
            guards.push(lock.acquire().await?);
        }
        Ok(MultiGuard { guards })
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
