//! The entry: a client of one store.

use std::{cmp::Reverse, fmt, sync::Arc, time::Duration};

use crate::{
    Election, Error, ErrorKind, Event, Guard, Handle, Lock, Mode, MultiLock, Name, Observations,
    OrderCheck,
    clock::{Clock, SystemClock},
    diagnosis,
    engine::{Engine, Settings},
    store::{
        self, Break, Broken, Capability, Finding, Guarantee, IfBusy, LockView, OpenContext, Query,
        Store,
    },
};

/// Opens the store a URL names: `sqlite:`, `memory:`, and those of the crate's features.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] for a URL that names no store; else what the store says.
///
/// # Cancel safety
/// Cancel safe: what was opened so far is closed.
pub async fn connect(url: &str) -> Result<Locks, Error> {
    Locks::builder().connect(url).await
}

/// A client of one store: makes locks, semaphores, elections. Cheap to clone.
///
/// It lives on the runtime it was made on: a runtime blocked by user code for longer than a TTL loses its leases, but
/// there are never two holders. (`renewal::a_blocked_runtime_ends_in_lost`) When that runtime ends, everything held is
/// lost, and whoever waits on another is told so. Not for use in a child that was forked: make a new one there.
#[derive(Clone)]
pub struct Locks {
    pub(crate) engine: Arc<Engine>,
}

/// How a [`Locks`] is set up.
#[must_use = "nothing happens until it is connected"]
pub struct Builder {
    clock: Arc<dyn Clock>,
    who: Option<String>,
    seed: Option<u64>,
    cohorts: bool,
    deadlock_check: bool,
    order_check: OrderCheck,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("clock", &self.clock).finish_non_exhaustive()
    }
}

impl Builder {
    /// Where time comes from; tests give a virtual clock.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// How this process is shown to others; `host:pid` if not set.
    pub fn who(mut self, who: impl Into<String>) -> Self {
        self.who = Some(who.into());
        self
    }

    /// Makes tokens and jitter repeatable. For tests only: tokens are then no secret.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Whether a lease may pass between tasks of this process without the store, for a bounded time: on by default.
    /// Off, waiters of all processes are served strictly in the order they came.
    pub fn cohorts(mut self, cohorts: bool) -> Self {
        self.cohorts = cohorts;
        self
    }

    /// Whether a wait that closes a cycle of owners fails with [`ErrorKind::Deadlock`]: on by default.
    pub fn deadlock_check(mut self, check: bool) -> Self {
        self.deadlock_check = check;
        self
    }

    /// What to do about names taken in opposite orders; nothing by default.
    pub fn order_check(mut self, check: OrderCheck) -> Self {
        self.order_check = check;
        self
    }

    /// Opens the store a URL names.
    ///
    /// # Errors
    /// As [`connect`].
    ///
    /// # Cancel safety
    /// As [`connect`].
    pub async fn connect(self, url: &str) -> Result<Locks, Error> {
        let who = self.identity()?;
        let context = OpenContext { clock: self.clock.clone(), who };
        let store = store::open(url, context).await?;
        self.over(store)
    }

    /// Uses a store that is open already. Each `Locks` needs a store value of its own.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the identity holds control characters, or outside of a tokio runtime.
    pub fn over(self, store: Arc<dyn Store>) -> Result<Locks, Error> {
        let who = self.identity()?;
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(Error::new(ErrorKind::InvalidInput, "there is no tokio runtime here")
                .hint("call this inside one, or use `leaseward::blocking`"));
        }
        let engine = Engine::start(
            store,
            Settings {
                clock: self.clock,
                who,
                seed: self.seed,
                cohorts: self.cohorts,
                deadlock_check: self.deadlock_check,
                order_check: self.order_check,
            },
        );
        Ok(Locks { engine })
    }

    fn identity(&self) -> Result<Arc<str>, Error> {
        let who = self.who.clone().unwrap_or_else(process);
        if who.chars().any(char::is_control) || who.len() > IDENTITY_MAX_BYTES {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "an identity is at most 256 bytes without control characters",
            ));
        }
        Ok(Arc::from(who))
    }
}

/// This process, as `host:pid`.
pub(crate) fn process() -> String {
    let system = rustix::system::uname();
    format!("{}:{}", system.nodename().to_string_lossy(), std::process::id())
}

/// The longest readable identity of a process.
const IDENTITY_MAX_BYTES: usize = 256;

/// Whether the store is there.
#[non_exhaustive]
#[derive(Debug)]
pub struct Health {
    /// How long one round trip took, or why there was none.
    pub round_trip: Result<Duration, Error>,
    /// Whether new asks fail at once because the store failed repeatedly.
    pub breaker_open: bool,
    /// How far the newest fence runs ahead of the clock, where the store knows.
    pub fence_lead: Option<Duration>,
}

impl Health {
    /// Whether the store answered and is being asked.
    pub fn is_good(&self) -> bool {
        self.round_trip.is_ok() && !self.breaker_open
    }
}

impl Locks {
    /// Sets up a client.
    pub fn builder() -> Builder {
        Builder {
            clock: Arc::new(SystemClock),
            who: None,
            seed: None,
            cohorts: true,
            deadlock_check: true,
            order_check: OrderCheck::Off,
        }
    }

    /// A client with default settings of a store that is open already.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] outside of a tokio runtime.
    pub fn over(store: Arc<dyn Store>) -> Result<Self, Error> {
        Self::builder().over(store)
    }

