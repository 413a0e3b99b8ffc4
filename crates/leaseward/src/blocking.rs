//! The same locks for threads without a runtime.
//!
//! A background thread runs the engine; calls block the thread they are made on. The owner of a lease, for the
//! detection of deadlocks, is the thread that asked.
//!
//! ```
//! let locks = leaseward::blocking::connect("memory:")?;
//! let guard = locks.lock("table:42").acquire()?;
//! assert!(guard.is_held());
//! guard.release()?;
//! # Ok::<(), leaseward::Error>(())
//! ```

use std::{
    fmt,
    ops::Deref,
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use tokio::{runtime, sync::oneshot};

use crate::{
    Busy, Error, ErrorKind, Handle, Lease, LostReason, OwnerId, Release,
    engine::{Engine, acquire::until},
    store::{Broken, LockView, Query},
};

/// Opens the store a URL names.
///
/// # Errors
/// As [`crate::connect`]; [`ErrorKind::InvalidInput`] inside a runtime.
pub fn connect(url: &str) -> Result<Locks, Error> {
    let mut background = Background::start()?;
    let locks = background.wait_for(crate::connect(url))??;
    background.engine = Arc::downgrade(&locks.engine);
    Ok(Locks { locks, background: Arc::new(background) })
}

/// A thread that runs the engine until nobody needs it.
struct Background {
    handle: runtime::Handle,
    engine: Weak<Engine>,
    stop: Option<oneshot::Sender<Weak<Engine>>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Background {
    fn start() -> Result<Self, Error> {
        let failed = |error: std::io::Error| {
            Error::new(ErrorKind::Unavailable, "the background thread could not be started")
                .caused_by(error)
        };
        let runtime =
            runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new()
            .name("leaseward".into())
            .spawn(move || {
                runtime.block_on(async {
                    if let Ok(engine) = stopped.await {
                        finish(&engine).await;
                    }
                });
            })
            .map_err(failed)?;
        Ok(Self { handle, engine: Weak::new(), stop: Some(stop), thread: Some(thread) })
    }

    fn wait_for<T>(&self, work: impl Future<Output = T>) -> Result<T, Error> {
        if runtime::Handle::try_current().is_ok() {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "a blocking call inside a tokio runtime would block its other tasks",
            )
            .hint("use the async `Locks`, or `tokio::task::spawn_blocking`"));
        }
        Ok(self.handle.block_on(work))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(self.engine.clone());
        }
        let on_itself =
            |thread: &thread::JoinHandle<()>| thread.thread().id() == thread::current().id();
        if let Some(thread) = self.thread.take().filter(|thread| !on_itself(thread)) {
            // Ends once releases in the background are through, at the latest after `FINISH_MAX`.
            let _ = thread.join();
        }
    }
}

/// How long releases in the background may take when the last user of the store goes.
const FINISH_MAX: Duration = Duration::from_secs(1);

/// Waits until nothing is under way any more: what is, keeps the engine alive.
async fn finish(engine: &Weak<Engine>) {
    let all_done = async {
        while engine.strong_count() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::task::yield_now().await;
    };
    let _ = tokio::time::timeout(FINISH_MAX, all_done).await;
}

/// A client of one store, for threads. Cheap to clone.
#[derive(Clone)]
pub struct Locks {
    locks: crate::Locks,
    background: Arc<Background>,
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.locks.fmt(f)
    }
}

impl Locks {
    /// A lock on a name.
    pub fn lock(&self, name: impl AsRef<str>) -> Lock {
        Lock { lock: self.locks.lock(name), background: self.background.clone() }
    }

    /// A permit of a counting semaphore.
    pub fn semaphore(&self, name: impl AsRef<str>, capacity: u32) -> Lock {
        Lock { lock: self.locks.semaphore(name, capacity), background: self.background.clone() }
    }

    /// Takes over a detached lease; see [`crate::Locks::attach`].
    ///
    /// # Errors
    /// As there.
    pub fn attach(&self, handle: &Handle) -> Result<Guard, Error> {
        let guard = self.background.wait_for(self.locks.attach(handle))??;
        Ok(Guard { guard: Some(guard), background: self.background.clone() })
    }

    /// What is held and who waits.
    ///
    /// # Errors
    /// What the store says.
    pub fn inspect(&self, query: Query) -> Result<Vec<LockView>, Error> {
        self.background.wait_for(self.locks.inspect(query))?
    }

    /// Ends leases against their holders' will; see [`crate::Locks::break_lease`].
    ///
    /// # Errors
    /// As there.
    pub fn break_lease(&self, name: impl AsRef<str>, now: bool) -> Result<Broken, Error> {
        self.background.wait_for(self.locks.break_lease(name, now))?
    }

