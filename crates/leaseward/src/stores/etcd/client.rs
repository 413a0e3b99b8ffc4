//! One client: what it has in etcd, the tasks that look after it, and the way to the cluster.

use std::{
    future::Future,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    runtime::Handle,
    sync::{Notify, mpsc},
    task::AbortHandle,
};

use super::{
    config::Config,
    keepalive, keeper,
    keys::Keys,
    leases::{ClassLease, Leases},
    link::Link,
    scale::Scale,
    table::{State, Table},
    watch::{self, Doubt, Order},
};
use crate::{
    Error, LostReason,
    clock::Clock,
    store::{OpenContext, Push, PushSink},
};

/// How long closing may take to leave nothing behind.
const CLOSING: Duration = Duration::from_secs(2);

pub(super) struct Client {
    pub(super) link: Link,
    pub(super) keys: Keys,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) leases: Leases,
    pub(super) scale: Scale,
    pub(super) table: Mutex<Table>,
    sink: OnceLock<PushSink>,
    orders: mpsc::UnboundedSender<Order>,
    doubts: mpsc::UnboundedSender<Doubt>,
    /// Something ends sooner than the keeper thinks.
    pub(super) sooner: Notify,
    runtime: Handle,
    tasks: Mutex<Vec<AbortHandle>>,
    is_closing: AtomicBool,
}

impl Client {
    pub(super) async fn open(config: Config, context: &OpenContext) -> Result<Arc<Self>, Error> {
        let (leases, keep) = Leases::new();
        let (orders, to_watch) = mpsc::unbounded_channel();
        let (doubts, doubtful) = mpsc::unbounded_channel();
        let this = Arc::new(Self {
            keys: Keys::new(&config.prefix),
            link: Link::new(config),
            clock: context.clock.clone(),
            leases,
            scale: Scale::default(),
            table: Mutex::default(),
            sink: OnceLock::new(),
            orders,
            doubts,
            sooner: Notify::new(),
            runtime: Handle::current(),
            tasks: Mutex::default(),
            is_closing: AtomicBool::new(false),
        });
        this.scale.settle(&this.link, &this.keys, &*this.clock).await?;
        let tasks = [
            this.spawn(keepalive::run(this.clone(), keep)),
            this.spawn(watch::run(this.clone(), to_watch)),
            this.spawn(watch::look(this.clone(), doubtful)),
            this.spawn(keeper::run(this.clone())),
        ];
        this.tasks.lock().extend(tasks);
        Ok(this)
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.runtime.spawn(task).abort_handle()
    }

    pub(super) fn start(&self, sink: PushSink) {
        // Called once; a second sink would only be another way to the same engine.
        let _ = self.sink.set(sink);
    }

    pub(super) fn push(&self, push: Push) {
        if let Some(sink) = self.sink.get() {
            sink(push);
        }
    }

    pub(super) fn order(&self, order: Order) {
        let _ = self.orders.send(order);
    }

    /// Has a place in a queue looked at.
    pub(super) fn doubt(&self, doubt: Doubt) {
        let _ = self.doubts.send(doubt);
    }

    /// A lease of etcd's is gone, and everything it carried: whoever relies on it is told.
    pub(super) fn lease_died(&self, lease: &Arc<ClassLease>) {
        self.leases.forget(lease);
        if !lease.die() {
            return;
        }
        let mut pushes = Vec::new();
        {
            let mut table = self.table.lock();
            for key in table.of_lease(lease) {
                let Some(entry) = table.get_mut(&key) else { continue };
                let (name, token) = (entry.name.clone(), entry.token.clone());
                let reason = LostReason::SessionEnded;
                match entry.state {
                    State::Held { .. } => pushes.push(Push::Lost { name, token, reason }),
                    State::Queued { .. } | State::Asked => pushes.push(Push::Woken { name }),
                    State::Ended(_) => continue,
                }
                entry.state = State::Ended(reason);
                self.order(Order::Forget(key));
            }
        }
        if !pushes.is_empty() {
            tracing::warn!(at = %self.link.config.location(), "etcd ended a lease of this process");
        }
        for push in pushes {
            self.push(push);
        }
    }

    /// Gives up leases that were not confirmed for all their time.
    pub(super) fn bury_the_dead(self: &Arc<Self>) {
        let now = self.clock.now();
        for lease in self.leases.all() {
            if lease.is_dead() || lease.lasts_until() <= now {
                self.lease_died(&lease);
                let this = self.clone();
                self.spawn(async move { this.leases.revoke(&this.link, &lease).await });
            }
        }
    }

    /// Leaves nothing behind that nobody holds; what is held stays for as long as it was promised.
    pub(super) async fn close(&self) {
        if self.is_closing.swap(true, Ordering::AcqRel) {
            return;
        }
        let tidy = async {
            for lease in self.leases.all() {
                if self.table.lock().uses(&lease) {
                    let _ = self.leases.refresh(&self.link, &*self.clock, &lease).await;
                } else {
                    self.leases.revoke(&self.link, &lease).await;
                }
            }
        };
        if self.link.current().is_some() {
            let _ = tokio::time::timeout(CLOSING, tidy).await;
        }
        self.end();
    }

    /// Ends at once.
    pub(super) fn end(&self) {
        self.link.close();
        for task in self.tasks.lock().drain(..) {
            task.abort();
        }
    }
}
