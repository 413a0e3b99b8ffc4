//! The seam's side of it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{client::Client, config::Config, guarantee, leases};
use crate::{
    Error, Name, Token,
    clock::BoxFuture,
    lease::TTL_MAX,
    store::{
        Batch, Break, Broken, Capability, Completion, Driver, Finding, Guarantee, LeaseKind,
        LockView, OpenContext, PushSink, Query, Reach, Store, StoreUrl, Waiting,
    },
};

/// One client of an etcd cluster.
pub struct Etcd {
    client: Arc<Client>,
    driver: Driver,
    capability: Capability,
}

impl Etcd {
    /// Connects to what a URL says.
    ///
    /// # Cancel safety
    /// Cancel safe: all that is written is where fences are counted from, as a whole or not at all.
    pub(super) async fn open(url: &StoreUrl, context: OpenContext) -> Result<Self, Error> {
        let client = Client::open(Config::from_url(url)?, &context).await?;
        let mut capability = Capability::full(Reach::Network);
        capability.lease = LeaseKind::Session;
        capability.waiting = Waiting::OwnPlace;
        capability.ttl = leases::SHORTEST..=TTL_MAX;
        // Both need a key that outlives the lease it came with.
        capability.min_hold = false;
        capability.why_not = Some("a lock in etcd ends with its key, and nothing stays behind");
        capability.batch_max = super::plan::ROUND_MAX;
        Ok(Self { client, driver: Driver::default(), capability })
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }
}

impl Etcd {
    /// The key of a lease that this client holds, and the revision at which it was created.
    pub(crate) fn recorded(&self, name: &Name, token: &Token) -> Option<(Vec<u8>, i64)> {
        let table = self.client.table.lock();
        let key = table.key_of(name, token)?;
        Some((key.clone(), table.get(key)?.create))
    }
}

impl Store for Etcd {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    fn guarantee(&self) -> Guarantee {
        guarantee::of()
    }

    fn location(&self) -> String {
        self.client.link.config.location()
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
            let begun = Instant::now();
            client.scale.settle(&client.link, &client.keys, &*client.clock).await?;
            Ok(begun.elapsed())
        })
    }

    fn diagnose(&self) -> BoxFuture<'static, Result<Vec<Finding>, Error>> {
        let client = self.client.clone();
        Box::pin(async move { client.diagnose().await })
    }

    fn fence_lead(&self) -> Option<Duration> {
        let newest = self.client.scale.newest()?;
        Some(Duration::from_micros(newest.get().saturating_sub(self.client.clock.wall_us())))
    }

    fn close(&self) -> BoxFuture<'static, ()> {
        let client = self.client.clone();
        Box::pin(async move { client.close().await })
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.client.end();
    }
}