    /// Releases everything held and refuses from then on.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] inside a runtime.
    pub fn shutdown(&self) -> Result<(), Error> {
        self.background.wait_for(self.locks.shutdown())
    }

    /// The async client underneath: for what has no blocking form.
    pub fn as_async(&self) -> &crate::Locks {
        &self.locks
    }
}

/// A lock to be taken by a thread.
#[derive(Clone)]
#[must_use = "nothing happens until it is acquired"]
pub struct Lock {
    lock: crate::Lock,
    background: Arc<Background>,
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock.fmt(f)
    }
}

/// What a try came to.
#[derive(Debug)]
#[must_use]
pub enum Attempt {
    /// The lease is ours.
    Granted(Guard),
    /// Somebody has it.
    Busy(Busy),
}

impl Lock {
    /// How long the lease lasts without renewal.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.with(|lock| lock.ttl(ttl))
    }

    /// How long [`acquire`](Lock::acquire) waits.
    pub fn wait(self, wait: Duration) -> Self {
        self.with(|lock| lock.wait(wait))
    }

    /// Takes it as one of any number of readers.
    pub fn shared(self) -> Self {
        self.with(crate::Lock::shared)
    }

    /// Sets any option of the async [`Lock`](crate::Lock).
    pub fn with(mut self, set: impl FnOnce(crate::Lock) -> crate::Lock) -> Self {
        self.lock = set(self.lock);
        self
    }

    fn owned(&self) -> crate::Lock {
        self.lock.clone().owned_by_default(OwnerId::current_thread())
    }

    /// Waits until the lease is ours.
    ///
    /// # Errors
    /// As [`crate::Lock::acquire`].
    pub fn acquire(&self) -> Result<Guard, Error> {
        let guard = self.background.wait_for(self.owned().acquire())??;
        Ok(Guard { guard: Some(guard), background: self.background.clone() })
    }

    /// Asks once.
    ///
    /// # Errors
    /// As [`crate::Lock::try_acquire`].
    pub fn try_acquire(&self) -> Result<Attempt, Error> {
        Ok(match self.background.wait_for(self.owned().try_acquire())?? {
            crate::Attempt::Granted(guard) => {
                Attempt::Granted(Guard { guard: Some(guard), background: self.background.clone() })
            }
            crate::Attempt::Busy(busy) => Attempt::Busy(busy),
        })
    }

    /// Acquires, calls, releases. A thread cannot be stopped from outside: long work looks at
    /// [`Lease::is_held`] from time to time.
    ///
    /// # Errors
    /// As [`crate::Lock::run`].
    pub fn run<T>(&self, work: impl FnOnce(&Lease) -> T) -> Result<T, Error> {
        let guard = self.acquire()?;
        let lease = guard.lease();
        let out = work(&lease);
        let lost = lease.lost_now();
        match (lost, guard.release()) {
            (Some(reason), _) => Err(crate::guard::lost_error(lease.name(), reason)),
            (None, Ok(Release::AlreadyExpired)) => {
                let reason = lease.lost_now().unwrap_or(LostReason::Expired);
                Err(crate::guard::lost_error(lease.name(), reason))
            }
            (None, Ok(Release::Released) | Err(_)) => Ok(out),
        }
    }
}

/// A lease that is held by a thread; everything that does not wait is on the [`crate::Guard`] it derefs to.
#[must_use = "the lease is released when this is dropped"]
pub struct Guard {
    // Taken only by what consumes the guard.
    guard: Option<crate::Guard>,
    background: Arc<Background>,
}

impl Deref for Guard {
    type Target = crate::Guard;
    fn deref(&self) -> &crate::Guard {
        self.guard.as_ref().expect("BUG: only consumed guards are empty")
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}

impl Guard {
    /// Gives the lease back.
    ///
    /// # Errors
    /// As [`crate::Guard::release`].
    pub fn release(mut self) -> Result<Release, Error> {
        let guard = self.guard.take().expect("BUG: only consumed guards are empty");
        self.background.wait_for(guard.release())?
    }

    /// Renews now.
    ///
    /// # Errors
    /// As [`crate::Guard::renew`].
    pub fn renew(&self) -> Result<(), Error> {
        self.background.wait_for(crate::Guard::renew(self))?
    }

    /// Waits until the lease is lost, at most so long; `None` if it was not.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] inside a runtime.
    pub fn lost_within(&self, limit: Duration) -> Result<Option<LostReason>, Error> {
        let clock = self.clock().clone();
        let at = clock.now() + limit;
        self.background.wait_for(until(&clock, Some(at), self.lost()))
    }

    /// Lets go of the lease without releasing it.
    pub fn detach(mut self) -> Handle {
        self.guard.take().expect("BUG: only consumed guards are empty").detach()
    }
}
