//! One lock to be taken: how, and then take it.

use std::{fmt, future::Future, pin::pin, sync::Arc, task::Poll, time::Duration};

use crate::{
    Danger, Error, ErrorKind, Guard, Holder, Lease, LostReason, Mode, Name, OwnerId, Release,
    clock::Moment,
    engine::{
        Engine,
        acquire::{Request, until},
        caller::Outcome,
    },
    guard::lost_error,
    options::{Options, Renewing, Retry},
    store::{IfBusy, Standing},
};

/// What a try came to.
#[derive(Debug)]
#[must_use]
pub enum Attempt {
    /// The lease is ours.
    Granted(Guard),
    /// Somebody has it.
    Busy(Busy),
}

/// Who has it, as far as the store can tell.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Busy {
    /// One of the holders; `None` if the name is only promised to waiters.
    pub holder: Option<Holder>,
    /// How many wait for it.
    pub waiters: u32,
}

impl From<Standing> for Busy {
    fn from(standing: Standing) -> Self {
        Self { holder: standing.holder, waiters: standing.ahead }
    }
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.holder {
            Some(holder) => write!(f, "held by {holder}"),
            None => write!(f, "promised to {} who wait", self.waiters),
        }
    }
}

/// A lock to be taken: set how, then [`acquire`](Lock::acquire), [`try_acquire`](Lock::try_acquire) or
/// [`run`](Lock::run). Can be kept and used again; every acquisition is a new lease with a new token and fence.
#[derive(Clone)]
#[must_use = "nothing happens until it is acquired"]
pub struct Lock {
    pub(crate) engine: Arc<Engine>,
    name: Result<Name, Arc<Error>>,
    pub(crate) options: Options,
}

impl Lock {
    pub(crate) fn new(engine: Arc<Engine>, name: &str, mode: Mode) -> Self {
        Self { engine, name: Name::new(name).map_err(Arc::new), options: Options::new(mode) }
    }

    /// The same options for another name.
    pub(crate) fn named(&self, name: Name) -> Self {
        Self { engine: self.engine.clone(), name: Ok(name), options: self.options.clone() }
    }

