//! The memory store: leases of tasks in one process. Tests, single processes, and the reference semantics.
//!
//! `memory:` is a space of its own for each connection; `memory:NAME` is shared by all connections of the process that
//! name it. Nothing survives the process.

mod hold;
pub(crate) mod room;
mod rooms;
pub(crate) mod space;

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, LazyLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::broadcast;

use self::{
    room::ClientId,
    space::{Effects, Now, Space, Wall},
};
use crate::{
    Error, Fence,
    clock::{BoxFuture, Clock},
    store::{
        Batch, Break, Broken, Capability, Completion, Guarantee, Level, LockView, Observation,
        OpenContext, Push, PushSink, Query, Reach, Scheme, Store, StoreUrl,
    },
};

/// How many observations a slow observer may lag behind before it loses some.
const OBSERVATIONS_MAX: usize = 1_024;

/// The registry's line.
pub(crate) static SCHEME: Scheme = Scheme {
    names: &["memory"],
    what: "tasks of one process; nothing survives it",
    example: "memory:",
    open: |url, context| Box::pin(async move { Ok(Arc::new(from_url(&url, &context)?) as _) }),
};

static SHARED: LazyLock<Mutex<HashMap<String, Weak<Shared>>>> = LazyLock::new(Mutex::default);

fn from_url(url: &StoreUrl, context: &OpenContext) -> Result<Memory, Error> {
    url.only(&[])?;
    let clock = context.clock.clone();
    let name = url.path();
    if name.is_empty() {
        return Ok(Memory::new(clock));
    }
    let mut spaces = SHARED.lock();
    spaces.retain(|_, space| space.strong_count() > 0);
    let shared = spaces.get(&name).and_then(Weak::upgrade).unwrap_or_else(|| {
        let shared = Arc::new(Shared::new());
        spaces.insert(name, Arc::downgrade(&shared));
        shared
    });
    Ok(Memory::join(shared, clock))
}

struct Shared {
    space: Mutex<Space>,
    clients: Mutex<Vec<Option<PushSink>>>,
    observers: broadcast::Sender<Arc<Observation>>,
    was_observed: AtomicBool,
}

impl Shared {
    fn new() -> Self {
        Self {
            space: Mutex::default(),
            clients: Mutex::default(),
            observers: broadcast::Sender::new(OBSERVATIONS_MAX),
            was_observed: AtomicBool::new(false),
        }
    }

    /// Runs something on the space, then tells whom it concerns, with no lock held.
    fn act<T>(
        &self,
        clock: &dyn Clock,
        act: impl FnOnce(&mut Space, Now<'_>, &mut Effects) -> T,
    ) -> T {
        let mut effects = Effects { observing: self.is_observed(), ..Effects::default() };
        let answer = {
            let mut space = self.space.lock();
            // For the space time never goes back, whatever its clients' clocks say.
            let now = Now { moment: space.at(clock.now()), wall: Wall::Clock(clock) };
            act(&mut space, now, &mut effects)
        };
        for observation in effects.observed {
            // Fails only if the last observer has just gone.
            let _ = self.observers.send(Arc::new(observation));
        }
        for (client, push) in effects.pushes {
            self.push(client, push);
        }
        answer
    }

    /// Whether anybody observes. Counting takes a lock, so it is done only once somebody has.
    fn is_observed(&self) -> bool {
        self.was_observed.load(Ordering::Relaxed) && self.observers.receiver_count() > 0
    }

    fn push(&self, client: ClientId, push: Push) {
        let at = usize::try_from(client).expect("BUG: a client id is an index");
        let sink = self.clients.lock().get(at).cloned().flatten();
        if let Some(sink) = sink {
            sink(push);
        }
    }
}

/// One client of a memory space.
pub struct Memory {
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
    client: ClientId,
    capability: Capability,
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("client", &self.client).finish_non_exhaustive()
    }
}

impl Memory {
    /// A space of its own, and its first client.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self::join(Arc::new(Shared::new()), clock)
    }

    /// Another client of the same space: what another process would be to a shared store.
    #[must_use]
    pub fn another(&self) -> Self {
        Self::join(self.shared.clone(), self.clock.clone())
    }

    fn join(shared: Arc<Shared>, clock: Arc<dyn Clock>) -> Self {
        let client = {
            let mut clients = shared.clients.lock();
            clients.push(None);
            ClientId::try_from(clients.len() - 1).expect("BUG: four billion clients")
        };
        Self { shared, clock, client, capability: Capability::full(Reach::Process) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let at = usize::try_from(self.client).expect("BUG: a client id is an index");
        self.shared.clients.lock()[at] = None;
    }
}

impl Store for Memory {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee {
            exclusion: Level::Holds,
            fences: Level::Holds,
            reach: Reach::Process,
            breaks_when: Vec::new(),
        }
    }

    fn location(&self) -> String {
        "memory:".into()
    }

    fn start(&self, sink: PushSink) {
        let at = usize::try_from(self.client).expect("BUG: a client id is an index");
        self.shared.clients.lock()[at] = Some(sink);
    }

    fn submit(&self, batch: Batch, reply: Completion) {
        let answers: SmallVec<[_; 1]> = self.shared.act(&*self.clock, |space, now, effects| {
            batch
                .iter()
                .map(|operation| space.apply(operation, self.client, now, effects))
                .collect()
        });
        reply.answer_all(answers);
    }

    fn inspect(&self, query: Query) -> BoxFuture<'static, Result<Vec<LockView>, Error>> {
        let views = self.shared.space.lock().inspect(&query, self.clock.now());
        Box::pin(std::future::ready(Ok(views)))
    }

    fn observe(&self) -> Option<broadcast::Receiver<Arc<Observation>>> {
        let observations = self.shared.observers.subscribe();
        self.shared.was_observed.store(true, Ordering::Relaxed);
        Some(observations)
    }

    fn break_lease(&self, order: Break) -> BoxFuture<'static, Result<Broken, Error>> {
        let broken = self
            .shared
            .act(&*self.clock, |space, now, effects| space.break_lease(&order, now, effects));
        Box::pin(std::future::ready(Ok(broken)))
    }

    fn ping(&self) -> BoxFuture<'static, Result<Duration, Error>> {
        Box::pin(std::future::ready(Ok(Duration::ZERO)))
    }

    fn fence_lead(&self) -> Option<Duration> {
        let last: Fence = self.shared.space.lock().last_fence();
        Some(Duration::from_micros(last.get().saturating_sub(self.clock.wall_us())))
    }
}