    /// A lock on a name. A bad name is reported when the lock is acquired.
    pub fn lock(&self, name: impl AsRef<str>) -> Lock {
        Lock::new(self.engine.clone(), name.as_ref(), Mode::Exclusive)
    }

    /// A permit of a counting semaphore. The capacity is fixed by the first holder; another one while it is held is an
    /// error of kind [`ErrorKind::Capacity`].
    pub fn semaphore(&self, name: impl AsRef<str>, capacity: u32) -> Lock {
        Lock::new(self.engine.clone(), name.as_ref(), Mode::Permit { capacity })
    }

    /// Several names at once, without risk of deadlock among those who take them this way. A try is not atomic, on any
    /// store: of two for overlapping sets at one moment, both may be refused ([`MultiLock`]).
    pub fn all<I>(&self, names: I) -> MultiLock
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        MultiLock::new(self.engine.clone(), names)
    }

    /// An election on a name.
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election::new(self.clone(), name.as_ref())
    }

    /// Takes over a lease that was [detached](Guard::detach), perhaps by another process, and renews it from here on.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if it has ended; else what the store says.
    ///
    /// # Cancel safety
    /// Cancel safe: the lease may have been renewed once.
    pub async fn attach(&self, handle: &Handle) -> Result<Guard, Error> {
        let spec = crate::options::Options::new(handle.mode())
            .with_ttl(handle.ttl())
            .spec(self.engine.store.capability(), IfBusy::Tell)?;
        self.engine.attach(handle, spec, crate::OwnerId::current_task()).await
    }

    /// What is held and who waits, in the whole store.
    ///
    /// # Errors
    /// What the store says.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub async fn inspect(&self, query: Query) -> Result<Vec<LockView>, Error> {
        self.engine.store.inspect(query).await
    }

    /// What all clients of the store do, from now on.
    ///
    /// # Errors
    /// What the store says.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub async fn observe(&self) -> Result<Observations, Error> {
        Observations::begin(self.clone()).await
    }

    /// Ends the leases on a name against their holders' will. Without `now` their renewals are refused, so the holders
    /// are told and the name comes free when the leases run out; with it the name is free at once, and an old holder
    /// may still run until its deadline: only the fence protects.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a bad name; else what the store says.
    ///
    /// # Cancel safety
    /// The order may or may not be carried out.
    pub async fn break_lease(&self, name: impl AsRef<str>, now: bool) -> Result<Broken, Error> {
        let name = Name::new(name)?;
        let broken = self.engine.store.break_lease(Break { name: name.clone(), now }).await?;
        for holder in &broken.holders {
            self.engine.events.broken(&name, holder, now);
        }
        Ok(broken)
    }

    /// Whether the store is there, for the caller's own health endpoint. Never fails; look inside.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub async fn health(&self) -> Health {
        let round_trip = self.engine.store.ping().await;
        let fence_lead = self.engine.store.fence_lead();
        if let Some(lead) = fence_lead {
            self.engine.events.fence_lead(lead);
        }
        // A server may be set up otherwise by now, or be another one.
        self.engine.events.guarantee(&self.guarantee());
        Health { round_trip, breaker_open: self.engine.breaker_is_open(), fence_lead }
    }

    /// Checks what silently breaks locks in this store: how it is set up, what it runs on, how far its fences are ahead
    /// of its clock. The worst comes first; a healthy store has nothing of [`Severity::Danger`](store::Severity).
    ///
    /// # Errors
    /// What the store says.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub async fn diagnose(&self) -> Result<Vec<Finding>, Error> {
        let store = &self.engine.store;
        // Without it a client that has not asked for anything yet knows of no fence.
        store.ping().await?;
        let mut findings = store.diagnose().await?;
        findings.extend(store.fence_lead().and_then(diagnosis::of_fence_lead));
        findings.sort_by_key(|finding| Reverse(finding.severity));
        Ok(findings)
    }

    /// What this store, as it is set up, promises.
    pub fn guarantee(&self) -> Guarantee {
        self.engine.store.guarantee()
    }

    /// Refuses a store that promises less than the program needs. Call it once, at the start.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] naming the shortfall.
    pub fn require(&self, needed: &Guarantee) -> Result<(), Error> {
        self.guarantee().require(needed)
    }

    /// What this store can do.
    pub fn capability(&self) -> &Capability {
        self.engine.store.capability()
    }

    /// Where the store is; no password in it.
    pub fn location(&self) -> String {
        self.engine.store.location()
    }

    /// The clock deadlines are told by.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.engine.clock
    }

    /// Calls back for every event of this client, on the thread where it happens: be quick, never block.
    pub fn on_event(&self, sink: impl Fn(&Event) + Send + Sync + 'static) {
        self.engine.events.add_sink(Arc::new(sink));
    }

    /// Releases everything held, tells everybody who waits, and refuses from then on. Never hangs.
    ///
    /// What is held counts as released from here on, whatever becomes of its guards. An [`AuditLog`](crate::AuditLog) has
    /// been written when it is done.
    ///
    /// # Cancel safety
    /// Cancelled, some leases may end by their TTL instead.
    pub async fn shutdown(&self) {
        self.engine.shut_down().await;
    }
}

/// Everything this process holds and waits for, and when it is asked for again: what to log when somebody waits for too
/// long. No secret is in it.
impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks")
            .field("store", &self.location())
            .field("engine", &self.engine)
            .finish_non_exhaustive()
    }
}