    /// How long the lease lasts without renewal: 100 ms to 24 h, 30 s if not set.
    ///
    /// A store with a longer minimum raises it, and [`Guard::ttl`] says so.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options.ttl = ttl;
        self
    }

    /// How long [`acquire`](Lock::acquire) waits; without it, as long as its future lives.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.options.wait = Some(wait);
        self
    }

    /// Takes it as one of any number of readers.
    pub fn shared(mut self) -> Self {
        self.options.mode = Mode::Shared;
        self
    }

    /// Renews this often instead of every third of the TTL.
    pub fn renew_every(mut self, every: Duration) -> Self {
        self.options.rare().renew = Renewing::Every(every);
        self
    }

    /// Does not renew in the background: the lease ends after its TTL unless renewed by hand.
    pub fn no_renewal(mut self) -> Self {
        self.options.rare().renew = Renewing::Off;
        self
    }

    /// Stops renewing after this long, so that work that hangs does not hold the name for ever.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.options.rare().max_hold = Some(max_hold);
        self
    }

    /// Keeps the name held at least this long, even if it is released sooner: for cron jobs on machines whose clocks
    /// differ.
    pub fn min_hold(mut self, min_hold: Duration) -> Self {
        self.options.rare().min_hold = Some(min_hold);
        self
    }

    /// Up to 1 KiB that is shown to whoever looks at the lock.
    pub fn value(mut self, value: impl AsRef<[u8]>) -> Self {
        self.options.rare().value = Some(value.as_ref().to_owned());
        self
    }

    /// Who acquires, for the detection of deadlocks: by default the tokio task. The guard keeps its owner wherever it
    /// moves.
    pub fn owner(mut self, owner: impl Into<OwnerId>) -> Self {
        self.options.owner = Some(owner.into());
        self
    }

    /// Sets the owner unless the caller has named one.
    pub(crate) fn owned_by_default(mut self, owner: OwnerId) -> Self {
        self.options.owner.get_or_insert(owner);
        self
    }

    /// Tries up to so many times, with full jitter between `base` and `cap`, instead of standing in the queue.
    pub fn retry(mut self, base: Duration, cap: Duration, attempts: u32) -> Self {
        self.options.rare().retry = Some(Retry { base, cap, attempts });
        self
    }

    /// Calls back shortly before the lease ends because its renewals fail.
    pub fn on_danger(mut self, callback: impl Fn(Danger) + Send + Sync + 'static) -> Self {
        self.options.rare().on_danger = Some(Arc::new(callback));
        self
    }

    /// The trace that this acquisition belongs to: stands with each of its events, also in the audit log, so that those of
    /// several processes can be joined.
    pub fn trace_id(mut self, trace_id: impl AsRef<str>) -> Self {
        self.options.rare().trace_id = Some(Arc::from(trace_id.as_ref()));
        self
    }

    /// Waits for a store that is away from the beginning, and not only once it stands in line.
    pub(crate) fn riding_out(mut self) -> Self {
        self.options.rare().rides_out = true;
        self
    }

    fn name(&self) -> Result<Name, Error> {
        self.name.clone().map_err(|error| error.duplicate())
    }

    /// Waits until the lease is ours. First come, first served.
    ///
    /// A store that is away when it is first asked is an error at once. One that goes away while this stands in line is
    /// waited for, like the name itself: as long as [`wait`](Lock::wait) says.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`] if it was not ours within [`wait`](Lock::wait); [`ErrorKind::InvalidInput`],
    /// [`ErrorKind::Unsupported`] or [`ErrorKind::Capacity`] for a request that cannot be met;
    /// [`ErrorKind::Deadlock`] if it could never be ours; [`ErrorKind::Unavailable`] if the store was not reached, or is
    /// away when the wait is over; [`ErrorKind::Refused`] as soon as the store refuses.
    ///
    /// # Cancel safety
    /// Cancel safe: dropped, it leaves the queue, and a lease already on its way is given back.
    /// (`cancellation::a_dropped_acquire_leaves_the_queue`)
    pub async fn acquire(&self) -> Result<Guard, Error> {
        if let Some(retry) = self.options.rare.as_ref().and_then(|rare| rare.retry) {
            return self.acquire_by_retry(retry).await;
        }
        let name = self.name()?;
        match self.ask(&name, IfBusy::Queue, None).await? {
            Outcome::Granted(guard) => Ok(guard),
            Outcome::Busy(standing) => Err(self.timeout(&Busy::from(standing))),
            Outcome::Failed(error) => Err(error),
        }
    }

    /// Told as one wait, however many tries it takes.
    async fn acquire_by_retry(&self, retry: Retry) -> Result<Guard, Error> {
        let name = self.name()?;
        let (clock, events) = (&self.engine.clock, &self.engine.events);
        let began = clock.now();
        let limit = self.options.wait.map(|wait| began + wait);
        let mut last = self.timeout(&Busy { holder: None, waiters: 0 });
        let (mut attempt, mut waits) = (0, false);
        loop {
            match until(clock, limit, self.ask(&name, IfBusy::Tell, Some(began))).await {
                Some(Ok(Outcome::Granted(guard))) => {
                    if waits {
                        events.waited(clock.now().since(began));
                    }
                    return Ok(guard);
                }
                Some(Ok(Outcome::Busy(standing))) => last = self.timeout(&standing.into()),
                Some(Ok(Outcome::Failed(error)) | Err(error)) => {
                    if error.kind() != ErrorKind::Unavailable {
                        return Err(error);
                    }
                    last = error;
                }
                None => break,
            }
            let again = clock.now() + self.engine.jitter(retry.base, retry.cap, attempt);
            attempt += 1;
            if attempt >= retry.attempts || limit.is_some_and(|limit| again >= limit) {
                break;
            }
            if !waits && last.kind() == ErrorKind::Timeout {
                waits = true;
                events.waiting(&name, self.trace());
            }
            clock.sleep_until(again).await;
            events.retried();
        }
        if last.kind() == ErrorKind::Timeout {
            events.timed_out(&[name], clock.now().since(began), self.trace());
        }
        Err(last)
    }

    fn timeout(&self, busy: &Busy) -> Error {
        let name = self.name.as_ref().map_or("", |name| name.as_str());
        Error::new(ErrorKind::Timeout, format!("`{name}` is {busy}"))
            .hint("wait longer, or see who holds what")
    }

    /// Asks once. Busy is a value, with who holds it and for how long yet.
    ///
    /// # Errors
    /// As [`acquire`](Lock::acquire), without `Timeout`.
    ///
    /// # Cancel safety
    /// Cancel safe: a lease already on its way is given back.
    pub async fn try_acquire(&self) -> Result<Attempt, Error> {
        let attempt = self.try_untold().await?;
        if let Attempt::Busy(_) = attempt {
            self.engine.events.refused(&[self.name()?], self.trace());
        }
        Ok(attempt)
    }

    /// The same for a caller that waits if the name is busy: that is no refusal.
    pub(crate) async fn try_untold(&self) -> Result<Attempt, Error> {
        let name = self.name()?;
        match self.ask(&name, IfBusy::Tell, None).await? {
            Outcome::Granted(guard) => Ok(Attempt::Granted(guard)),
            Outcome::Busy(standing) => Ok(Attempt::Busy(standing.into())),
            Outcome::Failed(error) => Err(error),
        }
    }

    pub(crate) fn trace(&self) -> Option<&Arc<str>> {
        self.options.rare.as_ref().and_then(|rare| rare.trace_id.as_ref())
    }

    async fn ask(
        &self,
        name: &Name,
        if_busy: IfBusy,
        since: Option<Moment>,
    ) -> Result<Outcome, Error> {
        let spec = self.options.spec(self.engine.store.capability(), if_busy)?;
        let limit = match if_busy {
            IfBusy::Queue => self.options.wait.map(|wait| self.engine.clock.now() + wait),
            IfBusy::Tell => None,
        };
        let owner = self.options.owner();
        self.engine.acquire(Request { name, spec, owner, limit, since }).await
    }

    /// Acquires, does the work, releases. The work is dropped *before* the lease can end.
    ///
    /// # Errors
    /// As [`acquire`](Lock::acquire); [`ErrorKind::Lost`] if the lease was lost before the work was done, also if the
    /// work finished too late because it blocked its thread.
    ///
    /// # Cancel safety
    /// Dropped, the work is dropped and then the lease given back.
    pub async fn run<F, Fut, T>(&self, work: F) -> Result<T, Error>
    where
        F: FnOnce(Lease) -> Fut,
        Fut: Future<Output = T>,
    {
        let guard = self.acquire().await?;
        let lease = guard.lease();
        let done = run_under(&lease, work).await;
        match (done, guard.release().await) {
            (Ok(out), Ok(Release::Released) | Err(_)) => Ok(out),
            (Ok(_), Ok(Release::AlreadyExpired)) => {
                let reason = lease.lost_now().unwrap_or(LostReason::Expired);
                Err(lost_error(lease.name(), reason))
            }
            (Err(error), _) => Err(error),
        }
    }
}

/// Polls the work only while the lease can be relied on.
pub(crate) async fn run_under<F, Fut, T>(lease: &Lease, work: F) -> Result<T, Error>
where
    F: FnOnce(Lease) -> Fut,
    Fut: Future<Output = T>,
{
    let mut work = pin!(work(lease.clone()));
    let mut lost = pin!(lease.lost());
    std::future::poll_fn(|cx| {
        let gone = |reason| Poll::Ready(Err(lost_error(lease.name(), reason)));
        if let Poll::Ready(reason) = lost.as_mut().poll(cx) {
            return gone(reason);
        }
        // The deadline may have passed without anybody having been told yet.
        if let Some(reason) = lease.lost_now() {
            return gone(reason);
        }
        let polled = work.as_mut().poll(cx);
        match (polled, lease.lost_now()) {
            // Finished, or blocked, past the deadline: somebody else may hold the name already.
            (_, Some(reason)) => gone(reason),
            (Poll::Ready(out), None) => Poll::Ready(Ok(out)),
            (Poll::Pending, None) => Poll::Pending,
        }
    })
    .await
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("name", &self.name)
            .field("mode", &self.options.mode)
            .finish_non_exhaustive()
    }
}
