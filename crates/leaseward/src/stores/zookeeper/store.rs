//! The seam's side of it.

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use super::{client::Client, config::Config, diagnose, wire::Request};
use crate::{
    Error,
    clock::BoxFuture,
    lease::{TTL_MAX, TTL_MIN},
    store::{
        Batch, Break, Broken, Capability, Completion, Driver, Finding, Guarantee, LeaseKind,
        LockView, OpenContext, PushSink, Query, Reach, Store, StoreUrl, Waiting,
    },
};

/// One client of ZooKeeper.
pub struct ZooKeeper {
    client: Arc<Client>,
    driver: Driver,
    capability: Capability,
}

impl fmt::Debug for ZooKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeper")
            .field("config", &self.client.ground.config)
            .finish_non_exhaustive()
    }
}

impl ZooKeeper {
    /// Connects to what a URL says.
    ///
    /// # Cancel safety
    /// Cancel safe: a session that was begun ends by itself.
    pub(super) async fn open(url: &StoreUrl, context: OpenContext) -> Result<Self, Error> {
        let client = Client::open(Config::from_url(url)?, &context).await?;
        let mut capability = Capability::full(Reach::Network);
        capability.lease = LeaseKind::Session;
        capability.waiting = Waiting::OwnPlace;
        capability.why_not = Some("its nodes end with the session of whoever holds the lock");
        let bounds = &client.bounds;
        let longest = bounds.longest_ttl().min(TTL_MAX);
        capability.ttl = bounds.shortest_ttl().max(TTL_MIN).min(longest)..=longest;
        // Both would have to outlive the session.
        capability.min_hold = false;
        capability.blocks = false;
        Ok(Self { client, driver: Driver::default(), capability })
    }

    /// How many requests were sent to the servers so far, heartbeats among them.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.client.ground.sent.load(Ordering::Relaxed)
    }
}

impl Store for ZooKeeper {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    fn guarantee(&self) -> Guarantee {
        diagnose::guarantee()
    }

    fn location(&self) -> String {
        self.client.at()
    }

    fn start(&self, sink: PushSink) {
        self.client.start(sink);
    }

    fn submit(&self, batch: Batch, reply: Completion) {
        self.driver.drive(self.client.clone().submit(batch), reply);
    }

    fn inspect(&self, query: Query) -> BoxFuture<'static, Result<Vec<LockView>, Error>> {
        let client = self.client.clone();
        Box::pin(async move { client.inspect(&query).await })
    }

    fn break_lease(&self, order: Break) -> BoxFuture<'static, Result<Broken, Error>> {
        let client = self.client.clone();
        Box::pin(async move { client.break_lease(&order).await })
    }

    fn ping(&self) -> BoxFuture<'static, Result<Duration, Error>> {
        let client = self.client.clone();
        Box::pin(async move {
            let session = client.any_session().await?;
            let begun = Instant::now();
            session.ask(Request::Sync).await.map_err(|fault| client.failed(fault, false))?;
            client.fences.of(session.zxid());
            Ok(begun.elapsed())
        })
    }

    fn diagnose(&self) -> BoxFuture<'static, Result<Vec<Finding>, Error>> {
        let client = self.client.clone();
        Box::pin(async move { client.diagnose().await })
    }

    fn fence_lead(&self) -> Option<Duration> {
        let newest = self.client.fences.newest();
        let lead = newest.saturating_sub(self.client.ground.clock.wall_us());
        (newest > 0).then(|| Duration::from_micros(lead))
    }

    fn close(&self) -> BoxFuture<'static, ()> {
        self.client.close();
        Box::pin(std::future::ready(()))
    }
}

impl Drop for ZooKeeper {
    fn drop(&mut self) {
        self.client.close();
    }
}
